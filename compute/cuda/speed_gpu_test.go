//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/backendtest"
	"github.com/ashlar-go/ashlar/compute/cuda"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// A track is a backend on a GPU, arrays there, and the device's clock.
type track struct {
	*testing.B
	backendtest.Rig
}

func newTrack(b *testing.B, o cuda.Options) *track {
	rig := openRig(b, o)
	b.Cleanup(func() {
		if err := rig.Backend.Close(); err != nil {
			b.Error(err)
		}
	})
	return &track{b, rig}
}

func (t *track) check(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// random returns an array without gaps, with numbers that are no zeros.
func (t *track) random(d dtype.DType, shape ...int) backend.Array {
	t.Helper()
	a := backend.Array{DType: d, Shape: shape, Strides: make([]int, len(shape))}
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		a.Strides[i] = n
		n *= shape[i]
	}
	block, err := t.Queue.Scratch.Alloc(t.Queue.Stream, int64(n*d.Size()))
	t.check(err)
	t.Cleanup(func() { t.Queue.Scratch.Free(block) })
	a.Ptr = block.Ptr
	r := backend.Random{Distribution: backend.Integers, HighInt: 2, Seed: 1}
	switch {
	case d.IsFloat() && d.Size() > 1:
		r = backend.Random{Distribution: backend.Uniform, Low: -1, High: 1, Seed: 1}
	case d.IsFloat():
		t.check(t.Backend.Fill(t.Queue, a, dtype.ScalarOf(1.5)))
		return a
	case d != dtype.Bool:
		r.HighInt = 100
	}
	t.check(t.Backend.Random(t.Queue, a, r))
	return a
}

// measure runs op b.N times and reports how much it does in a second of the device's time: work in units of 1e9.
func (t *track) measure(work float64, unit string, op func() error) {
	t.Helper()
	for range 3 {
		t.check(op())
	}
	timing := t.Device.Timing()
	t.check(t.Queue.Stream.Sync(context.Background()))
	from, err := timing.Stamp(t.Queue.Stream)
	t.check(err)
	t.ResetTimer()
	for range t.N {
		t.check(op())
	}
	to, err := timing.Stamp(t.Queue.Stream)
	t.check(err)
	t.StopTimer()
	t.check(t.Queue.Stream.Sync(context.Background()))
	took, err := timing.Elapsed(from, to)
	t.check(err)
	t.check(timing.Discard(from))
	t.check(timing.Discard(to))
	t.ReportMetric(work*float64(t.N)/took.Seconds()/1e9, unit)
	t.ReportMetric(0, "ns/op")
}

const gib = 1 << 30

