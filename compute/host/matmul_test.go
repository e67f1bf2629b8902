package host

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
)

// both runs f with a backend that may call OpenBLAS and with one that may not.
func both(t *testing.T, f func(t *testing.T, multiply func(dst, a, b backend.Array))) {
	dev := drivertest.OpenDevice(t, "host")
	stream := drivertest.NewStream(t, dev)
	for name, options := range map[string]Options{"openblas": {}, "own": {NoBLAS: true}, "own, 3 processors": {NoBLAS: true, Procs: 3}} {
		host := New(dev, options)
		t.Run(name, func(t *testing.T) {
			f(t, func(dst, a, b backend.Array) {
				t.Helper()
				if err := host.MatMul(backend.Queue{Stream: stream}, dst, a, b); err != nil {
					t.Fatal(err)
				}
				if err := stream.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// laid is an array of a shape in fresh memory: its axes in any order, some reversed, some with gaps, and those broadcast
// with stride 0 if it may be.
func laid[S any](r *rand.Rand, d dtype.DType, dims []int, broadcast bool, random func() S) (backend.Array, []S) {
	a := backend.Array{DType: d, Shape: dims, Strides: make([]int, len(dims))}
	order := r.Perm(len(dims))
	if r.IntN(2) == 0 { // plain, but for the last two, perhaps
		for i := range order {
			order[i] = len(dims) - 1 - i
		}
		if r.IntN(2) == 0 {
			order[0], order[1] = order[1], order[0]
		}
	}
	gaps, turns := r.IntN(3) == 0, r.IntN(3) == 0
	next, first := 1, 0
	for _, axis := range order {
		if broadcast && axis < len(dims)-2 && r.IntN(3) == 0 {
			continue
		}
		if gaps && r.IntN(2) == 0 {
			next += r.IntN(3)
		}
		a.Strides[axis] = next
		if turns && r.IntN(2) == 0 && dims[axis] > 0 {
			a.Strides[axis] = -next
			first += next * (dims[axis] - 1)
		}
		next *= max(dims[axis], 1)
	}
	a.Offset = r.IntN(4)
	memory := make([]S, a.Offset+next+r.IntN(4))
	for i := range memory {
		memory[i] = random()
	}
	a.Offset += first
	a.Bytes = bytesOf(memory)
	if a.Bytes == nil {
		a.Bytes = []byte{}
	}
	return a, memory
}

// at is where the element with the indices lies.
func at(a *backend.Array, batch []int, i, j int) int {
	n := a.Offset
	for k, b := range batch {
		n += b * a.Strides[k]
	}
	return n + i*a.Strides[len(batch)] + j*a.Strides[len(batch)+1]
}

// checkProduct multiplies, and wants wrong to find nothing wrong with any element, given the row and the column that it is
// the product of, and the memory between the elements to be as it was.
func checkProduct[S any](
	t *testing.T, r *rand.Rand, d dtype.DType, batch []int, m, n, k int, multiply func(dst, a, b backend.Array),
	random func() S, wrong func(got S, row, column []S) string,
) {
	t.Helper()
	with := func(i, j int) []int { return append(append([]int(nil), batch...), i, j) }
	dst, c := laid(r, d, with(m, n), false, random)
	x, a := laid(r, d, with(m, k), true, random)
	y, b := laid(r, d, with(k, n), true, random)
	before := append([]S(nil), c...)
	multiply(dst, x, y)
	row, column := make([]S, k), make([]S, k)
	index := make([]int, len(batch))
	products := 1
	for _, l := range batch {
		products *= l
	}
	for product := range products {
		for axis := len(batch) - 1; axis >= 0; axis-- {
			index[axis] = product % batch[axis]
			product /= batch[axis]
		}
		for i := range m {
			for j := range n {
				for p := range k {
					row[p], column[p] = a[at(&x, index, i, p)], b[at(&y, index, p, j)]
				}
				q := at(&dst, index, i, j)
				if message := wrong(c[q], row, column); message != "" {
					t.Fatalf("%v, batch %v of %v, m %d, n %d, k %d, strides %v = %v x %v: element (%d, %d) is %s",
						d, index, batch, m, n, k, dst.Strides, x.Strides, y.Strides, i, j, message)
				}
				c[q] = before[q]
			}
		}
	}
	if !bytes.Equal(bytesOf(c), bytesOf(before)) {
		t.Fatalf("%v, batch %v, m %d, n %d, k %d, strides %v: memory between the elements has changed", d, batch, m, n, k, dst.Strides)
	}
}

// checkProducts tries shapes up to 70, with batches, and a few that are cut into regions and depths.
func checkProducts[S any](
	t *testing.T, d dtype.DType, random func(r *rand.Rand) S, wrong func(got S, row, column []S) string,
) {
	both(t, func(t *testing.T, multiply func(dst, a, b backend.Array)) {
		r := randomFor(t)
		try := func(batch []int, m, n, k int) {
			t.Helper()
			checkProduct(t, r, d, batch, m, n, k, multiply, func() S { return random(r) }, wrong)
		}
		for range 40 {
			try(nil, r.IntN(71), r.IntN(71), r.IntN(71))
			try([]int{r.IntN(6)}, r.IntN(20), r.IntN(20), r.IntN(20))
			try([]int{1 + r.IntN(3), 1 + r.IntN(4)}, r.IntN(10), r.IntN(10), r.IntN(10))
			try([]int{1 + r.IntN(3)}, 1, r.IntN(71), r.IntN(71))
			try([]int{1 + r.IntN(3)}, r.IntN(71), 1, r.IntN(71))
		}
		try(nil, 40, 70, 600)
		try(nil, 3, 2, 1000)
		try(nil, 1100, 3, 5)
		try(nil, 2, 2100, 3)
		try(nil, 1, 1, pieceOfRow+1000)
		try(nil, 1, pieceOfCols+10, colsOfPiece+5)
	})
}

func testFloats[S any](t *testing.T, d dtype.DType, epsilon, unit float64, of func(float64) S, value func(S) float64) {
	checkProducts(t, d, func(r *rand.Rand) S { return of(r.NormFloat64()) }, func(got S, row, column []S) string {
		sum, size := 0.0, 0.0
		for i := range row {
			v := value(row[i]) * value(column[i])
			sum, size = sum+v, size+math.Abs(v)
		}
		// The error of a sum of k products in any order (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1), and
		// of rounding once to the type.
		bound := float64(len(row)+1)*epsilon*size + math.Abs(sum)*unit + 0x1p-25
		if d := math.Abs(value(got) - sum); !(d <= bound) {
			return fmt.Sprintf("%v, want %v within %g", value(got), sum, bound)
		}
		return ""
	})
}

func TestMatMulFloats(t *testing.T) {
	t.Run("float32", func(t *testing.T) {
		testFloats(t, dtype.Float32, 0x1p-24, 0, func(x float64) float32 { return float32(x) }, func(x float32) float64 { return float64(x) })
	})
	t.Run("float64", func(t *testing.T) {
		testFloats(t, dtype.Float64, 0x1p-52, 0, func(x float64) float64 { return x }, func(x float64) float64 { return x })
	})
	t.Run("float16", func(t *testing.T) {
		testFloats(t, dtype.Float16, 0x1p-24, 0x1p-11, func(x float64) dtype.F16 { return dtype.ToF16(float32(x)) },
			func(x dtype.F16) float64 { return float64(x.Float32()) })
	})
	t.Run("bfloat16", func(t *testing.T) {
		testFloats(t, dtype.BFloat16, 0x1p-24, 0x1p-8, func(x float64) dtype.BF16 { return dtype.ToBF16(float32(x)) },
			func(x dtype.BF16) float64 { return float64(x.Float32()) })
	})
}

func testIntegers[S int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](t *testing.T) {
	d := dtype.Of[S]()
	t.Run(d.String(), func(t *testing.T) {
		checkProducts(t, d, func(r *rand.Rand) S { return S(r.Uint64()) }, func(got S, row, column []S) string {
			var sum S
			for i := range row {
				sum += row[i] * column[i]
			}
			if got != sum {
				return fmt.Sprintf("%d, want %d", got, sum)
			}
			return ""
		})
	})
}

// Integers of all types wrap, and are exact.
func TestMatMulIntegers(t *testing.T) {
	testIntegers[int8](t)
	testIntegers[int16](t)
	testIntegers[int32](t)
	testIntegers[int64](t)
	testIntegers[uint8](t)
	testIntegers[uint16](t)
	testIntegers[uint32](t)
	testIntegers[uint64](t)
}

// matrices are three square matrices of float32.
func matrices(r *rand.Rand, n int) (dst, a, b backend.Array, of [3][]float32) {
	var arrays [3]backend.Array
	for i := range of {
		of[i] = make([]float32, n*n)
		for j := range of[i] {
			of[i][j] = r.Float32() - 0.5
		}
		arrays[i] = backend.Array{Bytes: bytesOf(of[i]), DType: dtype.Float32, Shape: []int{n, n}, Strides: []int{n, 1}}
	}
	return arrays[0], arrays[1], arrays[2], of
}

// The same product has the same bits each time; without OpenBLAS, on any number of processors.
func TestMatMulIsDeterministic(t *testing.T) {
	r := randomFor(t)
	dst, a, b, of := matrices(r, 300)
	var own []float32
	both(t, func(t *testing.T, multiply func(dst, a, b backend.Array)) {
		var first []float32
		for range 20 {
			clear(of[0])
			multiply(dst, a, b)
			if first == nil {
				first = append(first, of[0]...)
			}
			if !bytes.Equal(bytesOf(first), bytesOf(of[0])) {
				t.Fatal("another time the product has other bits")
			}
		}
		if t.Name() != "TestMatMulIsDeterministic/openblas" {
			if own == nil {
				own = first
			}
			if !bytes.Equal(bytesOf(own), bytesOf(first)) {
				t.Fatal("on another number of processors the product has other bits")
			}
		}
	})
}

func TestMatMulRefusesTypes(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Bool, dtype.Complex64, dtype.Complex128, dtype.Float8E5M2, dtype.Float8E4M3FN} {
		a := backend.Array{Bytes: make([]byte, 16), DType: d, Shape: []int{1, 1}, Strides: []int{1, 1}}
		if err := new(Backend).MatMul(backend.Queue{}, a, a, a); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%v: %v, want an error that matches driver.ErrUnsupported", d, err)
		}
	}
}
