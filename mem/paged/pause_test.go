package paged_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// written are blocks, the first full of byte 1, the second of byte 2, and so on.
type written []mem.Block

// write allocates blocks of these sizes on streams in turn, and fills them.
func (r *rig) write(streams []driver.Stream, sizes ...int64) (all written) {
	r.t.Helper()
	return r.writeTo(r.a, streams, sizes...)
}

// writeTo is write of blocks of an allocator or a pool.
func (r *rig) writeTo(a mem.Allocator, streams []driver.Stream, sizes ...int64) (all written) {
	r.t.Helper()
	for i, size := range sizes {
		s := streams[i%len(streams)]
		b, err := a.Alloc(s, size)
		r.must(err)
		r.fill(s, b, byte(i+1))
		all = append(all, b)
	}
	return all
}

// holdAll checks the contents of blocks that are not the zero Block.
func (r *rig) holdAll(all written) {
	r.t.Helper()
	for i, b := range all {
		if b != (mem.Block{}) {
			r.holds(r.s, b, byte(i+1))
		}
	}
}

// held returns the bytes that the device has allocated.
func (r *rig) held() int64 {
	r.t.Helper()
	free, total, err := r.sim.Available()
	r.must(err)
	return total - free
}

// asPaused checks that a paused allocator holds nothing of the device.
func (r *rig) asPaused() {
	r.t.Helper()
	r.check()
	if held := r.held(); held != 0 {
		r.t.Errorf("paused, the device has still allocated %d bytes", held)
	}
	if s := r.a.PageStats(); s.Reserved != 0 || s.Used != 0 || r.a.Stats().ReservedBytes.All.Current != 0 {
		r.t.Errorf("paused: %+v", s)
	}
	if b, err := r.a.Alloc(r.s, 1); !errors.Is(err, paged.ErrPaused) {
		r.t.Errorf("a request for paused memory: %+v, error %v", b, err)
	}
}

// sizesOfAllKinds are sizes below, at and above slots, slabs, granules and pages.
var sizesOfAllKinds = []int64{
	1, 512, 513, 4 << 10, 4<<10 + 1, 60 << 10, granule - 512, granule, granule + 1, 2 * granule, 3*granule - 5,
	4 * granule, 7*granule + 512, 16 * granule,
}

// Pause gives all memory back. After Resume every block is at its address with its contents, whatever its size, on
// whichever stream, with pages of all sizes and after frees between the blocks.
func TestPausedContentsComeBack(t *testing.T) {
	for name, cfg := range map[string]paged.Config{
		"defaults": {}, "large pages": {Page: 8 * granule}, "limit": {Limit: 64 * granule},
		"no aliases": {NoAliases: true}, "regions": {Addresses: 20 * granule}, "none kept": {Keep: paged.KeepNone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 256, sim.Options{Completion: sim.OnDemand, Seed: 7}, cfg, nil)
			all := r.write([]driver.Stream{r.s, r.stream(), r.stream()}, sizesOfAllKinds...)
			for round := range 3 {
				r.must(r.a.EmptyCache())
				before := r.a.PageStats()
				r.must(r.a.Pause(paged.PauseOptions{}))
				r.asPaused()
				if s := r.a.PageStats(); s.Paused != before.Used || s.Host != before.Used {
					t.Errorf("before: %+v, paused: %+v", before, s)
				}
				r.must(r.a.Resume())
				r.check()
				r.holdAll(all)
				if s := r.a.PageStats(); s.Used != before.Used || s.Paused != 0 || s.Host != 0 {
					t.Errorf("before: %+v, resumed: %+v", before, s)
				}
				i := 3 + round*2
				r.free(all[i]) // leaves idle pages for the next Pause
				all[i] = mem.Block{}
			}
			r.free(all...)
		})
	}
}

// The contents of blocks may fill several blocks of host memory.
func TestPausedContentsBeyondOneHostBlock(t *testing.T) {
	dev := sim.New(sim.Options{Total: 256 << 20})
	a, err := paged.New(dev, paged.Config{})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	r := &rig{t: t, sim: dev, dev: dev, a: a, s: dev.DefaultStream()}
	defer r.finish()
	all := r.write([]driver.Stream{r.s}, 50<<20, 70<<20, 30<<20-512)
	r.must(a.Pause(paged.PauseOptions{}))
	r.asPaused()
	r.must(a.Resume())
	r.holdAll(all)
	r.free(all...)
}

