package paged_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// reserved fails the test unless this much memory is reserved, in granules.
func (r *rig) reserved(want int64, when string) {
	r.t.Helper()
	r.check()
	if got := r.a.PageStats().Reserved; got != want*granule {
		r.t.Errorf("%s: %d granules, want %d", when, got/granule, want)
	}
	if got := r.a.Stats().ReservedBytes.All.Current; got != want*granule {
		r.t.Errorf("%s: the statistics have %d granules, want %d", when, got/granule, want)
	}
}

// each allocates n blocks of a granule.
func (r *rig) each(n int) (blocks []mem.Block) {
	r.t.Helper()
	for range n {
		blocks = append(blocks, r.granules(1))
	}
	return blocks
}

func TestSetLimit(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	live := r.each(12)
	r.free(live[8:]...)
	r.must(r.a.SetLimit(10*granule + 1))
	if got := r.a.Limit(); got != 10*granule {
		t.Errorf("the limit is %d, want %d", got, 10*granule)
	}
	r.reserved(10, "two idle granules are too many")
	r.must(r.a.SetLimit(3 * granule))
	r.reserved(8, "eight are live, of three")
	for n := int64(8); n > 3; n-- {
		e := r.noMemory(errOf(r.a.Alloc(r.s, granule)))
		if e.Allowed != 3*granule || e.Reserved != n*granule || e.Needed != (n+1)*granule {
			t.Errorf("%d granules live: allowed %d, reserved %d, needed %d", n, e.Allowed, e.Reserved, e.Needed)
		}
		r.reserved(n, "after a refusal")
		r.free(live[n-1])
		r.a.Observe(nil) // empties the processor caches
		r.reserved(n-1, "one freed")
	}
	r.noMemory(errOf(r.a.Alloc(r.s, granule)))
	r.free(live[:3]...)
	live = r.each(3)
	r.noMemory(errOf(r.a.Alloc(r.s, granule)))
	r.must(r.a.SetLimit(0))
	if got := r.a.Limit(); got != 0 {
		t.Errorf("the limit is %d, want none", got)
	}
	live = append(live, r.granules(40))
	r.free(live...)
}

func errOf(_ mem.Block, err error) error { return err }

// While queued work keeps pages from being freed, they serve requests within the limit, and none is created.
func TestALowerLimitWithWorkQueued(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	s := r.stream()
	live := make([]mem.Block, 8)
	for i := range live {
		live[i] = r.alloc(s, granule)
		r.busy(s, live[i], 20)
	}
	r.must(r.a.SetLimit(4 * granule))
	for _, b := range live {
		r.a.Free(b, s) // not to a processor cache
	}
	created := r.calls(func() {
		var again []mem.Block
		for {
			b, err := r.a.Alloc(s, granule)
			if err != nil {
				r.noMemory(err)
				break
			}
			r.fill(s, b, 3)
			again = append(again, b)
			r.check()
		}
		if len(again) != 4 {
			t.Errorf("%d blocks of a granule, the limit is 4", len(again))
		}
		r.free(again...)
	}, sim.CallCreate)
	if f := r.a.PageStats(); f.Reserved > 8*granule || created > 0 {
		t.Errorf("%d pages were created beyond the limit: %+v", created, f)
	}
	r.must(r.a.SetLimit(4 * granule)) // waits
	r.reserved(4, "after the work")
}

// Memory that a capturing stream used cannot be waited for; the rest is freed.
func TestALowerLimitInACapture(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	s := r.stream()
	b, others := r.alloc(s, granule), r.each(3)
	r.fill(s, b, 1)
	r.free(b)
	r.free(others...)
	r.must(r.dev.Graphs().Begin(s))
	r.must(r.a.SetLimit(granule))
	r.reserved(1, "a stream captures")
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.must(g.Close())
}