// BenchmarkGPUBandwidth counts bytes read and written.
func BenchmarkGPUBandwidth(b *testing.B) {
	const rows = 1 << 14
	of := func(d dtype.DType) []int { return []int{rows, gib / rows / d.Size()} }
	run := func(name string, setup func(t *track) (bytes int, op func() error)) {
		b.Run(name, func(b *testing.B) {
			t := newTrack(b, cuda.Options{NoLibrary: true})
			bytes, op := setup(t)
			t.measure(float64(bytes), "GB/s", op)
		})
	}
	run("device copy", func(t *track) (int, func() error) {
		x, y := t.random(dtype.Float32, gib/4), t.random(dtype.Float32, gib/4)
		return 2 * gib, func() error { return t.Queue.Stream.Copy(y.Ptr, x.Ptr, gib) }
	})
	unary := func(op backend.UnaryOp, d dtype.DType) {
		run(op.String()+" "+d.String(), func(t *track) (int, func() error) {
			to, bytes := d, 2*gib
			if op.Predicate() {
				to, bytes = dtype.Bool, gib+gib/d.Size()
			}
			x, y := t.random(d, of(d)...), t.random(to, of(d)...)
			return bytes, func() error { return t.Backend.Unary(t.Queue, op, y, x) }
		})
	}
	unary(backend.Relu, dtype.Float32)
	unary(backend.Relu, dtype.Float16)
	unary(backend.Relu, dtype.BFloat16)
	unary(backend.Neg, dtype.Int8)
	unary(backend.Neg, dtype.Int64)
	unary(backend.Sqrt, dtype.Float32)
	unary(backend.Exp, dtype.Float32)
	unary(backend.Exp, dtype.BFloat16)
	unary(backend.Sin, dtype.Float32)
	unary(backend.Tanh, dtype.Float32)
	unary(backend.Gelu, dtype.Float32)
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		for _, op := range []backend.UnaryOp{
			backend.Gelu, backend.GeluTanh, backend.Tanh, backend.Silu, backend.Sigmoid, backend.Erf,
		} {
			unary(op, d)
		}
	}
	unary(backend.Exp, dtype.Float64)
	unary(backend.IsNaN, dtype.Float32)
	binary := func(op backend.BinaryOp, d dtype.DType) {
		run(op.String()+" "+d.String(), func(t *track) (int, func() error) {
			to, bytes := d, 3*gib
			if op.Predicate() {
				to, bytes = dtype.Bool, 2*gib+gib/d.Size()
			}
			x, y, z := t.random(d, of(d)...), t.random(d, of(d)...), t.random(to, of(d)...)
			return bytes, func() error { return t.Backend.Binary(t.Queue, op, z, x, y) }
		})
	}
	binary(backend.Add, dtype.Float32)
	binary(backend.Add, dtype.BFloat16)
	binary(backend.Add, dtype.Uint8)
	binary(backend.Mul, dtype.Float64)
	binary(backend.Div, dtype.Float32)
	binary(backend.Pow, dtype.Float32)
	binary(backend.Less, dtype.Float32)
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		run("add row "+d.String(), func(t *track) (int, func() error) {
			x, z, y := t.random(d, of(d)...), t.random(d, of(d)...), t.random(d, of(d)[1])
			y.Shape, y.Strides = x.Shape, []int{0, 1}
			return 2 * gib, func() error { return t.Backend.Binary(t.Queue, backend.Add, z, x, y) }
		})
		run("mul column "+d.String(), func(t *track) (int, func() error) {
			x, z, y := t.random(d, of(d)...), t.random(d, of(d)...), t.random(d, rows)
			y.Shape, y.Strides = x.Shape, []int{1, 0}
			return 2 * gib, func() error { return t.Backend.Binary(t.Queue, backend.Mul, z, x, y) }
		})
		run("mul scalar in place "+d.String(), func(t *track) (int, func() error) {
			x, y := t.random(d, of(d)...), t.random(d, 1)
			y.Shape, y.Strides = x.Shape, []int{0, 0}
			return 2 * gib, func() error { return t.Backend.Binary(t.Queue, backend.Mul, x, x, y) }
		})
		run("where "+d.String(), func(t *track) (int, func() error) {
			x, y, z, c := t.random(d, of(d)...), t.random(d, of(d)...), t.random(d, of(d)...), t.random(dtype.Bool, of(d)...)
			return 3*gib + gib/d.Size(), func() error { return t.Backend.Where(t.Queue, z, c, x, y) }
		})
		run("fill "+d.String(), func(t *track) (int, func() error) {
			x := t.random(d, of(d)...)
			return gib, func() error { return t.Backend.Fill(t.Queue, x, dtype.ScalarOf(1.5)) }
		})
	}
	for _, pair := range [][2]dtype.DType{
		{dtype.Float32, dtype.BFloat16},
		{dtype.BFloat16, dtype.Float32},
		{dtype.Float32, dtype.Int32},
		{dtype.Uint8, dtype.Float32},
		{dtype.Float32, dtype.Float8E4M3FN},
		{dtype.Float8E4M3FN, dtype.BFloat16},
		{dtype.Int64, dtype.Float32},
		{dtype.Float64, dtype.Float32},
		{dtype.Float16, dtype.BFloat16},
		{dtype.Uint8, dtype.Bool},
	} {
		run("cast "+pair[0].String()+" to "+pair[1].String(), func(t *track) (int, func() error) {
			n := gib / max(pair[0].Size(), pair[1].Size())
			x, y := t.random(pair[0], n), t.random(pair[1], n)
			return n * (pair[0].Size() + pair[1].Size()), func() error { return t.Backend.Copy(t.Queue, y, x) }
		})
	}
	for _, d := range []dtype.DType{dtype.Uint8, dtype.BFloat16, dtype.Float32, dtype.Float64, dtype.Complex128} {
		run("transpose "+d.String(), func(t *track) (int, func() error) {
			if d == dtype.Complex128 {
				x, y := t.random(dtype.Float64, rows, gib/rows/8), t.random(dtype.Float64, gib/rows/16, 2*rows)
				x.DType, y.DType, x.Shape, y.Shape = d, d, []int{rows, gib / rows / 16}, []int{rows, gib / rows / 16}
				x.Strides, y.Strides = []int{gib / rows / 16, 1}, []int{1, rows}
				return 2 * gib, func() error { return t.Backend.Copy(t.Queue, y, x) }
			}
			x, y := t.random(d, of(d)...), t.random(d, of(d)...)
			y.Strides = []int{1, rows}
			return 2 * gib, func() error { return t.Backend.Copy(t.Queue, y, x) }
		})
	}
	for _, d := range []dtype.DType{dtype.Uint8, dtype.Float32} {
		run("slice of columns "+d.String(), func(t *track) (int, func() error) {
			x := t.random(d, of(d)...)
			x.Shape = []int{rows, of(d)[1] - 37}
			y := t.random(d, x.Shape...)
			return 2 * x.Shape[0] * x.Shape[1] * d.Size(), func() error { return t.Backend.Copy(t.Queue, y, x) }
		})
	}
	run("add transposed float32", func(t *track) (int, func() error) {
		x, y, z := t.random(dtype.Float32, rows, rows), t.random(dtype.Float32, rows, rows), t.random(dtype.Float32, rows, rows)
		y.Strides = []int{1, rows}
		return 3 * gib, func() error { return t.Backend.Binary(t.Queue, backend.Add, z, x, y) }
	})
	for _, r := range []struct {
		name string
		d    backend.Distribution
	}{{"uniform", backend.Uniform}, {"normal", backend.Normal}} {
		run(r.name+" float32", func(t *track) (int, func() error) {
			x := t.random(dtype.Float32, gib/4)
			return gib, func() error {
				return t.Backend.Random(t.Queue, x, backend.Random{Distribution: r.d, High: 1, Seed: 7})
			}
		})
	}
	run("arange float32", func(t *track) (int, func() error) {
		x := t.random(dtype.Float32, gib/4)
		return gib, func() error { return t.Backend.Arange(t.Queue, x, dtype.ScalarOf(0), dtype.ScalarOf(0.5)) }
	})
}

