package paged_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A request with NoRetry frees no cached memory and does not wait. If the device has room, it needs neither.
func TestNoRetryTakesNewMemory(t *testing.T) {
	for _, cfg := range []paged.Config{{}, {NoAliases: true}, {Page: 8 * granule}, {Limit: 32 * granule}} {
		r := simple(t, 64, cfg)
		x, y := r.granules(1), r.granules(1)
		r.free(x)
		b, err := r.a.AllocWith(r.s, 2*granule, mem.AllocOptions{NoRetry: true})
		if err != nil {
			t.Errorf("%+v: 2 granules, of 64: %v", cfg, err)
		}
		r.free(y, b)
	}
}

// The remedy that an error recommends does help.
func TestRemedies(t *testing.T) {
	for _, test := range []struct {
		name               string
		device, limit      int64 // granules
		used, idle, wanted int64
		hasty              bool
	}{
		{"limit", 64, 4, 3, 1, 4, false},
		{"limit, room for others", 64, 4, 2, 0, 3, false},
		{"limit, odd", 64, 4, 4, 0, 1, false},
		{"beyond the device", 8, 4, 2, 0, 10, false},
		{"beyond what others leave", 6, 4, 4, 0, 5, false},
		{"hasty, idle would do", 4, 4, 2, 2, 2, true},
		{"hasty, idle is too little", 4, 4, 3, 1, 3, true},
		{"no limit", 4, 0, 3, 1, 3, false},
		{"no limit, hasty", 4, 0, 3, 1, 3, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := func(cfg paged.Config, hasty bool) error {
				r := simple(t, test.device, cfg)
				var live, idle []mem.Block
				for i := range max(test.used, test.idle) { // one between the others
					if i < test.idle {
						idle = append(idle, r.granules(1))
					}
					if i < test.used {
						live = append(live, r.granules(1))
					}
				}
				r.free(idle...)
				b, err := r.a.AllocWith(r.s, test.wanted*granule, mem.AllocOptions{NoRetry: hasty})
				r.check()
				r.free(b)
				r.free(live...)
				return err
			}
			err := run(paged.Config{Limit: test.limit * granule}, test.hasty)
			if err == nil {
				return // it fits
			}
			var e *mem.OutOfMemory
			if e, _ = err.(*mem.OutOfMemory); e == nil {
				t.Fatal(err)
			}
			for _, remedy := range e.Remedies {
				cfg, hasty := paged.Config{Limit: test.limit * granule}, test.hasty
				if c, err := paged.ParseConfig(remedy.Name); err == nil {
					cfg = c
				} else {
					hasty = false
				}
				if err := run(cfg, hasty); err != nil {
					t.Errorf("%q is said to help, and: %v", remedy.Name, err)
				}
			}
		})
	}
}

// The figures of an error are correct.
func TestOutOfMemoryFigures(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 16 * granule})
	pin, other := r.alloc(r.s, granule/2), r.granules(10)
	x := r.granules(4)
	between := r.alloc(r.s, granule/4)
	r.free(x)
	_, err := r.a.Alloc(r.s, 8*granule+1)
	e := r.noMemory(err)
	f, s := r.a.PageStats(), r.a.Stats()
	loan := pin.Size + other.Size + between.Size
	if e.Requested != 8*granule+1 || e.Rounded != 8*granule+512 || e.TooLarge || e.Stream != 0 || e.Cause != nil {
		t.Errorf("the request: %+v", e)
	}
	if e.Allowed != 16*granule || e.Allocated != loan || e.Reserved != f.Reserved || e.Total != 64*granule || e.Free != e.Total-f.Reserved {
		t.Errorf("allowed %d, allocated %d, reserved %d, total %d, free %d; live are %d, %+v", e.Allowed, e.Allocated, e.Reserved,
			e.Total, e.Free, loan, f)
	}
	if e.LargestFree != f.Reserved-f.Used || e.Stranded != f.Used-loan {
		t.Errorf("free %d, stranded %d: %+v", e.LargestFree, e.Stranded, f)
	}
	if len(e.Pinning) == 0 {
		t.Error("no block is named that keeps memory in use")
	}
	for _, p := range e.Pinning {
		if p.Ptr != pin.Ptr && p.Ptr != between.Ptr && p.Ptr != other.Ptr || p.Stranded <= 0 || p.Stranded >= p.SegmentSize || p.Live != 1 {
			t.Errorf("pinning: %+v", p)
		}
	}
	if s.NumOOMs != 1 {
		t.Errorf("%d requests are counted as out of memory, want 1", s.NumOOMs)
	}
	for range 3 { // small ones: a slab is tried first, and counts for nothing
		if _, err := r.a.AllocWith(r.s, 100*granule, mem.AllocOptions{}); err == nil {
			t.Error("100 granules of 16")
		}
	}
	if n := r.a.Stats().NumOOMs; n != 4 {
		t.Errorf("%d requests are counted as out of memory, want 4", n)
	}
	r.free(pin, other, between)
}

