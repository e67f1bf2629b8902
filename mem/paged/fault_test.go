package paged_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// faulty is a rig on a device whose calls fail by rule.
func faulty(t testing.TB, granules int64, o sim.Options, cfg paged.Config) (*rig, *fault.Device) {
	t.Helper()
	var f *fault.Device
	r := newRig(t, granules, o, cfg, func(d driver.Device) driver.Device {
		f = fault.Wrap(d)
		return f
	})
	return r, f
}

// Pages that the driver failed to free are freed later, and a request that needs the memory then succeeds.
func TestRefusedDropIsNotLost(t *testing.T) {
	r, f := faulty(t, 64, sim.Options{}, paged.Config{Limit: 4 * granule})
	r.free(r.granules(4))
	f.SetRules(fault.Rule{Kind: intercept.Drop})
	if err := r.a.EmptyCache(); err == nil {
		t.Error("EmptyCache: no error, though nothing was taken back")
	}
	r.check()
	f.SetRules()
	b, err := r.a.Alloc(r.s, 4*granule)
	r.must(err)
	r.free(b)
}

// Close repeats the calls that failed the first time, including those for the stream that it waits with.
func TestCloseAgainAfterAFailure(t *testing.T) {
	for _, kind := range []intercept.Kind{intercept.Unmap, intercept.Drop, intercept.Release, intercept.CloseStream} {
		r, f := faulty(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{})
		s := r.stream()
		b := r.alloc(s, 2*granule)
		r.fill(s, b, 1)
		r.free(b)
		r.must(r.a.EmptyCache()) // waits, and so has a stream of its own
		b = r.alloc(s, 2*granule)
		r.free(b)
		f.SetRules(fault.Rule{Kind: kind, Nth: 1})
		if err := r.a.Close(); err == nil {
			t.Fatalf("%s fails, and Close gives no error", kind)
		}
		f.SetRules()
		r.must(r.a.Close())
		r.must(s.Close())
		if l := r.sim.Leaks(); !l.Empty() {
			t.Errorf("%s failed once; after the second Close the device has %v", kind, l)
		}
	}
}