// Resume maps large pages first: that takes less time than the copies, which therefore queue up.
func TestResumeBeginsWithLargePages(t *testing.T) {
	r := simple(t, 2048, paged.Config{})
	all := r.write([]driver.Stream{r.s}, 400*granule, 600*granule) // pages grow with the memory in use
	r.must(r.a.Pause(paged.PauseOptions{}))
	var sizes []int64
	r.a.Observe(func(e mem.Event) {
		if e.Action == mem.ActionSegmentMap {
			sizes = append(sizes, e.Size)
		}
	})
	r.must(r.a.Resume())
	r.a.Observe(nil)
	if n := len(sizes); n == 0 || sizes[0] == granule || sizes[n-1] != granule {
		t.Errorf("pages were mapped in the order of sizes %d", sizes)
	}
	r.holdAll(all)
	r.free(all...)
}

// With Discard no host memory is used, and addresses stay.
func TestDiscardUsesNoHostMemory(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	b := r.granules(5)
	n := r.calls(func() { r.must(r.a.Pause(paged.PauseOptions{Discard: true})) }, sim.CallAllocHost, sim.CallRegister,
		sim.CallCopyOutAsync)
	if n != 0 {
		t.Errorf("%d calls for host memory", n)
	}
	r.asPaused()
	r.must(r.a.Resume())
	r.fill(r.s, b, 9)
	r.holds(r.s, b, 9)
	r.free(b)
}

// Pause waits for queued work on the streams that the allocator knows and on those that are named.
func TestPauseWaitsForUsers(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	s, named := r.stream(), r.stream()
	b, c := r.alloc(s, 3*granule), r.alloc(r.s, granule)
	r.busy(s, b, 5)
	r.busy(named, c, 5) // sim reports memory that is unmapped below queued work
	r.must(r.a.Pause(paged.PauseOptions{Used: []driver.Stream{named}}))
	r.must(r.a.Resume())
	r.holds(r.s, b, 77)
	r.holds(r.s, c, 77)
	r.free(b, c)
}

// A captured graph is valid again after Resume: its addresses are the same.
func TestGraphsAreValidAfterResume(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	s := r.stream()
	from, to := r.alloc(s, 2*granule), r.alloc(s, 2*granule)
	r.fill(s, from, 3)
	r.must(r.dev.Graphs().Begin(s))
	r.must(s.Copy(to.Ptr, from.Ptr, to.Size))
	if err := r.a.Pause(paged.PauseOptions{}); !errors.Is(err, driver.ErrCapturing) || r.a.Paused() {
		t.Errorf("Pause during a capture: %v", err)
	}
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.must(r.a.Pause(paged.PauseOptions{}))
	r.must(r.a.Resume())
	r.must(g.Launch(s))
	r.holds(s, to, 3)
	r.must(g.Close())
	r.free(from, to)
}

// Blocks may be freed while they are paused. Only the others come back.
func TestFreeOfPausedBlocks(t *testing.T) {
	r := simple(t, 256, paged.Config{Page: 4 * granule})
	all := r.write([]driver.Stream{r.s}, sizesOfAllKinds...)
	r.must(r.a.Pause(paged.PauseOptions{}))
	for i := range all {
		if i%3 != 0 {
			r.free(all[i])
			all[i] = mem.Block{}
			r.check()
		}
	}
	r.asPaused()
	paused := r.a.PageStats().Paused
	r.must(r.a.Resume())
	if s := r.a.PageStats(); s.Used != paused || s.Reserved != paused {
		t.Errorf("%d bytes were paused at the end, and came back as %+v", paused, s)
	}
	r.holdAll(all)
	again := r.write([]driver.Stream{r.s}, sizesOfAllKinds...)
	r.holdAll(again)
	r.free(append(all, again...)...)
}

// Close of a paused allocator is an error while blocks are live, and then frees the host memory.
func TestCloseWhilePaused(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	b := r.granules(5)
	r.must(r.a.Pause(paged.PauseOptions{}))
	if err := r.a.Close(); err == nil {
		t.Error("Close with a live block: no error")
	}
	r.free(b)
	r.must(r.a.Close())
	if l := r.sim.Leaks(); !l.Empty() {
		t.Errorf("after Close the device has %v", l)
	}
	if err := r.a.Pause(paged.PauseOptions{}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Pause of a closed allocator: %v", err)
	}
}

