//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/cuda"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// These tests need an NVIDIA GPU: run them with the build tag gpu. They are what the suite of package backendtest does
// not reach: rows and sizes that take their own ways, results that must not change, and speed.

// A bench is a backend on a GPU, and arrays there.
type bench struct {
	testing.TB
	b *cuda.Backend
	q backend.Queue
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dev, err := driver.Open("cuda:0")
	testkit.Must(t, err)
	a, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	b, err := cuda.New(dev, cuda.Options{NoLibrary: true})
	testkit.Must(t, err)
	t.Cleanup(func() {
		testkit.Must(t, b.Failed())
		testkit.Must(t, b.Close())
		testkit.Must(t, dev.Close())
	})
	return &bench{TB: t, b: b, q: backend.Queue{Stream: dev.DefaultStream(), Scratch: a}}
}

// array returns fresh memory as an array without gaps.
func (b *bench) array(d dtype.DType, shape ...int) backend.Array {
	b.Helper()
	a := backend.Array{DType: d, Shape: shape, Strides: make([]int, len(shape))}
	n := 1
	for k := len(shape) - 1; k >= 0; k-- {
		a.Strides[k] = n
		n *= shape[k]
	}
	block, err := b.q.Scratch.Alloc(b.q.Stream, int64(n*d.Size()))
	testkit.Must(b, err)
	a.Ptr = block.Ptr
	return a
}

func elementsOf(a backend.Array) int {
	n := 1
	for _, length := range a.Shape {
		n *= length
	}
	return n
}

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// put copies elements to an array, over and over until it is full.
func put[T any](b *bench, a backend.Array, from []T) {
	b.Helper()
	size, piece := int64(elementsOf(a)*a.DType.Size()), bytesOf(from)
	n := min(size, int64(len(piece)))
	testkit.Must(b, b.q.Stream.CopyIn(a.Ptr, piece[:n]))
	for ; n < size; n += min(n, size-n) {
		testkit.Must(b, b.q.Stream.Copy(a.Ptr+driver.Pointer(n), a.Ptr, min(n, size-n)))
	}
}

// get returns the elements of an array.
func get[T any](b *bench, a backend.Array) []T {
	b.Helper()
	s := make([]T, elementsOf(a))
	testkit.Must(b, b.q.Stream.CopyOut(bytesOf(s), a.Ptr))
	return s
}