// Every driver call of short histories in which pages move fails in turn: alone, or together with all later ones. Live
// blocks keep their contents, no memory is lost, and failed requests succeed once the device works again.
func TestEveryCallFails(t *testing.T) {
	failures := 0
	rules := []fault.Rule{{}, {Onwards: true}, {Code: driver.ErrNoMemory}, {Code: driver.ErrInvalid, Onwards: true}}
	for i, cfg := range []paged.Config{
		{Limit: 28 * granule},
		{Limit: 28 * granule, NoAliases: true},
		{},
		{Keep: paged.KeepNone},
		{Addresses: 8 * granule, Limit: 28 * granule},
		{Page: 4 * granule, Spare: 4 * granule},
	} {
		if i > 1 {
			rules = rules[:2]
		}
		for _, rule := range rules {
			for rule.Nth = 1; failHistory(t, cfg, rule); rule.Nth++ {
				failures++
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("%d driver calls failed, each in a history of its own", failures)
}

// failHistory runs a history in which a rule makes a driver call of the allocator fail. It reports whether the history
// has such a call.
func failHistory(t *testing.T, cfg paged.Config, rule fault.Rule) (fired bool) {
	r, f := faulty(t, 32, sim.Options{Completion: sim.OnDemand, Seed: 3}, cfg)
	fail := func(format string, args ...any) {
		t.Fatalf("%+v: driver call %d fails, onwards %v, code %v: %s", cfg, rule.Nth, rule.Onwards, rule.Code, fmt.Sprintf(format, args...))
	}
	seen, last := int64(0), false
	around := func(call func()) {
		now := rule
		if now.Nth -= seen; now.Nth < 1 && now.Onwards {
			now.Nth = 1
		}
		if f.SetRules(); now.Nth > 0 {
			f.SetRules(now)
		}
		call()
		seen += f.Calls()
		last = f.Failed() > 0
		fired = fired || last
		f.SetRules()
	}
	rng := rand.New(rand.NewPCG(11, 12))
	streams := []driver.Stream{r.s, r.stream(), r.stream()}
	type owned struct {
		mem.Block
		s       driver.Stream
		pattern byte
	}
	var live []owned
	for step := range 24 {
		s := streams[rng.IntN(len(streams))]
		size := 1 + rng.Int64N(5*granule)>>rng.IntN(3)
		pick := rng.IntN(8)
		loan, held := r.a.Stats().AllocatedBytes.All.Current, onLoan(r.a)
		var err error
		switch {
		case step%8 == 7:
			around(func() { err = r.a.EmptyCache() })
			if err != nil && last && !rule.Onwards {
				err = r.a.EmptyCache()
			}
		case len(live) < 4: // so that all fit, however they lie
			var b mem.Block
			around(func() { b, err = r.a.Alloc(s, size) })
			if err != nil && (b != mem.Block{} || !reflect.DeepEqual(held, onLoan(r.a)) || loan != r.a.Stats().AllocatedBytes.All.Current) {
				fail("step %d: a request failed (%v), and changed what is live", step, err)
			}
			if err != nil && last && !rule.Onwards {
				b, err = r.a.Alloc(s, size)
			}
			if err == nil {
				r.fill(s, b, byte(step))
				live = append(live, owned{b, s, byte(step)})
			}
		default:
			b := live[pick%len(live)]
			live[pick%len(live)] = live[len(live)-1]
			live = live[:len(live)-1]
			if pick < 3 { // contents are looked at now and then: that completes work
				r.holds(b.s, b.Block, b.pattern)
			}
			around(func() { r.a.Free(b.Block) })
		}
		if err != nil && (!fired || !rule.Onwards || !known(err)) {
			fail("step %d: %v", step, err)
		}
		if err := r.a.Check(); err != nil {
			fail("step %d: %v", step, err)
		}
		free, total, err := r.sim.Available()
		r.must(err)
		if got := r.a.PageStats().Reserved; got != total-free {
			fail("step %d: the device has allocated %d bytes, counted %d", step, total-free, got)
		}
	}
	for _, b := range live {
		r.holds(b.s, b.Block, b.pattern)
		r.a.Free(b.Block)
	}
	r.must(r.a.EmptyCache())
	if f := r.a.PageStats(); f.Reserved != 0 || f.Mappings != 0 {
		fail("after all is freed and the cache emptied: %+v", f)
	}
	var err error
	around(func() { err = r.a.Close() })
	if err != nil && !last {
		fail("Close: %v", err)
	}
	r.must(r.a.Close())
	for _, s := range streams[1:] {
		r.must(s.Close())
	}
	if l := r.sim.Leaks(); !l.Empty() {
		fail("after Close the device has %v", l)
	}
	return fired
}

// known reports whether an error is the injected one or an out-of-memory error.
func known(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) || errors.Is(err, mem.ErrNoMemory)
}

// onLoan lists the live blocks of a snapshot.
func onLoan(a *paged.Allocator) (blocks []mem.BlockInfo) {
	for _, seg := range a.Snapshot() {
		for _, b := range seg.Blocks {
			if b.State == mem.ActiveAllocated {
				blocks = append(blocks, b)
			}
		}
	}
	return blocks
}

// If a driver call fails while a request remaps memory, the snapshot does not change.
func TestFailedRemapChangesNothing(t *testing.T) {
	for _, test := range []struct {
		kind    intercept.Kind
		limit   int64
		homes   bool                     // each idle page has one address alone in the request
		prepare func(r *rig) []mem.Block // what stays live; then 3 granules are asked for
	}{
		{intercept.Map, 4, true, apart},
		{intercept.Map, 4, false, twice},
		{intercept.Unmap, 4, false, twice},
		{intercept.Map, 6, true, stale},
		{intercept.Unmap, 6, true, stale},
	} {
		r, f := faulty(t, 64, sim.Options{}, paged.Config{Limit: test.limit * granule})
		live := test.prepare(r)
		r.must(r.a.Check())
		for i, b := range live {
			r.fill(r.s, b, byte(i+1))
		}
		before, loan, stats := r.a.Snapshot(), onLoan(r.a), r.a.Stats()
		f.SetRules(fault.Rule{Kind: test.kind, Nth: 1, Code: driver.ErrInvalid})
		b, err := r.a.Alloc(r.s, 3*granule)
		if f.Failed() == 0 {
			t.Errorf("%s: there was no such call", test.kind)
		} else if err == nil {
			t.Errorf("%s failed, and the request did not", test.kind)
		}
		f.SetRules()
		r.check()
		if err != nil {
			// Of a page with two addresses in the request, either may be its home afterwards.
			if after := r.a.Snapshot(); test.homes && !reflect.DeepEqual(before, after) || !reflect.DeepEqual(loan, onLoan(r.a)) {
				t.Errorf("%s: the snapshot was %+v, is %+v", test.kind, before, after)
			}
			if s := r.a.Stats(); s.ReservedBytes.All.Current != stats.ReservedBytes.All.Current || s.Allocation != stats.Allocation {
				t.Errorf("%s: the statistics were %+v, are %+v", test.kind, stats, s)
			}
			b = r.granules(3)
		}
		r.fill(r.s, b, 99)
		for i, b := range live {
			r.holds(r.s, b, byte(i+1))
		}
		r.free(append(live, b)...)
	}
}

// apart leaves three idle granules with one live between.
func apart(r *rig) []mem.Block {
	x, y, z := r.granules(2), r.granules(1), r.granules(1)
	r.free(x, z)
	return []mem.Block{y}
}

// twice leaves a page with two addresses next to each other, the higher one its home.
func twice(r *rig) []mem.Block {
	x, y := r.granules(1), r.granules(1)
	r.free(x)
	z := r.granules(2) // at 2 and 3: x's page, and a new one
	r.free(y, z)
	return nil
}

// stale leaves addresses whose pages are in use elsewhere, with room for the request.
func stale(r *rig) []mem.Block {
	x, y := r.granules(2), r.granules(1)
	r.free(x)
	z := r.granules(3) // x's pages, and a new one
	r.free(y)
	return []mem.Block{z}
}