// If other programs took the memory, Resume says so, and can be repeated.
func TestResumeWithoutMemory(t *testing.T) {
	for name, discard := range map[string]bool{"host": false, "discard": true} {
		t.Run(name, func(t *testing.T) {
			r := simple(t, 64, paged.Config{Page: 2 * granule})
			all := r.write([]driver.Stream{r.s}, sizesOfAllKinds...)
			r.must(r.a.Pause(paged.PauseOptions{Discard: discard}))
			other, err := r.sim.Alloc(40 * granule)
			r.must(err)
			held := r.held()
			oom := r.noMemory(r.a.Resume())
			if want := r.a.PageStats().Paused; oom.Requested != want || oom.Segment != want {
				t.Errorf("the error is of %d bytes, %d of them missing; paused are %d", oom.Requested, oom.Segment, want)
			}
			if got := r.held(); got != held {
				t.Errorf("%d bytes were allocated, after the failure %d", held, got)
			}
			r.check()
			r.must(r.sim.Free(other))
			r.must(r.a.SetLimit(10 * granule))
			r.noMemory(r.a.Resume())
			r.must(r.a.SetLimit(0))
			r.must(r.a.Resume())
			if !discard {
				r.holdAll(all)
			}
			r.free(all...)
		})
	}
}

// Without enough host memory, or with a limit of it, Pause fails and changes nothing.
func TestPauseWithoutHostMemory(t *testing.T) {
	for name, o := range map[string]paged.PauseOptions{"device": {}, "limit": {HostLimit: granule}} {
		t.Run(name, func(t *testing.T) {
			pinnable := int64(3 * granule)
			if o.HostLimit > 0 {
				pinnable = 0
			}
			r := newRig(t, 64, sim.Options{Pinned: pinnable}, paged.Config{}, nil)
			all := r.write([]driver.Stream{r.s}, 4*granule, 100)
			if err := r.a.Pause(o); !errors.Is(err, mem.ErrNoMemory) && !errors.Is(err, driver.ErrNoMemory) {
				t.Errorf("Pause: %v", err)
			}
			if r.a.Paused() || r.a.PageStats().Host != 0 {
				t.Errorf("%+v", r.a.PageStats())
			}
			r.check()
			r.holdAll(all)
			r.free(r.granules(1))
			r.free(all...)
		})
	}
}

// A caller's allocator of host memory keeps it from one Pause to the next.
func TestHostMemoryIsUsedAgain(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	host, err := pinned.New(r.dev, pinned.Config{})
	r.must(err)
	all := r.write([]driver.Stream{r.s}, sizesOfAllKinds[:8]...)
	for round := range 5 {
		n := r.calls(func() {
			r.must(r.a.Pause(paged.PauseOptions{Host: host}))
			r.must(r.a.Resume())
		}, sim.CallAllocHost, sim.CallFreeHost, sim.CallRegister, sim.CallUnregister)
		if want := int64(0); round > 0 && n != want {
			t.Errorf("round %d: %d calls for host memory", round, n)
		}
		r.holdAll(all)
	}
	r.must(host.Close())
	r.free(all...)
}

// A hundred rounds leave what one leaves.
func TestPausesDoNotLeak(t *testing.T) {
	r := simple(t, 256, paged.Config{})
	all := r.write([]driver.Stream{r.s, r.stream()}, sizesOfAllKinds...)
	var first, last paged.PageStats
	for round := range 100 {
		r.must(r.a.Pause(paged.PauseOptions{Discard: round%10 == 9}))
		r.must(r.a.Resume())
		if round%10 == 9 {
			for i, b := range all {
				r.fill(r.s, b, byte(i+1))
			}
		}
		if last = r.a.PageStats(); round == 0 {
			first = last
		}
	}
	r.holdAll(all)
	if first != last {
		t.Errorf("after the first round %+v, after the last %+v", first, last)
	}
	r.free(all...)
}

