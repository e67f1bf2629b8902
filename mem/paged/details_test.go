package paged_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Requests that a processor cache serves count as others do.
func TestWarmRequestsAreCounted(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	for range 10 {
		r.free(r.alloc(r.s, 2048))
	}
	s := r.a.Stats()
	testkit.Equal(t, "allocated", s.Allocation.All.Allocated, 10)
	testkit.Equal(t, "freed", s.Allocation.All.Freed, 10)
	testkit.Equal(t, "bytes allocated", s.AllocatedBytes.All.Allocated, 10*2048)
	testkit.Equal(t, "bytes freed", s.AllocatedBytes.All.Freed, 10*2048)
}

// A pool that does not split blocks takes whole granules, and no more than a request needs.
func TestNoSplitTakesWholeGranules(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	p := r.a.NewPool(paged.PoolOptions{NoSplit: true})
	for _, c := range []struct{ size, granules int64 }{{1, 1}, {granule - 1, 1}, {granule, 1}, {granule + 1, 2}, {3 * granule, 3}} {
		before := p.Reserved().All.Current
		b, err := p.Alloc(r.s, c.size)
		r.must(err)
		if got := p.Reserved().All.Current - before; got != c.granules*granule {
			t.Errorf("a block of %d bytes takes %d, want %d granules", c.size, got, c.granules)
		}
		defer p.Free(b)
	}
	r.must(p.Close())
}

// Blocks that were made before NeverSplit could have been split already.
func TestNeverSplitComesFirst(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	id := mem.PoolID{1, 0}
	r.a.BeginAllocateToPool(id, every)
	b := r.alloc(r.s, 100)
	r.a.EndAllocateToPool(id)
	testkit.Contains(t, testkit.Panic(t, func() { r.a.NeverSplit(id) }), "has memory already")
	r.free(b)
	r.a.ReleasePool(id)
}

// A Pool of an ID without users is closed once its memory is gone.
func TestPoolOfAnIDThatIsGone(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	id := mem.PoolID{1, 0}
	r.a.BeginAllocateToPool(id, every)
	p := r.a.Pool(id)
	b, err := p.Alloc(r.s, 100)
	r.must(err)
	r.a.EndAllocateToPool(id)
	r.free(b)
	r.a.ReleasePool(id)
	r.must(r.a.EmptyCache())
	if b, err := p.Alloc(r.s, 100); !errors.Is(err, paged.ErrPoolClosed) {
		t.Errorf("a request got %+v, %v", b, err)
	}
	if err := p.Pause(paged.PauseOptions{}); !errors.Is(err, paged.ErrPoolClosed) {
		t.Errorf("Pause: %v", err)
	}
}

// A request in a capture takes addresses that are reserved already, if no block has had them.
func TestACaptureReservesNoAddresses(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	b := r.granules(1)
	r.fill(r.s, b, 1)
	r.free(b)
	s := r.stream()
	r.must(r.dev.Graphs().Begin(s))
	var own mem.Block
	if n := r.calls(func() { own = r.alloc(s, granule) }, sim.CallReserve); n != 0 {
		t.Errorf("%d reservations", n)
	}
	g, err := r.dev.Graphs().End(s)
	r.must(errors.Join(err, g.Close()))
	r.free(own)
}

// A request of a private pool asks once which streams capture, however many pages of the default pool are dropped for
// it.
func TestARequestAsksOnceForCaptures(t *testing.T) {
	asked := func(n int64) int64 {
		var dev *fault.Device
		r := newRig(t, 8, sim.Options{}, paged.Config{}, func(d driver.Device) driver.Device {
			dev = fault.Wrap(d)
			return dev
		})
		for _, b := range r.each(8) {
			r.free(b)
		}
		p := r.a.NewPool(paged.PoolOptions{})
		dev.SetRules()
		drops := r.sim.Calls()[sim.CallDrop].Count
		b, err := p.Alloc(r.s, n*granule)
		r.must(err)
		if got := r.sim.Calls()[sim.CallDrop].Count - drops; got < n {
			t.Errorf("%d pages were dropped for %d", got, n)
		}
		calls := dev.CallsOf(intercept.Capturing)
		p.Free(b)
		r.must(p.Close())
		return calls
	}
	if one, six := asked(1), asked(6); one != six {
		t.Errorf("%d questions for one page, %d for six", one, six)
	}
}