func (b *bench) rng() *rand.Rand {
	b.Logf("seed %d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// normals returns n numbers of a normal distribution, as elements of a float type.
func normals(rng *rand.Rand, d dtype.DType, n int) ([]byte, []float64) {
	all, size := make([]float64, n), d.Size()
	raw := make([]byte, n*size)
	for i := range all {
		all[i] = float64(float32(rng.NormFloat64()))
		switch d {
		case dtype.Float32:
			*(*float32)(unsafe.Pointer(&raw[i*4])) = float32(all[i])
		case dtype.Float64:
			*(*float64)(unsafe.Pointer(&raw[i*8])) = all[i]
		case dtype.BFloat16:
			word := math.Float32bits(float32(all[i])) &^ 0xffff
			*(*uint16)(unsafe.Pointer(&raw[i*2])) = uint16(word >> 16)
			all[i] = float64(math.Float32frombits(word))
		}
	}
	return raw, all
}

// floatsOf reads elements of a float type.
func floatsOf(d dtype.DType, raw []byte) []float64 {
	all := make([]float64, len(raw)/d.Size())
	for i := range all {
		switch d {
		case dtype.Float32:
			all[i] = float64(*(*float32)(unsafe.Pointer(&raw[i*4])))
		case dtype.Float64:
			all[i] = *(*float64)(unsafe.Pointer(&raw[i*8]))
		case dtype.BFloat16:
			all[i] = float64(math.Float32frombits(uint32(*(*uint16)(unsafe.Pointer(&raw[i*2]))) << 16))
		}
	}
	return all
}

// TestGPURowsOfEveryLength: softmax and norms, with rows for every kernel, aligned and not.
func TestGPURowsOfEveryLength(t *testing.T) {
	b := newBench(t)
	rng := b.rng()
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float64} {
		eps := map[dtype.DType]float64{dtype.Float32: 1e-5, dtype.BFloat16: 1.0 / 128, dtype.Float64: 1e-12}[d]
		for _, n := range []int{
			1, 7, 8, 64, 250, 256, 1000, 1024, 1025, 4096, 5000, 8191, 8192, 8193, 16384, 32768, 40_000, 65_537, 1 << 20,
		} {
			rows := 1 + rng.IntN(5)
			raw, x := normals(rng, d, rows*n)
			from, to, weight := b.array(d, rows, n), b.array(d, rows, n), b.array(d, n)
			put(b, from, raw)
			rawWeight, w := normals(rng, d, n)
			put(b, weight, rawWeight)
			check := func(name string, want func(row []float64, i int) float64) {
				t.Helper()
				got := floatsOf(d, get[byte](b, backend.Array{Ptr: to.Ptr, Shape: []int{len(raw)}}))
				for r := range rows {
					row := x[r*n : r*n+n]
					for i := range row {
						v := want(row, i)
						if !(math.Abs(got[r*n+i]-v) <= eps*(math.Abs(v)+1e-3)) {
							t.Fatalf("%s of %v, %d rows of %d: element %d of row %d is %v, want %v", name, d, rows, n, i, r, got[r*n+i], v)
						}
					}
				}
			}
			for _, log := range []bool{false, true} {
				testkit.Must(t, b.b.Softmax(b.q, log, to, from, 1))
				var sum float64
				var of *float64
				check("softmax", func(row []float64, i int) float64 {
					if of != &row[0] {
						of, sum = &row[0], 0
						for _, v := range row {
							sum += math.Exp(v)
						}
					}
					if log {
						return row[i] - math.Log(sum)
					}
					return math.Exp(row[i]) / sum
				})
			}
			for _, rms := range []bool{false, true} {
				testkit.Must(t, b.b.Norm(b.q, rms, to, from, 1, &weight, nil, 1e-5))
				var mean, scale float64
				var of *float64
				check("norm", func(row []float64, i int) float64 {
					if of != &row[0] {
						of, mean, scale = &row[0], 0, 0
						for _, v := range row {
							if !rms {
								mean += v / float64(n)
							}
						}
						for _, v := range row {
							scale += (v - mean) * (v - mean) / float64(n)
						}
						scale = math.Sqrt(scale + 1e-5)
					}
					return (row[i] - mean) / scale * w[i]
				})
			}
		}
	}
}

// TestGPUManyElements: arrays have more elements than 32 bits can count.
func TestGPUManyElements(t *testing.T) {
	b := newBench(t)
	const n = 1<<32 + 12345
	x := b.array(dtype.Uint8, n)
	testkit.Must(t, b.q.Stream.Fill(x.Ptr, 1, n))
	testkit.Must(t, b.q.Stream.Fill(x.Ptr+n-100, 3, 1))
	sum, most, where := b.array(dtype.Int64, 1), b.array(dtype.Uint8, 1), b.array(dtype.Int64, 1)
	testkit.Must(t, b.b.Reduce(b.q, backend.Sum, sum, x))
	testkit.Must(t, b.b.Reduce(b.q, backend.Max, most, x))
	testkit.Must(t, b.b.ArgReduce(b.q, false, where, x, 0))
	if got := get[int64](b, sum)[0]; got != n+2 {
		t.Errorf("the sum is %d, want %d", got, int64(n+2))
	}
	if got := get[uint8](b, most)[0]; got != 3 {
		t.Errorf("the greatest is %d, want 3", got)
	}
	if got := get[int64](b, where)[0]; got != n-100 {
		t.Errorf("the greatest is at %d, want %d", got, int64(n-100))
	}
	rows, index, out := b.array(dtype.Uint8, 1<<22+1, 1<<10), b.array(dtype.Int64, 3), b.array(dtype.Uint8, 3, 1<<10)
	testkit.Must(t, b.q.Stream.Fill(rows.Ptr, 5, 1<<32))
	testkit.Must(t, b.q.Stream.Fill(rows.Ptr+1<<32, 7, 1<<10))
	put(b, index, []int64{1 << 22, 0, 1 << 22})
	testkit.Must(t, b.b.IndexSelect(b.q, out, rows, index, 0))
	if got := get[uint8](b, out); got[0] != 7 || got[1<<10] != 5 || got[3<<10-1] != 7 {
		t.Errorf("the rows selected begin with %d and %d and end with %d, want 7, 5 and 7", got[0], got[1<<10], got[3<<10-1])
	}
}

// TestGPUArgReduceFindsTheFirst: among equal elements in different threads and blocks, and among NaNs.
func TestGPUArgReduceFindsTheFirst(t *testing.T) {
	b := newBench(t)
	rng := b.rng()
	for _, c := range []struct{ rows, n int }{
		{1, 3_000_001}, {3, 70_001}, {5, 16_384}, {333, 1023}, {2000, 77}, {5000, 9}, {70_000, 40}, {1000, 64}, {3_000_000, 2}, {300_000, 33},
	} {
		const before = 7 // elements, so that rows begin anywhere
		from := make([]float32, before+c.rows*c.n)
		for _, distinct := range []int{1, 3, 1000, 1 << 30} {
			for i := range from {
				from[i] = float32(-rng.IntN(distinct))
			}
			for range rng.IntN(3) * len(from) / 2000 {
				from[rng.IntN(len(from))] = float32(math.NaN())
			}
			raw := make([]byte, 2*len(from)) // as bfloat16
			for i, v := range from {
				from[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
				binary.LittleEndian.PutUint16(raw[2*i:], uint16(math.Float32bits(v)>>16))
			}
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
				whole := b.array(d, len(from))
				if d == dtype.Float32 {
					put(b, whole, from)
				} else {
					put(b, whole, raw)
				}
				skip := rng.IntN(before + 1)
				x := backend.Array{Ptr: whole.Ptr + driver.Pointer(skip*d.Size()), DType: d, Shape: []int{c.rows, c.n}, Strides: []int{c.n, 1}}
				for along, shape := range [][]int{{1, c.n}, {c.rows, 1}} {
					for _, least := range []bool{false, true} {
						dst := b.array(dtype.Int64, shape...)
						testkit.Must(t, b.b.ArgReduce(b.q, least, dst, x, along))
						for i, got := range get[int64](b, dst) {
							start, step, length := skip+i, c.n, c.rows
							if along == 1 {
								start, step, length = skip+i*c.n, 1, c.n
							}
							if want := firstOf(from[start:], step, length, least); int(got) != want {
								t.Fatalf("%v, %d rows of %d, %d distinct, %d skipped, along %d, least %v: result %d is %d, want %d",
									d, c.rows, c.n, distinct, skip, along, least, i, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// firstOf returns the index of the first NaN or, without NaNs, of the first greatest or least element.
func firstOf(x []float32, step, n int, least bool) (first int) {
	best := x[0]
	for i := 0; i < n && best == best; i++ {
		if v := x[i*step]; v != v || !least && v > best || least && v < best {
			first, best = i, v
		}
	}
	return first
}

// TestGPUSortsLongRows checks the results of radix sort for order, stability and completeness.
func TestGPUSortsLongRows(t *testing.T) {
	b := newBench(t)
	rng := b.rng()
	for _, c := range []struct{ rows, n int }{{1, 1 << 24}, {3, 1_000_003}, {27_000, 2500}, {70_000, 1100}} {
		from := make([]float32, c.rows*c.n)
		for i := range from {
			from[i] = float32(rng.IntN(c.n)) - float32(c.n/2)
		}
		x, values := b.array(dtype.Float32, c.rows, c.n), b.array(dtype.Float32, c.rows, c.n)
		indices := b.array(dtype.Int64, c.rows, c.n)
		put(b, x, from)
		const k = 100
		best, places := b.array(dtype.Float32, c.rows, k), b.array(dtype.Int64, c.rows, k)
		testkit.Must(t, b.b.Sort(b.q, true, &values, &indices, x, 1))
		testkit.Must(t, b.b.TopK(b.q, false, &best, &places, x, 1))
		v, at := get[float32](b, values), get[int64](b, indices)
		top, topAt := get[float32](b, best), get[int64](b, places)
		seen := make([]bool, c.n)
		for r := range c.rows {
			clear(seen)
			row := v[r*c.n : (r+1)*c.n]
			for i, place := range at[r*c.n : (r+1)*c.n] {
				if place < 0 || place >= int64(c.n) || seen[place] {
					t.Fatalf("%d rows of %d: index %d of row %d is %d, out of range or twice", c.rows, c.n, i, r, place)
				}
				seen[place] = true
				if from[r*c.n+int(place)] != row[i] {
					t.Fatalf("%d rows of %d: value %d of row %d is %v, not that at its index %d", c.rows, c.n, i, r, row[i], place)
				}
				if i > 0 && (row[i] > row[i-1] || row[i] == row[i-1] && place < at[r*c.n+i-1]) {
					t.Fatalf("%d rows of %d: value %d of row %d is out of order", c.rows, c.n, i, r)
				}
			}
			if !slices.Equal(top[r*k:(r+1)*k], row[:k]) || !slices.Equal(topAt[r*k:(r+1)*k], at[r*c.n:r*c.n+k]) {
				t.Fatalf("%d rows of %d: the first %d of row %d are others than sorting finds", c.rows, c.n, k, r)
			}
		}
	}
}

// TestGPUSameResult: sums of floats that are split over blocks have the same bits each time.
func TestGPUSameResult(t *testing.T) {
	b := newBench(t)
	raw, _ := normals(b.rng(), dtype.Float32, 1<<20)
	x := b.array(dtype.Float32, 1<<14, 1<<12)
	put(b, x, raw)
	for _, shape := range [][]int{{1, 1}, {1, 1 << 12}, {1 << 14, 1}} {
		dst := b.array(dtype.Float32, shape...)
		var first []float32
		for range 10 {
			testkit.Must(t, b.b.Reduce(b.q, backend.Sum, dst, x))
			got := get[float32](b, dst)
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Fatalf("sums of shape %v differ from one call to the next", shape)
			}
		}
	}
}

// speed measures a call that moves so many bytes.
func (b *bench) speed(name string, size int, call func() error) {
	b.TB.(*testing.B).Run(name, func(t *testing.B) {
		for range 3 {
			testkit.Must(t, call())
		}
		testkit.Must(t, b.q.Stream.Sync(context.Background()))
		t.SetBytes(int64(size))
		t.ResetTimer()
		for range t.N {
			testkit.Must(t, call())
		}
		testkit.Must(t, b.q.Stream.Sync(context.Background()))
	})
}

func BenchmarkGPUReduce(t *testing.B) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		raw, _ := normals(rng, d, 1<<20)
		const size = 1 << 30
		for _, cols := range []int{1 << 10, 1 << 14} {
			rows := size / d.Size() / cols
			x, all, right, down := b.array(d, rows, cols), b.array(d, 1, 1), b.array(d, rows, 1), b.array(d, 1, cols)
			put(b, x, raw)
			for _, op := range []backend.ReduceOp{backend.Sum, backend.Max, backend.Norm2} {
				name := op.String() + "/" + d.String() + "/" + map[int]string{1 << 10: "1K", 1 << 14: "16K"}[cols]
				b.speed(name+"/all", size, func() error { return b.b.Reduce(b.q, op, all, x) })
				b.speed(name+"/last", size, func() error { return b.b.Reduce(b.q, op, right, x) })
				b.speed(name+"/first", size, func() error { return b.b.Reduce(b.q, op, down, x) })
			}
		}
		for _, cols := range []int{32, 100, 250, 1 << 10, 1 << 12, 1 << 14} {
			rows := size / d.Size() / cols
			size := rows * cols * d.Size()
			x, right, down := b.array(d, rows, cols), b.array(dtype.Int64, rows, 1), b.array(dtype.Int64, 1, cols)
			put(b, x, raw)
			name := "argmax/" + d.String() + "/" + strconv.Itoa(cols)
			b.speed(name+"/last", size, func() error { return b.b.ArgReduce(b.q, false, right, x, 1) })
			b.speed(name+"/first", size, func() error { return b.b.ArgReduce(b.q, false, down, x, 0) })
			x.Shape, x.Strides, right.Shape, right.Strides = []int{rows * cols}, []int{1}, []int{1}, []int{1}
			b.speed(name+"/all", size, func() error { return b.b.ArgReduce(b.q, false, right, x, 0) })
		}
	}
}

func BenchmarkGPURows(t *testing.B) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		raw, _ := normals(rng, d, 1<<20)
		const size = 1 << 30
		for _, n := range []int{1000, 1023, 1024, 2048, 4096, 5001, 8192, 16384, 32768, 50257, 131072} {
			rows := size / d.Size() / n
			moved := 2 * rows * n * d.Size()
			x, y, w := b.array(d, rows, n), b.array(d, rows, n), b.array(d, n)
			put(b, x, raw)
			put(b, w, raw)
			name := d.String() + "/" + strconv.Itoa(n)
			b.speed("softmax/"+name, moved, func() error { return b.b.Softmax(b.q, false, y, x, 1) })
			b.speed("layernorm/"+name, moved, func() error { return b.b.Norm(b.q, false, y, x, 1, &w, &w, 1e-5) })
			b.speed("rmsnorm/"+name, moved, func() error { return b.b.Norm(b.q, true, y, x, 1, &w, nil, 1e-5) })
			sums := b.array(d, rows, 1)
			b.speed("sum/"+name, moved/2, func() error { return b.b.Reduce(b.q, backend.Sum, sums, x) })
		}
		x, y := b.array(d, 64, size/d.Size()/64/1024, 1024), b.array(d, 64, size/d.Size()/64/1024, 1024)
		put(b, x, raw)
		b.speed("softmax/"+d.String()+"/columns", 2*size, func() error { return b.b.Softmax(b.q, false, y, x, 1) })
	}
	x, y := b.array(dtype.Uint8, 1<<30), b.array(dtype.Uint8, 1<<30)
	b.speed("copy", 2<<30, func() error { return b.q.Stream.Copy(y.Ptr, x.Ptr, 1<<30) })
}

func BenchmarkGPUSort(t *testing.B) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ rows, n int }{{1, 1 << 24}, {1 << 14, 1 << 10}, {1 << 10, 1 << 14}, {1 << 7, 1 << 17}} {
		x, values := b.array(dtype.Float32, c.rows, c.n), b.array(dtype.Float32, c.rows, c.n)
		indices := b.array(dtype.Int64, c.rows, c.n)
		raw, _ := normals(rng, dtype.Float32, 1<<24)
		put(b, x, raw)
		name, size := strconv.Itoa(c.rows)+"x"+strconv.Itoa(c.n), 4*c.rows*c.n
		b.speed("sort/"+name, size, func() error { return b.b.Sort(b.q, false, &values, &indices, x, 1) })
		for _, k := range []int{10, 100, 1000} {
			best, places := b.array(dtype.Float32, c.rows, k), b.array(dtype.Int64, c.rows, k)
			b.speed("topk/"+name+"/"+strconv.Itoa(k), size, func() error { return b.b.TopK(b.q, false, &best, &places, x, 1) })
		}
	}
}

func BenchmarkGPUIndex(t *testing.B) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(1, 2))
	const rows, n, width = 1 << 18, 1 << 18, 1024
	at := make([]int64, n)
	for i := range at {
		at[i] = rng.Int64N(rows)
	}
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		raw, _ := normals(rng, d, 1<<20)
		x, y, index := b.array(d, rows, width), b.array(d, n, width), b.array(dtype.Int64, n)
		put(b, x, raw)
		put(b, y, raw)
		put(b, index, at)
		size := 2 * n * width * d.Size()
		b.speed("index_select/"+d.String(), size, func() error { return b.b.IndexSelect(b.q, y, x, index, 0) })
		wide := index
		wide.Shape, wide.Strides = []int{n, width}, []int{1, 0}
		b.speed("scatter_add/"+d.String(), size, func() error { return b.b.ScatterAdd(b.q, x, wide, y, 0) })
	}
}
