package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/cuda"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/examples/internal/try"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	limits "github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

// A training is a run of a few training steps.
type training struct {
	shape
	enabled   bool
	steps     int
	memory    float64 // share of the peak
	budget    int64   // bytes; 0: the share of the peak
	spill     remat.Spill
	policy    string
	allocator string
	libraries string
}

// trainingFlags defines the flags of -train.
func trainingFlags(flags *flag.FlagSet, t *training) {
	flags.BoolVar(&t.enabled, "train", false, "train a model instead")
	flags.IntVar(&t.steps, "steps", 8, "training steps")
	flags.Float64Var(&t.memory, "memory", 1, "train again with this share of the memory that training takes")
	flags.Int64Var(&t.budget, "budget", 0, "train once, with a budget of so many bytes")
	flags.Int64Var(&t.spill.Limit, "spill", 0, "copy tensors to so many bytes of the host's memory")
	flags.Float64Var(&t.spill.Bandwidth, "link", 0, "bytes per second between the device and the host; 0: measured")
	flags.StringVar(&t.policy, "policy", "", "what to evict: "+strings.Join(remat.Policies(), ", "))
	flags.StringVar(&t.allocator, "allocator", "caching", "allocator, as of mem.Open")
	flags.StringVar(&t.libraries, "cublas", "", "path of cuBLAS, if it is not in a usual place")
	flags.IntVar(&t.layers, "layers", 6, "layers of the model")
	flags.IntVar(&t.width, "width", 64, "width of the model")
	flags.IntVar(&t.heads, "heads", 4, "heads of attention")
	flags.IntVar(&t.hidden, "hidden", 192, "width inside the layers")
	flags.IntVar(&t.vocabulary, "vocabulary", 64, "number of different tokens")
	flags.IntVar(&t.tokens, "tokens", 64, "tokens of a sequence")
	flags.IntVar(&t.batch, "batch", 4, "sequences of a step")
}

// An outcome is the outcome of a training run.
type outcome struct {
	losses []float32
	took   time.Duration // the median step of the second half
	stats  remat.Stats
}

// train trains with all the memory that this takes, and then with less.
func train(ctx context.Context, w io.Writer, o options) (full, less outcome, err error) {
	p, err := o.place()
	if err != nil {
		return full, less, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if o.training.budget > 0 {
		less, err = o.training.run(ctx, w, p, o.training.budget)
		return full, less, err
	}
	if full, err = o.training.run(ctx, w, p, 0); err != nil || o.training.memory >= 1 {
		return full, less, err
	}
	less, err = o.training.run(ctx, w, p, int64(o.training.memory*float64(full.stats.Peak)))
	if err != nil {
		return full, less, err
	}
	fmt.Fprintf(w, "%.2f of the memory, %.2f of the time\n",
		float64(less.stats.Peak)/float64(full.stats.Peak), less.took.Seconds()/full.took.Seconds())
	if !slices.Equal(full.losses, less.losses) {
		return full, less, fmt.Errorf("the losses differ: %v and %v", full.losses, less.losses)
	}
	fmt.Fprintln(w, "the losses are equal")
	return full, less, nil
}

// place opens the device, with a limit of its memory if there is one.
func (o options) place() (*tensor.Place, error) {
	c := compute.Options{Allocator: o.training.allocator}
	if o.training.libraries != "" {
		c.CUDA = cuda.Options{Libraries: []string{o.training.libraries}}
	}
	if o.limit > 0 {
		c.Memory = func(dev driver.Device) driver.Device { return limits.NewLimitedDevice(dev, o.limit, "-limit") }
	}
	return c.Open(o.device)
}

// run trains within a budget. 0 is no budget.
func (t training) run(ctx context.Context, w io.Writer, p *tensor.Place, budget int64) (out outcome, err error) {
	defer try.Catch(&err)
	r, err := remat.New(p, remat.Config{Budget: budget, Policy: t.policy, Spill: t.spill})
	if err != nil {
		return out, err
	}
	m := newModel(r, t.shape, 1)
	defer m.release()
	defer func() { err = errors.Join(err, r.Close()) }()
	rng := rand.New(rand.NewPCG(1, 2))
	var took []time.Duration
	for range t.steps {
		try.Check(ctx.Err())
		start := time.Now()
		try.Check(r.Step(func() (err error) {
			defer try.Catch(&err)
			out.losses = append(out.losses, m.train(rng))
			return nil
		}))
		took = append(took, time.Since(start))
		r.WaitForPlan() // so that the steps that are timed have it
	}
	out.stats = r.Stats()
	took = took[len(took)/2:]
	slices.Sort(took)
	out.took = took[len(took)/2]
	fmt.Fprintf(w, "loss %.4f to %.4f, peak %s of %s, a step %v, of %d operations %d again, %d evictions, %s copied "+
		"back\n", out.losses[0], out.losses[len(out.losses)-1], bytesize.Format(out.stats.Peak),
		cmp.Or(strings.TrimPrefix(bytesize.Format(budget), "0B"), "no budget"), out.took.Round(10*time.Microsecond),
		out.stats.Operations, out.stats.Remade, out.stats.Evictions, bytesize.Format(out.stats.CopiedIn))
	return out, nil
}

// train makes a training step with a new batch, and returns its loss.
func (m *model) train(rng *rand.Rand) float32 {
	s := m.r.Place().Scope()
	defer s.Close()
	x, y := m.draw(rng)
	rows := m.rows()
	loss := m.step(try.Of(tensor.FromSlice(s.Place, x, rows)), try.Of(tensor.FromSlice(s.Place, y, rows)))
	defer drop(loss)
	return try.Of(remat.ToSlice[float32](loss))[0]
}

// draw returns random sequences and the tokens that follow each: nine in ten are a function of the token before.
func (m *model) draw(rng *rand.Rand) (x, y []int64) {
	for range m.batch {
		token := rng.IntN(m.vocabulary)
		for range m.tokens {
			next := (5*token + 3) % m.vocabulary
			if rng.IntN(10) == 0 {
				next = rng.IntN(m.vocabulary)
			}
			x, y = append(x, int64(token)), append(y, int64(next))
			token = next
		}
	}
	return x, y
}
