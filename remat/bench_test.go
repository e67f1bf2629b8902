package remat_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

// An operation on resident tensors through a runtime, beside the same operation without one.
func BenchmarkApply(b *testing.B) {
	dev := sim.New(sim.Options{Unchecked: true})
	defer dev.Close()
	p, err := inOrder.On(dev)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	r, err := remat.New(p, remat.Config{Budget: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	t := tensor.Must(tensor.Zeros(r.Place(), dtype.Float32, 8))
	defer t.Release()
	x, err := r.Constant(t)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			y, err := compute.Relu(p, t)
			if err != nil {
				b.Fatal(err)
			}
			y.Release()
		}
	})
	b.Run("remat", func(b *testing.B) {
		for b.Loop() {
			y, err := remat.Apply(r, compute.Relu, x)
			if err != nil {
				b.Fatal(err)
			}
			y.Release()
		}
	})
}