// Requests, frees and reports of other goroutines go on while the allocator is paused and resumed again and again.
func TestPauseAmongOtherCalls(t *testing.T) {
	r := simple(t, 512, paged.Config{})
	kept := r.write([]driver.Stream{r.s}, sizesOfAllKinds...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		s := r.stream()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, 2))
			var mine []mem.Block
			for n := 0; ; n++ {
				select {
				case <-done:
					r.free(mine...)
					return
				default:
				}
				b, err := r.a.Alloc(s, sizesOfAllKinds[rng.IntN(9)])
				if err != nil && !errors.Is(err, paged.ErrPaused) {
					t.Error(err)
				}
				if mine = append(mine, b); len(mine) > 8 || err != nil {
					r.free(mine...)
					mine = nil
				}
				if n%50 == 0 {
					_ = r.a.Stats()
					_ = r.a.PageStats()
					_ = r.a.Snapshot()
				}
			}
		})
	}
	for range 30 {
		r.must(r.a.Pause(paged.PauseOptions{}))
		r.must(r.a.Resume())
	}
	close(done)
	wg.Wait()
	r.check()
	r.holdAll(kept)
	r.free(kept...)
}

// Every driver call of Pause and Resume fails in turn, alone or with all later ones. Contents are never lost, and once
// the device works again the allocator can be resumed and paused.
func TestEveryCallOfPauseFails(t *testing.T) {
	for _, rule := range []fault.Rule{{}, {Onwards: true}, {Code: driver.ErrNoMemory}, {Code: driver.ErrInvalid, Onwards: true}} {
		for _, during := range []string{"Pause", "Resume"} {
			for _, pool := range []bool{false, true} {
				for rule.Nth = 1; failPause(t, during, rule, pool); rule.Nth++ {
					if t.Failed() {
						return
					}
				}
				t.Logf("%+v, pool %v: %d calls of %s failed", rule, pool, rule.Nth-1, during)
				if rule.Nth < 10 {
					t.Errorf("only %d calls of %s", rule.Nth-1, during)
				}
			}
		}
	}
}

// A sleeper is an allocator or a pool.
type sleeper interface {
	mem.Allocator
	Pause(paged.PauseOptions) error
	Resume() error
	Paused() bool
}

// failPause makes a call of Pause or Resume fail, and reports whether there is such a call.
func failPause(t *testing.T, during string, rule fault.Rule, pool bool) bool {
	r, f := faulty(t, 64, sim.Options{Completion: sim.OnDemand, Seed: 5}, paged.Config{Page: 4 * granule})
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("call %d of %s fails, %+v: %s", rule.Nth, during, rule, fmt.Sprintf(format, args...))
	}
	a, others := sleeper(r.a), written(nil)
	streams := []driver.Stream{r.s, r.stream()}
	if pool {
		others = r.write(streams, 2*granule, 100)
		a = r.a.NewPool(paged.PoolOptions{})
	}
	rest := r.held()
	all := r.writeTo(a, streams, sizesOfAllKinds...)
	r.free(all[12])
	all[12] = mem.Block{}
	r.must(streams[1].Sync(t.Context()))
	r.a.Observe(nil) // leaves idle pages, and no cached block
	call := func() error { return a.Pause(paged.PauseOptions{}) }
	if during == "Resume" {
		r.must(call())
		call = a.Resume
	}
	f.SetRules(rule)
	err := call()
	failed := f.Failed() > 0
	f.SetRules()
	r.check()
	switch {
	case during == "Pause" && err != nil && !rule.Onwards && a.Paused():
		fail("paused in spite of one failure: %v", err)
	case during == "Resume" && err != nil && a.Paused() && !rule.Onwards && r.held() != rest:
		fail("paused, and the device has allocated %d bytes", r.held())
	}
	r.must(a.Resume())
	r.holdAll(all)
	r.holdAll(others)
	r.must(a.Pause(paged.PauseOptions{}))
	r.check()
	if r.held() != rest {
		fail("paused again, the device has allocated %d bytes", r.held())
	}
	r.must(a.Resume())
	r.holdAll(all)
	r.free(append(all, others...)...)
	if p, ok := a.(*paged.Pool); ok {
		r.must(p.Close())
	}
	r.must(r.a.EmptyCache())
	if held := r.held(); held != 0 {
		fail("at the end the device has allocated %d bytes", held)
	}
	return failed
}

