package main

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

// In half of the memory the losses are the same numbers.
func TestTrainsInHalfItsMemory(t *testing.T) { trainsInHalf(t, "host", "-layers 4 -steps 4") }

// With copies to the host it makes fewer tensors again.
func TestTrainsWithCopies(t *testing.T) {
	trainsInHalf(t, "host", "-layers 4 -steps 4 -spill 16777216 -link 1e12")
}

func trainsInHalf(t *testing.T, device, args string) {
	t.Helper()
	full, less, err := train(t.Context(), t.Output(), with(t, "-train -memory 0.5 -device "+device+" "+args))
	if err != nil {
		t.Fatal(err)
	}
	if less.stats.Remade+less.stats.CopiedIn == 0 || 2*less.stats.Peak > full.stats.Peak {
		t.Errorf("in half of the memory: %+v; in all: %+v", less.stats, full.stats)
	}
	first, last := full.losses[0], full.losses[len(full.losses)-1]
	if !(last < first-0.1) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
}

// Without a budget, training makes do with the device that there is. One that is too small is an error.
func TestTrainsOnASmallDevice(t *testing.T) {
	const args = "-train -layers 4 -steps 2 "
	want, _, err := train(t.Context(), io.Discard, with(t, args))
	if err != nil {
		t.Fatal(err)
	}
	for _, allocator := range []string{"caching", "paged", "arena:size=6MiB"} {
		got, _, err := train(t.Context(), io.Discard, with(t, args+"-limit 6291456 -allocator "+allocator))
		if err != nil || got.stats.Remade == 0 || !slices.Equal(got.losses, want.losses) {
			t.Errorf("%s: losses %v, want %v, with %+v; %v", allocator, got.losses, want.losses, got.stats, err)
		}
	}
	if _, _, err := train(t.Context(), io.Discard, with(t, args+"-limit 2097152")); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v, want one that matches mem.ErrNoMemory", err)
	}
}

// The gradients are those of the loss: its change along each, by finite differences.
func TestGradients(t *testing.T) {
	p := try.Of(compute.Options{Host: host.Options{NoBLAS: true}}.Open("host"))
	defer p.Close()
	s := shape{
		layers: 2, width: 16, heads: 2, hidden: 24, vocabulary: 8, tokens: 6, batch: 2, dtype: dtype.Float64,
	}
	// One step gives the velocities, which are the gradients.
	var norms []float64
	gradients := map[int][]float64{}
	lossOf(t, p, s, nil, func(parameters []parameter) {
		for i, x := range parameters {
			gradients[i] = try.Of(remat.ToSlice[float64](x.velocity))
			norm := 0.0
			for _, g := range gradients[i] {
				norm += g * g
			}
			norms = append(norms, math.Sqrt(norm))
		}
	})
	const by = 0.01
	for i, norm := range norms {
		move := func(sign float64) func([]parameter) {
			return func(parameters []parameter) {
				direction := gradients[i]
				scaled := make([]float64, len(direction))
				for j, g := range direction {
					scaled[j] = sign * by * g / norm
				}
				shift(parameters[i].weight, scaled)
			}
		}
		up, down := lossOf(t, p, s, move(1), nil), lossOf(t, p, s, move(-1), nil)
		if got := (up - down) / (2 * by); math.Abs(got-norm) > 0.01*norm+1e-4 {
			t.Errorf("parameter %d: the loss changes by %.5f along its gradient of norm %.5f", i, got, norm)
		}
	}
}

// shift adds numbers to a constant.
func shift(x *remat.Tensor, by []float64) {
	w := try.Of(x.Lock())
	defer x.Unlock()
	d := try.Of(tensor.FromSlice(w.Place(), by, w.Shape()...))
	defer d.Release()
	try.Check(compute.BinaryInto(nil, w, backend.Add, w, d))
}

// lossOf returns the loss of a new model, changed by before. After the step it calls after with the parameters.
func lossOf(t *testing.T, p *tensor.Place, s shape, before, after func([]parameter)) float64 {
	t.Helper()
	r := try.Of(remat.New(p, remat.Config{}))
	m := newModel(r, s, 3)
	defer m.release()
	defer r.Close()
	all := []parameter{m.embedding, m.norm, m.output}
	for _, l := range m.layers {
		all = append(all, l.attentionNorm, l.mlpNorm, l.q, l.k, l.v, l.out, l.gate, l.up, l.down)
	}
	if before != nil {
		before(all)
	}
	loss := m.train(rand.New(rand.NewPCG(5, 6)))
	if after != nil {
		after(all)
	}
	return float64(loss)
}
