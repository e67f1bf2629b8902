package paged_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// While a stream captures, the free memory that it used before is unavailable. Other streams still get memory, since
// the device has enough.
func TestOthersAllocateWhileOneCaptures(t *testing.T) {
	for _, c := range []sim.Completion{sim.AtOnce, sim.OnDemand} {
		r := newRig(t, 64, sim.Options{Completion: c}, paged.Config{}, nil)
		s := r.stream()
		b := r.alloc(s, granule)
		r.fill(s, b, 1)
		r.free(b)
		r.must(r.dev.Graphs().Begin(s))
		for _, size := range []int64{granule, 2 * granule, 512} {
			if other, err := r.a.Alloc(r.s, size); err != nil {
				t.Errorf("completion %d: stream %d captures, and a request of %d bytes on another: %v", c, s.ID(), size, err)
			} else {
				r.fill(r.s, other, 2)
				r.free(other)
			}
		}
		g, err := r.dev.Graphs().End(s)
		r.must(err)
		r.must(g.Close())
	}
}

// A capturing stream gets memory although other streams used all free memory before.
func TestAllocInACapture(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	b := r.granules(1)
	r.fill(r.s, b, 1)
	r.free(b)
	s := r.stream()
	r.must(r.dev.Graphs().Begin(s))
	for _, size := range []int64{granule, 2 * granule, 512} {
		own, err := r.a.Alloc(s, size)
		if err != nil {
			t.Errorf("a request of %d bytes in a capture: %v", size, err)
			continue
		}
		r.fill(s, own, 2)
		defer r.free(own)
	}
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.must(g.Launch(s))
	r.must(g.Close())
}

// A request that is refused because of a capture changes nothing, however often it is repeated.
func TestRefusalsTakeNoAddresses(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 8 * granule, Addresses: 16 * granule}, nil)
	b := r.granules(8)
	r.fill(r.s, b, 1)
	r.free(b)
	s := r.stream()
	r.must(r.dev.Graphs().Begin(s))
	for range 100 {
		if _, err := r.a.Alloc(s, 2*granule); !errors.Is(err, driver.ErrCapturing) {
			t.Fatalf("all memory has been used by another stream, and nothing can be waited for: %v", err)
		}
	}
	if n := len(r.sim.Leaks().Reservations); n > 2 {
		t.Errorf("%d ranges of addresses are reserved", n)
	}
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.must(g.Close())
	r.free(r.alloc(s, 8*granule))
}

// A stream used memory once, and other streams have used all of it since, in order. A capture on the first stream does
// not affect them.
func TestAnIdleCaptureStopsNoOtherCall(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 8 * granule}, nil)
	s := r.stream()
	b := r.alloc(s, 8*granule)
	r.fill(s, b, 1)
	r.free(b)
	b = r.granules(8)
	r.fill(r.s, b, 2)
	r.free(b)
	r.must(r.dev.Graphs().Begin(s))
	for n := range int64(8) {
		b, err := r.a.Alloc(r.s, (n+1)*granule)
		if err != nil {
			t.Errorf("%d granules: %v", n+1, err)
			continue
		}
		r.free(b)
	}
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.must(g.Close())
}

// The live blocks of a capture hold the results of each launch, while other streams use the memory around them.
func TestGraphsKeepTheirMemory(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.AtRandom, Seed: 5}, paged.Config{Limit: 8 * granule}, nil)
	s := r.stream()
	first := r.alloc(s, granule)
	r.must(r.dev.Graphs().Begin(s))
	b := r.alloc(s, 2*granule+512)
	r.fill(s, b, 7)
	r.fill(s, first, 8)
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	for n := range int64(16) {
		other := r.granules(1 + n%4) // these keep moving
		r.fill(r.s, other, 9)
		r.must(g.Launch(s))
		r.holds(s, b, 7)
		r.holds(s, first, 8)
		r.holds(r.s, other, 9)
		r.fill(s, b, 1)
		r.free(other)
	}
	r.must(g.Close())
	r.free(b, first)
}

// Memory is short, and the gap that needs the fewest new pages was used by a capturing stream: another gap is used.
func TestShortOfMemoryBesideACapture(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{Limit: 11 * granule}, nil)
	s := r.stream()
	// Three gaps of two granules each. The first two share their edge pages with live blocks, so each needs only one page.
	first, one := r.alloc(r.s, granule*3/2), r.granules(2)
	second, two := r.granules(1), r.alloc(s, 2*granule)
	third, three := r.alloc(r.s, granule*3/2), r.granules(2)
	fourth := r.granules(1)
	r.a.Free(one, r.s)
	r.a.Free(two, s)
	r.a.Free(three, r.s)
	most := r.granules(3) // leaves one
	r.must(r.dev.Graphs().Begin(s))
	b, err := r.a.Alloc(r.stream(), 2*granule)
	r.must(err)
	if b.Ptr != one.Ptr {
		t.Errorf("the block is at %#x: want it in the first gap, %#x", uint64(b.Ptr), uint64(one.Ptr))
	}
	r.check()
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.must(g.Close())
	r.free(first, second, third, fourth, most, b)
}
