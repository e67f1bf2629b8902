//go:build linux && (amd64 || arm64) && !nocuda

package host

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ebitengine/purego"
	gonumblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// Layouts that BLAS knows are passed on as they are, the others are not.
func TestBLASLayout(t *testing.T) {
	for _, c := range []struct {
		s        shape
		trans    byte
		distance int32
	}{
		{shape{0, 3, 4, 4, 1}, 'N', 4},
		{shape{0, 3, 4, 9, 1}, 'N', 9},
		{shape{0, 3, 4, 1, 3}, 'T', 3},
		{shape{0, 3, 4, 1, 7}, 'T', 7},
		{shape{0, 1, 4, -5, 1}, 'N', 4}, // of one row, the stride between rows says nothing
		{shape{0, 3, 1, 1, -8}, 'N', 1},
		{shape{0, 3, 1, 5, 9}, 'N', 5},
		{shape{0, 1, 4, 9, 5}, 'T', 5},
		{shape{0, 1, 1, 0, 0}, 'N', 1},
		{shape{0, 3, 4, 3, 1}, 0, 0}, // rows that overlap
		{shape{0, 3, 4, 0, 1}, 0, 0},
		{shape{0, 3, 4, -4, 1}, 0, 0},
		{shape{0, 3, 4, 8, 2}, 0, 0},
		{shape{0, 3, 4, 1 << 31, 1}, 0, 0},
		{shape{0, 3, 4, 1<<31 - 1, 1}, 'N', 1<<31 - 1},
	} {
		m := matrix[float32]{shape: c.s}
		if trans, distance := blasLayout(&m); trans != c.trans || distance != c.distance {
			t.Errorf("%+v: %q, %d; want %q, %d", c.s, trans, distance, c.trans, c.distance)
		}
	}
}

// multiplications reports the speed of products of n x n matrices.
func multiplications(b *testing.B, n int, f func()) {
	f() // threads, scratch memory
	for b.Loop() {
		f()
	}
	b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkMatMul64(b *testing.B)   { benchmarkMatMul(b, 64) }
func BenchmarkMatMul256(b *testing.B)  { benchmarkMatMul(b, 256) }
func BenchmarkMatMul1024(b *testing.B) { benchmarkMatMul(b, 1024) }

func benchmarkMatMul(b *testing.B, n int) {
	dev := drivertest.OpenDevice(b, "host")
	stream := drivertest.NewStream(b, dev)
	r := rand.New(rand.NewPCG(1, 2))
	dst, x, y, of := matrices(r, n)
	run := func(name string, o Options, dst, x, y backend.Array) {
		b.Run(name, func(b *testing.B) {
			host := New(dev, o)
			multiplications(b, n, func() {
				if err := host.MatMul(backend.Queue{Stream: stream}, dst, x, y); err != nil {
					b.Fatal(err)
				}
				if err := stream.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	run("ashlar-tiled", Options{NoBLAS: true}, dst, x, y)
	run("ashlar-openblas", Options{}, dst, x, y)
	if f := openBLAS(); f.sgemm != 0 {
		b.Run("openblas-direct", func(b *testing.B) {
			size, one, zero := int32(n), float32(1), float32(0)
			plain := byte('N')
			multiplications(b, n, func() {
				purego.SyscallN(f.sgemm, uintptr(unsafe.Pointer(&plain)), uintptr(unsafe.Pointer(&plain)),
					uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&size)),
					uintptr(unsafe.Pointer(&one)), uintptr(unsafe.Pointer(&of[2][0])), uintptr(unsafe.Pointer(&size)),
					uintptr(unsafe.Pointer(&of[1][0])), uintptr(unsafe.Pointer(&size)),
					uintptr(unsafe.Pointer(&zero)), uintptr(unsafe.Pointer(&of[0][0])), uintptr(unsafe.Pointer(&size)), 1, 1)
			})
		})
	}
	b.Run("gonum", func(b *testing.B) {
		general := func(i int) blas32.General { return blas32.General{Rows: n, Cols: n, Stride: n, Data: of[i]} }
		multiplications(b, n, func() { blas32.Gemm(gonumblas.NoTrans, gonumblas.NoTrans, 1, general(1), general(2), 0, general(0)) })
	})
	for _, set := range kernelSets[float32]() {
		b.Run(fmt.Sprintf("tile-%dx%d", set.tile.mr, set.tile.nr), func(b *testing.B) {
			host := &Backend{procs: 2}
			g := product[float32]{kernels: set, procs: host.procs, spread: host.inStages}
			for i, m := range []*matrix[float32]{&g.c, &g.a, &g.b} {
				*m = matrix[float32]{shape: shape{0, n, n, n, 1}, own: of[i]}
			}
			multiplications(b, n, g.tiled)
		})
	}
	double := func() ([]float64, backend.Array) {
		s := make([]float64, n*n)
		for i := range s {
			s[i] = r.Float64() - 0.5
		}
		return s, backend.Array{Bytes: bytesOf(s), DType: dtype.Float64, Shape: []int{n, n}, Strides: []int{n, 1}}
	}
	c64, dst64 := double()
	a64, x64 := double()
	b64, y64 := double()
	run("float64/ashlar-tiled", Options{NoBLAS: true}, dst64, x64, y64)
	run("float64/ashlar-openblas", Options{}, dst64, x64, y64)
	b.Run("float64/gonum", func(b *testing.B) {
		general := func(s []float64) blas64.General { return blas64.General{Rows: n, Cols: n, Stride: n, Data: s} }
		multiplications(b, n, func() {
			blas64.Gemm(gonumblas.NoTrans, gonumblas.NoTrans, 1, general(a64), general(b64), 0, general(c64))
		})
	})
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Int8, dtype.Int32} {
		half := func() backend.Array {
			return backend.Array{Bytes: make([]byte, n*n*d.Size()), DType: d, Shape: []int{n, n}, Strides: []int{n, 1}}
		}
		run(d.String(), Options{}, half(), half(), half())
	}
}

// BenchmarkMatMulVector measures products with a vector, in bytes of the matrix.
func BenchmarkMatMulVector(b *testing.B) {
	const n = 4096
	dev := drivertest.OpenDevice(b, "host")
	stream := drivertest.NewStream(b, dev)
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.Int32} {
		array := func(rows, cols, rs, cs int) backend.Array {
			memory := make([]byte, rows*cols*d.Size())
			for i := range memory {
				memory[i] = byte(i % 7) // pages that nothing was written to share one
			}
			return backend.Array{Bytes: memory, DType: d, Shape: []int{rows, cols}, Strides: []int{rs, cs}}
		}
		for _, c := range []struct {
			name      string
			dst, x, y backend.Array
		}{
			{"matrix by vector", array(n, 1, 1, 1), array(n, n, n, 1), array(n, 1, 1, 1)},
			{"transposed matrix by vector", array(n, 1, 1, 1), array(n, n, 1, n), array(n, 1, 1, 1)},
			{"vector by matrix", array(1, n, n, 1), array(1, n, n, 1), array(n, n, n, 1)},
		} {
			b.Run(fmt.Sprintf("%v/%s", d, c.name), func(b *testing.B) {
				host := New(dev, Options{})
				b.SetBytes(int64(n * n * d.Size()))
				for b.Loop() {
					if err := host.MatMul(backend.Queue{Stream: stream}, c.dst, c.x, c.y); err != nil {
						b.Fatal(err)
					}
					if err := stream.Sync(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
