package compute_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
)

// idle is a backend that does nothing: what is left is what an operation costs around it.
type idle struct{ backend.Backend }

func (idle) Binary(backend.Queue, backend.BinaryOp, backend.Array, backend.Array, backend.Array) error {
	return nil
}

// BenchmarkAdd is an addition and the release of its result, without the work.
func BenchmarkAdd(b *testing.B) {
	dev := drivertest.OpenDevice(b, "host:total=64MiB")
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		b.Fatal(err)
	}
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: a, Backend: idle{}})
	x := tensor.Must(tensor.Zeros(p, dtype.Float32, 1))
	b.ReportAllocs()
	for b.Loop() {
		y, err := compute.Add(p, x, x)
		if err != nil {
			b.Fatal(err)
		}
		y.Release()
	}
}