// BenchmarkGPUMatMul counts a multiplication and an addition as two.
func BenchmarkGPUMatMul(b *testing.B) {
	run := func(name string, o cuda.Options, d dtype.DType, batch, m, n, k int, transposed bool) {
		b.Run(name, func(b *testing.B) {
			t := newTrack(b, o)
			x, y, z := t.random(d, batch, m, k), t.random(d, batch, k, n), t.random(d, batch, m, n)
			if transposed {
				y.Strides = []int{k * n, 1, k}
			}
			t.measure(2*float64(batch)*float64(m)*float64(n)*float64(k), "GFLOP/s", func() error { return t.Backend.MatMul(t.Queue, z, x, y) })
		})
	}
	own := cuda.Options{NoLibrary: true}
	run("bfloat16 8192", options(), dtype.BFloat16, 1, 8192, 8192, 8192, false)
	run("bfloat16 8192 transposed", options(), dtype.BFloat16, 1, 8192, 8192, 8192, true)
	run("bfloat16 8 x 2048", options(), dtype.BFloat16, 8, 2048, 2048, 2048, false)
	run("float16 8192", options(), dtype.Float16, 1, 8192, 8192, 8192, false)
	run("float32 8192", options(), dtype.Float32, 1, 8192, 8192, 8192, false)
	run("float64 4096", options(), dtype.Float64, 1, 4096, 4096, 4096, false)
	run("own float32 4096", own, dtype.Float32, 1, 4096, 4096, 4096, false)
	run("own float32 4096 transposed", own, dtype.Float32, 1, 4096, 4096, 4096, true)
	run("own bfloat16 4096", own, dtype.BFloat16, 1, 4096, 4096, 4096, false)
	run("own int8 4096", own, dtype.Int8, 1, 4096, 4096, 4096, false)
	run("own int64 2048", own, dtype.Int64, 1, 2048, 2048, 2048, false)
	run("own float64 2048", own, dtype.Float64, 1, 2048, 2048, 2048, false)
}

