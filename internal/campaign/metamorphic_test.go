package campaign

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/trace"
)

// A variant runs a history in another way that must not change its results.
type variant struct {
	name    string
	history func([]trace.Command) []trace.Command
	below   func(driver.Device) driver.Device
	above   func(mem.Allocator) mem.Allocator
	before  []trace.Command // on the same allocator; then all is freed, and the cache emptied
	// Which allocators promise the same addresses; the others promise the same requests served, except where only says.
	addresses func(subject string) bool
	only      bool
}

func variants(rng *rand.Rand) []variant {
	// A magazine belongs to a processor, and the scheduler decides which one runs the history.
	steady := func(subject string) bool { return subject != "magazine" }
	ownStreams := func(subject string) bool { // allocators in which each stream's memory is its own
		return strings.HasPrefix(subject, "caching") || strings.HasPrefix(subject, "direct")
	}
	// An empty cache leaves nothing that matters. bfc goes on with larger regions, and paged looks at the work done.
	forgets := func(subject string) bool { return strings.HasPrefix(subject, "caching") }
	return []variant{
		{name: "the same history again", addresses: steady},
		{name: "other names for the streams", addresses: ownStreams, history: func(h []trace.Command) []trace.Command {
			h = slices.Clone(h)
			other := func(s uint32) uint32 { return []uint32{0, 3, 1, 2}[s] }
			for i := range h {
				h[i].Stream = other(h[i].Stream)
				h[i].Used = slices.Clone(h[i].Used)
				for j := range h[i].Used {
					h[i].Used[j] = other(h[i].Used[j])
				}
			}
			return h
		}},
		{name: "a layer below", addresses: steady, below: func(d driver.Device) driver.Device {
			return intercept.Wrap(d, func(_ intercept.Call, next func() error) error { return next() })
		}},
		{name: "layers above", addresses: steady, above: func(a mem.Allocator) mem.Allocator {
			return layer.NewCounter(layer.NewLeakTracker(a, layer.LeakTrackerOptions{}))
		}},
		{name: "after another history", addresses: forgets, only: true, before: compose(rng, 200)},
	}
}

// A result is what a history gave: the address of each request, and figures.
type result struct {
	addresses []driver.Pointer
	figures   string
}

func (v *variant) run(s subject, h []trace.Command, p *part) (res result, err error) {
	var dev driver.Device = fresh()
	if v.below != nil {
		dev = v.below(dev)
	}
	a, err := s.make(dev)
	if err != nil {
		return res, err
	}
	if v.above != nil {
		a = v.above(a)
	}
	r := allocatorRun{dev: dev, a: a, live: map[string]mem.Block{}}
	defer func() {
		err = errors.Join(err, r.close(), dev.Close())
		p.done.Add(r.done)
	}()
	if err := r.open(); err != nil {
		return res, err
	}
	if v.before != nil {
		if err := r.clean(v.before); err != nil {
			return res, err
		}
	}
	if v.history != nil {
		h = v.history(h)
	}
	res.addresses = make([]driver.Pointer, len(h))
	for i := range h {
		if res.addresses[i], err = r.do(&h[i]); err != nil {
			return res, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	stats := r.stats.Stats()
	res.figures = fmt.Sprint(stats.Allocation.All.Current, stats.AllocatedBytes.All.Current, stats.RequestedBytes.All.Current)
	return res, nil
}

// clean runs a history and leaves nothing of it.
func (r *allocatorRun) clean(h []trace.Command) error {
	for i := range h {
		if _, err := r.do(&h[i]); err != nil {
			return err
		}
	}
	for name, b := range r.live {
		r.a.Free(b)
		delete(r.live, name)
	}
	for _, s := range r.streams {
		if _, err := r.do(&trace.Command{Verb: trace.VerbSync, Stream: uint32(s.ID())}); err != nil {
			return err
		}
	}
	_, err := r.do(&trace.Command{Verb: trace.VerbEmptyCache})
	r.stats.ResetPeakStats()
	return err
}

// differs describes what is not as wanted if the history is run in v's way.
func (v *variant) differs(s subject, h []trace.Command, want result, p *part) string {
	got, err := v.run(s, h, p)
	switch {
	case err != nil:
		return err.Error()
	case got.figures != want.figures:
		return fmt.Sprintf("live blocks and bytes %s, want %s", got.figures, want.figures)
	case v.addresses(s.name) && !slices.Equal(got.addresses, want.addresses):
		return fmt.Sprintf("the addresses of the lines are\n%#x\nwant\n%#x", got.addresses, want.addresses)
	}
	return ""
}

// The same history gives the same results however its streams are named, whatever was done before, and with layers above
// and below that change nothing.
func TestMetamorphicRelations(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, p *part) {
		for rng, n := range histories(seed, 16, 4**ops) {
			h, all := compose(rng, n), variants(rng)
			for _, s := range subjects() {
				want, err := (&variant{}).run(s, h, p)
				testkit.Must(t, err)
				for i := range all {
					if v := &all[i]; !v.only || v.addresses(s.name) {
						if d := v.differs(s, h, want, p); d != "" {
							v.report(t, s, h, d, p)
						}
					}
				}
			}
		}
	})
}

// report shrinks a history whose results v changes, and reports it with the difference that it made first: another run
// may go otherwise, since a magazine belongs to a processor.
func (v *variant) report(t *testing.T, s subject, h []trace.Command, first string, p *part) {
	differs := func(h []trace.Command) string {
		want, err := (&variant{}).run(s, h, p)
		if err != nil {
			return err.Error()
		}
		return v.differs(s, h, want, p)
	}
	h = testkit.Shrink(h, func(h []trace.Command) bool { return differs(h) != "" })
	t.Errorf("%s, %s: %s\nshrunk: %s\n%s", s.name, v.name, first, differs(h), script(h))
}