// Requests that no device has room for.
func TestTooLarge(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	x := r.granules(3)
	before := r.a.Snapshot()
	for _, size := range []int64{1<<62 + 1, 1<<40 + 1, 1 << 40, 65 * granule} {
		b, err := r.a.Alloc(r.s, size)
		e := r.noMemory(err)
		if b != (mem.Block{}) || e.Requested != size || e.TooLarge != (size > 1<<40) {
			t.Errorf("%d bytes: %+v, %+v", size, b, e)
		}
		if after := r.a.Snapshot(); !reflect.DeepEqual(before, after) {
			t.Errorf("%d bytes: the snapshot was %+v, is %+v", size, before, after)
		}
		r.check()
	}
	r.free(x)
}

// If other programs use the device's memory, the error includes the device's error. Once they free it, requests
// succeed.
func TestDeviceFullOfOthers(t *testing.T) {
	r := simple(t, 16, paged.Config{})
	p, err := r.sim.Alloc(12 * granule)
	r.must(err)
	x, y, z := r.granules(1), r.granules(1), r.granules(1)
	r.free(y)
	_, err = r.a.Alloc(r.s, 3*granule)
	e := r.noMemory(err)
	if e.Cause == nil || !errors.Is(e.Cause, driver.ErrNoMemory) || len(e.Remedies) > 0 {
		t.Errorf("%+v", e)
	}
	big := r.granules(2) // y's page, and the last one
	r.check()
	r.must(r.sim.Free(p))
	more := r.granules(12)
	r.free(x, z, big, more)
}

// A request with NoRetry does not wait and frees no cached memory. The same request without NoRetry may.
func TestNoRetry(t *testing.T) {
	for _, cfg := range []paged.Config{{Limit: 4 * granule}, {Limit: 4 * granule, NoAliases: true}, {Limit: 8 * granule, Page: 2 * granule}} {
		r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, cfg, nil)
		s := r.stream()
		var x [4]mem.Block
		for i := range x {
			x[i] = r.alloc(s, cfg.Limit/4)
			r.fill(s, x[i], 1)
		}
		r.free(x[0], x[2])
		stalls := r.a.PageStats().Stalls
		var b mem.Block
		var err error
		if n := r.calls(func() { b, err = r.a.AllocWith(r.s, cfg.Limit/2, mem.AllocOptions{NoRetry: true}) },
			sim.CallUnmap, sim.CallDrop, sim.CallSync); n != 0 || r.a.PageStats().Stalls != stalls {
			t.Errorf("%+v: %d calls that wait or give back, with NoRetry", cfg, n)
		}
		if err != nil {
			r.noMemory(err)
			b = r.alloc(r.s, cfg.Limit/2)
		}
		r.fill(r.s, b, 2)
		r.free(x[1], x[3], b)
	}
}

// If idle memory in use by queued work suffices, together with what the limit leaves, the error says to wait for it.
func TestNoRetryNamesTheWaitAsARemedy(t *testing.T) {
	for _, size := range []int64{2, 5, 6} {
		r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 8 * granule, NoAliases: true}, nil)
		s := r.stream()
		var x [4]mem.Block
		for i := range x {
			x[i] = r.alloc(s, granule)
			r.fill(s, x[i], 1)
		}
		r.free(x[0], x[2])
		b, err := r.a.AllocWith(r.s, size*granule, mem.AllocOptions{NoRetry: true})
		if err != nil {
			if e := r.noMemory(err); len(e.Remedies) != 1 || e.Remedies[0].Name != "a request without NoRetry" {
				t.Errorf("%d granules: %+v", size, e.Remedies)
			}
			b = r.granules(size)
		} else if size > 4 {
			t.Errorf("%d granules, of 4 that need no wait", size)
		}
		r.free(x[1], x[3], b)
	}
}

// Requests too large for any device reserve no addresses.
func TestHopelessRequestsTakeNoAddresses(t *testing.T) {
	for _, cfg := range []paged.Config{{}, {Limit: 8 * granule, Addresses: 16 * granule}} {
		r := simple(t, 16, cfg)
		for n := range int64(200) {
			_, err := r.a.Alloc(r.s, (17+n)*granule)
			r.noMemory(err)
		}
		if n := len(r.sim.Leaks().Reservations); n > 1 {
			t.Errorf("%+v: %d ranges of addresses are reserved", cfg, n)
		}
	}
}

// A request that must not wait gets new memory from the device, even if the best fit would require a wait.
func TestNoRetryTakesWhatNeedsNoWait(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	x, y := r.granules(2), r.granules(1)
	r.fill(r.s, x, 1)
	r.free(x)
	z := r.granules(3) // has x's pages
	s := r.stream()
	b, err := r.a.AllocWith(s, 2*granule, mem.AllocOptions{NoRetry: true}) // fits at x's old place, which is in use by queued work
	r.must(err)
	r.check()
	r.free(b, y, z)
}