func TestWrongLimits(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 8 * granule})
	for _, bytes := range []int64{-1, math.MinInt64, 1, granule - 1} {
		if err := r.a.SetLimit(bytes); err == nil || !strings.Contains(err.Error(), "limit is") {
			t.Errorf("SetLimit(%d): %v", bytes, err)
		}
	}
	for _, fraction := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		if err := r.a.SetMemoryFraction(fraction); err == nil || !strings.Contains(err.Error(), "fraction") {
			t.Errorf("SetMemoryFraction(%v): %v", fraction, err)
		}
	}
	if l, f := r.a.Limit(), r.a.MemoryFraction(); l != 8*granule || f != 1 {
		t.Errorf("limit %d and fraction %v after errors", l, f)
	}
}

// The lower of the limit and the fraction holds, and each is kept while the other changes.
func TestMemoryFraction(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 40 * granule})
	for _, x := range []struct {
		fraction float64
		limit    int64 // granules
		want     int64 // bytes
	}{
		{1, 40, 40 * granule},
		{0.5, 40, 32 * granule},
		{0.5, 20, 20 * granule},
		{0.5, 0, 32 * granule},
		{0.26, 0, 16 * granule},
		{1, 0, 0},
		{0, 0, 1},
		{0, 8, 1},
		{1, 8, 8 * granule},
	} {
		r.must(r.a.SetMemoryFraction(x.fraction))
		r.must(r.a.SetLimit(x.limit * granule))
		if got := r.a.Limit(); got != x.want || r.a.MemoryFraction() != x.fraction {
			t.Errorf("limit %d, fraction %v: Limit is %d, want %d, and the fraction %v", x.limit*granule, x.fraction, got,
				x.want, r.a.MemoryFraction())
		}
		most := x.want / granule
		if x.want == 0 {
			most = 64
		}
		if most > 0 {
			r.free(r.granules(most))
		}
		e := r.noMemory(errOf(r.a.Alloc(r.s, (most+1)*granule)))
		if e.Allowed != x.want {
			t.Errorf("limit %d, fraction %v: the error has %d allowed", x.limit*granule, x.fraction, e.Allowed)
		}
	}
}

// The settings that an error recommends do help, if the fraction is too low, or the limit too.
func TestRemediesOfAFraction(t *testing.T) {
	for _, limit := range []int64{0, 40, 8} {
		r := simple(t, 64, paged.Config{Limit: limit * granule})
		r.must(r.a.SetMemoryFraction(0.25))
		e := r.noMemory(errOf(r.a.Alloc(r.s, 21*granule)))
		if len(e.Remedies) != 1 || !strings.Contains(e.Remedies[0].Name, "memory fraction of 0.3282") ||
			strings.Contains(e.Remedies[0].Name, "limit=") != (limit == 8) {
			t.Fatalf("remedies %+v", e.Remedies)
		}
		r.must(r.a.SetMemoryFraction(0.3282))
		if limit == 8 {
			r.must(r.a.SetLimit(21 * granule))
		}
		r.free(r.granules(21))
	}
}

// The automatic size of pages follows the limit.
func TestPagesFollowTheLimit(t *testing.T) {
	r := simple(t, 1<<16, paged.Config{Limit: 4000 * granule})
	pages := func() int64 { return r.a.PageStats().Pages }
	low := r.granules(2000)
	if got := pages(); got != 2000 {
		t.Errorf("%d pages under a low limit, want one for each of 2000 granules", got)
	}
	r.must(r.a.SetLimit(0))
	high := r.granules(2000)
	if got := pages(); got > 2000+2000/2 {
		t.Errorf("%d pages more without a limit, for 2000 granules", got-2000)
	}
	r.must(r.a.SetLimit(20000 * granule))
	before := pages()
	higher := r.granules(2000)
	if got := pages() - before; got > 1001 {
		t.Errorf("%d pages under a limit of 20000 granules, want pages of two", got)
	}
	r.free(low, high, higher)
}