// BenchmarkGPUOverhead is the host's time for a launch: run it with fewer than a thousand iterations, which is how many
// launches a stream takes before the host has to wait.
func BenchmarkGPUOverhead(b *testing.B) {
	run := func(name string, o cuda.Options, setup func(t *track) func() error) {
		b.Run(name, func(b *testing.B) {
			t := newTrack(b, o)
			op := setup(t)
			for range 20 {
				t.check(op())
			}
			t.check(t.Queue.Stream.Sync(context.Background()))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := op(); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			t.check(t.Queue.Stream.Sync(context.Background()))
		})
	}
	run("driver launch", cuda.Options{}, func(t *track) func() error {
		k := t.Device.Kernels()
		m, err := k.Load([]byte(emptyPTX))
		t.check(err)
		f, err := m.Function("empty")
		t.check(err)
		return func() error { return k.Launch(t.Queue.Stream, driver.Kernel{Name: "empty", Code: f}) }
	})
	run("add", cuda.Options{}, func(t *track) func() error {
		x := t.random(dtype.Float32, 32, 32)
		return func() error { return t.Backend.Binary(t.Queue, backend.Add, x, x, x) }
	})
	run("add of strided", cuda.Options{}, func(t *track) func() error {
		x, y := t.random(dtype.Float32, 4, 6, 8, 10), t.random(dtype.Float32, 10, 8, 6, 4)
		y.Shape, y.Strides = x.Shape, []int{1, 4, 24, 192}
		return func() error { return t.Backend.Binary(t.Queue, backend.Add, x, x, y) }
	})
	run("cast", cuda.Options{}, func(t *track) func() error {
		x, y := t.random(dtype.Float32, 32, 32), t.random(dtype.BFloat16, 32, 32)
		return func() error { return t.Backend.Copy(t.Queue, y, x) }
	})
	run("matmul", options(), func(t *track) func() error {
		x := t.random(dtype.BFloat16, 64, 64)
		y, z := t.random(dtype.BFloat16, 64, 64), t.random(dtype.BFloat16, 64, 64)
		return func() error { return t.Backend.MatMul(t.Queue, z, x, y) }
	})
	run("matmul of our own", cuda.Options{NoLibrary: true}, func(t *track) func() error {
		x := t.random(dtype.BFloat16, 64, 64)
		y, z := t.random(dtype.BFloat16, 64, 64), t.random(dtype.BFloat16, 64, 64)
		return func() error { return t.Backend.MatMul(t.Queue, z, x, y) }
	})
}

const emptyPTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n"

// BenchmarkGPUFirst is the time of an operation that loads its module. The driver keeps what it compiled on disk: with
// CUDA_CACHE_DISABLE=1 in the environment it compiles each time.
func BenchmarkGPUFirst(b *testing.B) {
	run := func(name string, d dtype.DType, op func(t *track, x backend.Array) error) {
		b.Run(name+" "+d.String(), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				t := newTrack(b, cuda.Options{NoLibrary: true})
				x := t.random(d, 8, 8)
				t.check(t.Queue.Stream.Sync(context.Background()))
				b.StartTimer()
				t.check(op(t, x))
			}
		})
	}
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float64, dtype.Int32, dtype.Int8} {
		run("unary", d, func(t *track, x backend.Array) error { return t.Backend.Unary(t.Queue, backend.Neg, x, x) })
		run("binary", d, func(t *track, x backend.Array) error { return t.Backend.Binary(t.Queue, backend.Add, x, x, x) })
		run("convert", d, func(t *track, x backend.Array) error {
			return t.Backend.Copy(t.Queue, t.random(dtype.Uint16, 8, 8), x)
		})
		run("matmul", d, func(t *track, x backend.Array) error {
			return t.Backend.MatMul(t.Queue, t.random(d, 8, 8), x, x)
		})
	}
	run("fill", dtype.Float32, func(t *track, x backend.Array) error { return t.Backend.Fill(t.Queue, x, dtype.ScalarOf(1)) })
}