// A pool is paused by itself: other memory is used meanwhile, and the freed memory serves it.
func TestPoolIsPausedByItself(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 40 * granule})
	streams := []driver.Stream{r.s, r.stream()}
	p, q := r.a.NewPool(paged.PoolOptions{}), r.a.NewPool(paged.PoolOptions{})
	others := r.write(streams, 3*granule, 100)
	kept := r.writeTo(q, streams, 2*granule, 100)
	all := r.writeTo(p, streams, 9*granule, 700, 5*granule)
	r.must(p.Pause(paged.PauseOptions{}))
	r.check()
	if b, err := p.Alloc(r.s, 1); !errors.Is(err, paged.ErrPaused) || !p.Paused() || q.Paused() || r.a.Paused() {
		t.Errorf("a request to a paused pool: %+v, error %v", b, err)
	}
	r.free(r.granules(30))
	r.holdAll(others)
	r.holdAll(kept)
	if err := p.Pause(paged.PauseOptions{}); !errors.Is(err, paged.ErrPaused) {
		t.Errorf("Pause of a paused pool: %v", err)
	}
	r.must(p.Resume()) // drops the idle pages of the allocator
	r.must(p.Resume())
	r.check()
	r.holdAll(all)

	r.must(p.Pause(paged.PauseOptions{}))
	r.must(r.a.Pause(paged.PauseOptions{})) // of the rest
	r.asPaused()
	if err := q.Resume(); !errors.Is(err, paged.ErrPaused) {
		t.Errorf("Resume of a pool that was paused with the allocator: %v", err)
	}
	r.must(p.Resume())
	r.must(r.a.Resume())
	r.holdAll(all)
	r.holdAll(others)
	r.holdAll(kept)
	r.free(append(append(all, others...), kept...)...)
	r.must(p.Close())
	r.must(q.Close())
}

// A pool that graphs use cannot be paused, and stays when the allocator is.
func TestPoolsOfGraphsAreNotPaused(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	s := r.stream()
	id := mem.PoolID{7, 0}
	r.a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	b := r.alloc(s, 3*granule)
	r.a.EndAllocateToPool(id)
	r.fill(s, b, 5)
	if err := r.a.Pool(id).Pause(paged.PauseOptions{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Pause of a pool that graphs use: %v", err)
	}
	other := r.granules(4)
	r.must(r.a.Pause(paged.PauseOptions{}))
	r.check()
	r.holds(s, b, 5)
	if held := r.held(); held != 3*granule {
		t.Errorf("paused, the device has allocated %d bytes", held)
	}
	r.must(r.a.Resume())
	r.free(b, other)
	r.a.ReleasePool(id)
}

// A pool can be closed while it is paused: its blocks stay until they are freed, and then it is gone.
func TestCloseOfAPausedPool(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	for _, freed := range []bool{true, false} {
		p := r.a.NewPool(paged.PoolOptions{})
		all := r.writeTo(p, []driver.Stream{r.s}, 3*granule, 100)
		r.must(p.Pause(paged.PauseOptions{}))
		r.must(p.Close())
		r.must(r.a.EmptyCache())
		r.check()
		if !freed {
			r.must(p.Resume())
			r.holdAll(all)
		}
		r.free(all...)
		r.must(r.a.EmptyCache())
		r.check()
		testkit.Equal(t, "pools", len(r.a.ReservedByPrivatePools()), 0)
	}
}

// The driver's failure to free pages does not lose them.
func TestPausedPageThatCannotBeFreed(t *testing.T) {
	r, f := faulty(t, 64, sim.Options{}, paged.Config{})
	all := r.write([]driver.Stream{r.s}, 3*granule, 2*granule)
	f.SetRules(fault.Rule{Kind: intercept.Drop, Onwards: true}, fault.Rule{Kind: intercept.Map, Onwards: true})
	if err := r.a.Pause(paged.PauseOptions{}); err == nil || !r.a.Paused() {
		t.Errorf("pages can neither be freed nor mapped again: %v, paused %v", err, r.a.Paused())
	}
	f.SetRules()
	r.check()
	r.free(all[0])
	all[0] = mem.Block{}
	r.check()
	r.must(r.a.Resume())
	r.holdAll(all)
	r.free(all...)
}
