package host

import (
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
)

// A bench has a backend on a host device, and makes contiguous arrays on it.
type bench struct {
	*testing.B
	dev  driver.Device
	q    backend.Queue
	host *Backend
}

func newBench(b *testing.B, procs int) *bench {
	dev := drivertest.OpenDevice(b, "host")
	s := drivertest.NewStream(b, dev)
	return &bench{b, dev, backend.Queue{Stream: s}, New(dev, Options{Procs: procs})}
}

// array returns memory that has been written to, so that it is there.
func (b *bench) array(d dtype.DType, shape ...int) backend.Array {
	size := int64(d.Size())
	strides := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = int(size) / d.Size()
		size *= int64(shape[i])
	}
	p := drivertest.Alloc(b, b.dev, size)
	bytes, err := b.dev.Visible().Bytes(p, size)
	if err != nil {
		b.Fatal(err)
	}
	a := backend.Array{Ptr: p, Bytes: bytes, DType: d, Shape: shape, Strides: strides}
	if err := b.host.Random(b.q, a, backend.Random{High: 1, HighInt: 100}); err != nil {
		if err := b.host.Fill(b.q, a, dtype.ScalarOf(1)); err != nil {
			b.Fatal(err)
		}
	}
	return a
}

// measure runs f, which moves so many bytes, and waits for it.
func (b *bench) measure(bytes int, f func() error) {
	run := func() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
		if err := b.q.Stream.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	run()
	b.SetBytes(int64(bytes))
	for b.Loop() {
		run()
	}
}

const sixteenM = 16 << 20

func BenchmarkCopy16M(b *testing.B) {
	x := newBench(b, 2)
	dst, src := x.array(dtype.Float32, sixteenM), x.array(dtype.Float32, sixteenM)
	x.measure(2*4*sixteenM, func() error { return x.host.Copy(x.q, dst, src) })
}

// Beside BenchmarkCopy16M: Go's copy alone, cut as the backend cuts it.
func BenchmarkMemmove16M(b *testing.B) {
	x := newBench(b, 2)
	dst, src := x.array(dtype.Float32, sixteenM), x.array(dtype.Float32, sixteenM)
	x.measure(2*4*sixteenM, func() error {
		x.host.parallelRanges(len(dst.Bytes), grainBytes, func(lo, hi int) { copy(dst.Bytes[lo:hi], src.Bytes[lo:hi]) })
		return nil
	})
}

func BenchmarkAdd16M(b *testing.B) {
	x := newBench(b, 2)
	dst, l, r := x.array(dtype.Float32, sixteenM), x.array(dtype.Float32, sixteenM), x.array(dtype.Float32, sixteenM)
	x.measure(3*4*sixteenM, func() error { return x.host.Binary(x.q, backend.Add, dst, l, r) })
}

// What BenchmarkAdd16M takes with loops in Go.
func BenchmarkAdd16MPlain(b *testing.B) {
	x := newBench(b, 2)
	dst, l, r := x.array(dtype.Float32, sixteenM), x.array(dtype.Float32, sixteenM), x.array(dtype.Float32, sixteenM)
	x.measure(3*4*sixteenM, func() error {
		return x.host.elementwise(x.q, "add", binaryLoop(addOf[float32]), 0, dst, l, r)
	})
}

func BenchmarkTranspose4096(b *testing.B) {
	x := newBench(b, 2)
	dst, src := x.array(dtype.Float32, 4096, 4096), x.array(dtype.Float32, 4096, 4096)
	src.Strides = []int{1, 4096}
	x.measure(2*4*sixteenM, func() error { return x.host.Copy(x.q, dst, src) })
}

func BenchmarkFill16M(b *testing.B) {
	x := newBench(b, 2)
	dst := x.array(dtype.Float32, sixteenM)
	x.measure(4*sixteenM, func() error { return x.host.Fill(x.q, dst, dtype.ScalarOf(3)) })
}

func BenchmarkUnary(b *testing.B) {
	for _, op := range []backend.UnaryOp{backend.Relu, backend.Sqrt, backend.Exp, backend.Gelu, backend.Silu} {
		b.Run(op.String(), func(b *testing.B) {
			x := newBench(b, 2)
			dst, src := x.array(dtype.Float32, 1<<20), x.array(dtype.Float32, 1<<20)
			x.measure(8<<20, func() error { return x.host.Unary(x.q, op, dst, src) })
		})
	}
}

func BenchmarkReduce4096(b *testing.B) {
	for name, kept := range map[string]int{"rows": 0, "columns": 1, "all": -1} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, 2)
			shape := []int{1, 1}
			if kept >= 0 {
				shape[kept] = 4096
			}
			dst, src := x.array(dtype.Float32, shape...), x.array(dtype.Float32, 4096, 4096)
			x.measure(4*sixteenM, func() error { return x.host.Reduce(x.q, backend.Sum, dst, src) })
		})
	}
}

func BenchmarkSoftmax4096(b *testing.B) {
	x := newBench(b, 2)
	dst, src := x.array(dtype.Float32, 256, 4096), x.array(dtype.Float32, 256, 4096)
	x.measure(8*256*4096, func() error { return x.host.Softmax(x.q, false, dst, src, 1) })
}

func BenchmarkSort1M(b *testing.B) {
	x := newBench(b, 2)
	dst, src := x.array(dtype.Float32, 1<<20), x.array(dtype.Float32, 1<<20)
	x.measure(8<<20, func() error { return x.host.Sort(x.q, false, &dst, nil, src, 0) })
}

func BenchmarkSmallAdd(b *testing.B) {
	x := newBench(b, 2)
	dst, l, r := x.array(dtype.Float32, 64), x.array(dtype.Float32, 64), x.array(dtype.Float32, 64)
	x.measure(3*4*64, func() error { return x.host.Binary(x.q, backend.Add, dst, l, r) })
}