// A limit is in force even if the driver fails to free the memory beyond it.
func TestALowerLimitWhenTheDriverFails(t *testing.T) {
	r, f := faulty(t, 64, sim.Options{}, paged.Config{})
	r.free(r.each(8)...)
	f.SetRules(fault.Rule{Kind: intercept.Unmap})
	if err := r.a.SetLimit(4 * granule); err == nil || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("no page can be unmapped, and SetLimit says %v", err)
	}
	r.reserved(8, "nothing was unmapped")
	if got := r.a.Limit(); got != 4*granule {
		t.Errorf("the limit is %d", got)
	}
	f.SetRules(fault.Rule{Kind: intercept.Drop})
	r.must(r.a.SetLimit(4 * granule)) // what is not taken back is tried again
	f.SetRules()
	r.must(r.a.SetLimit(4 * granule))
	if got := r.a.PageStats().Reserved; got > 4*granule {
		t.Errorf("%d granules after all", got/granule)
	}
	live := r.each(4)
	r.noMemory(errOf(r.a.Alloc(r.s, granule)))
	r.free(live...)
}

// In a random history with changing limits, no memory is created beyond the current limit, and a request fails only if
// the limit or the device has no room for it.
func TestLimitsInRandomHistories(t *testing.T) {
	for seed := range uint64(12) {
		c := sim.AtOnce
		if seed%2 == 1 {
			c = sim.OnDemand
		}
		r := newRig(t, 64, sim.Options{Completion: c}, paged.Config{NoAliases: seed%3 == 0}, nil)
		rng := rand.New(rand.NewPCG(seed, 31))
		streams := []driver.Stream{r.s, r.stream()}
		var live []mem.Block
		for range 600 {
			before := r.a.PageStats()
			limit := r.a.Limit()
			switch op := rng.IntN(100); {
			case op < 4:
				r.must(r.a.SetLimit([]int64{0, 4, 12, 30, 50}[rng.IntN(5)] * granule))
				continue
			case op < 6:
				r.must(r.a.SetMemoryFraction([]float64{0.1, 0.5, 1}[rng.IntN(3)]))
				continue
			case op < 55 || len(live) == 0:
				s := streams[rng.IntN(2)]
				b, err := r.a.Alloc(s, 1+rng.Int64N(6*granule))
				if err == nil {
					r.fill(s, b, byte(op))
					live = append(live, b)
				} else {
					r.noMemory(err)
				}
			default:
				i := rng.IntN(len(live))
				r.a.Free(live[i], streams...)
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			}
			after := r.a.PageStats()
			if limit > 0 && after.Reserved > max(limit, before.Reserved) {
				t.Fatalf("seed %d: %d bytes under a limit of %d, %d before", seed, after.Reserved, limit, before.Reserved)
			}
			if limit > 0 && after.Used > max(limit, before.Used) {
				t.Fatalf("seed %d: %d bytes in use under a limit of %d, %d before", seed, after.Used, limit, before.Used)
			}
			r.check()
		}
		r.must(r.a.SetMemoryFraction(1))
		r.must(r.a.SetLimit(0))
		r.free(live...)
	}
}

// A request of the size that CacheInfo or LargestRequest returns succeeds, and a larger one fails.
func TestTheLargestRequest(t *testing.T) {
	for _, x := range []struct{ limit, live, idle, want int64 }{ // granules, of 64
		{0, 10, 6, 54},
		{0, 0, 0, 64},
		{0, 64, 0, 0},
		{40, 10, 6, 30},
		{40, 40, 0, 0},
		{40, 0, 40, 40},
	} {
		r := simple(t, 64, paged.Config{Limit: x.limit * granule})
		var live, idle []mem.Block
		for i := range max(x.live, x.idle) { // in between
			if i < x.live {
				live = append(live, r.granules(1))
			}
			if i < x.idle {
				idle = append(idle, r.granules(1))
			}
		}
		r.free(idle...)
		free, _, err := r.dev.Available()
		r.must(err)
		calls := r.calls(func() {
			if cached, largest := r.a.CacheInfo(); cached != x.idle*granule || largest != min(x.idle, x.want)*granule {
				t.Errorf("%+v: %d bytes cached, for a request of %d", x, cached, largest)
			}
			if got := r.a.LargestRequest(free); got != x.want*granule {
				t.Errorf("%+v: the largest request is %d granules", x, got/granule)
			}
		})
		if calls != 0 {
			t.Errorf("%+v: %d driver calls", x, calls)
		}
		r.noMemory(errOf(r.a.Alloc(r.s, (x.want+1)*granule)))
		if x.want > 0 {
			r.free(r.granules(x.want))
		}
		r.free(live...)
	}
}
