package engine

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// closing makes a layer's Close call the Close of the layer below.
type closing struct{ *sessionAllocator }

func (c closing) Close() error {
	below, _ := mem.Find[io.Closer](c.sessionAllocator.below)
	return below.Close()
}

// The session allocator passes the conformance tests, over an allocator that moves blocks and over one that does not.
func TestLanesConform(t *testing.T) {
	// The sizes for an arena are those of its own test: its region is all that the suite may have allocated, and the
	// device has little beside it.
	const maxBlock, region, bounce = 4<<20 - 2, 16<<20 - 4096, 64 << 10
	for _, tt := range []struct {
		allocator string
		total     int64
		memtest.Config
	}{
		{allocator: "caching", total: 256 << 20},
		{
			allocator: fmt.Sprintf("arena:size=%d,bounce=%d", region, bounce), total: region + bounce + 144<<10,
			Config: memtest.Config{MaxBlock: maxBlock, Reserved: region + bounce, Waits: true, Alignment: 512},
		},
	} {
		t.Run(tt.allocator, func(t *testing.T) {
			cfg := tt.Config
			cfg.Sim.Total = tt.total
			cfg.New = func(t testing.TB, dev driver.Device) mem.Allocator {
				a, err := mem.Open(tt.allocator, dev)
				testkit.Must(t, err)
				return closing{newSessionAllocator(a)}
			}
			cfg.Ops, cfg.Seeds, cfg.FaultOps = 150, 2, 10
			memtest.Run(t, cfg)
		})
	}
}

// A led stack serves all requests from one cache.
type led struct {
	*sessionAllocator
	cache *cache
}

func (l led) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if s != nil {
		l.sessionAllocator.setRoute(s, l.cache, nil)
	}
	return l.sessionAllocator.Alloc(s, size)
}

func (l led) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if s != nil {
		l.sessionAllocator.setRoute(s, l.cache, nil)
	}
	return l.sessionAllocator.AllocWith(s, size, o)
}

func (l led) Stats() mem.Stats { return l.cache.Stats() }

func (l led) ResetPeakStats() { l.cache.ResetPeakStats() }

func (l led) ResetAccumulatedStats() { l.cache.ResetAccumulatedStats() }

func (l led) Snapshot() []mem.SegmentInfo { return l.cache.Snapshot() }

func (l led) EmptyCache() error { return l.cache.EmptyCache() }

func (l led) Compact(s driver.Stream) error { return l.cache.Compact(s) }

func (l led) Close() error {
	if err := l.cache.abandon(); err != nil {
		return err
	}
	below, _ := mem.Find[io.Closer](l.cache.caches.below)
	return below.Close()
}

// A cache passes the conformance tests, whether it is a child of an arena or a block of an allocator that reports
// events.
func TestCachesConform(t *testing.T) {
	const maxBlock, region, bounce = 4<<20 - 2, 16<<20 - 4096, 64 << 10
	for allocator, more := range map[string]int64{
		"direct": 0,
		fmt.Sprintf("arena:size=%d,bounce=%d", region+4096, bounce): 4096,
	} {
		t.Run(allocator, func(t *testing.T) {
			cfg := memtest.Config{MaxBlock: maxBlock, Reserved: region + bounce + more, Waits: true, Alignment: 512, Ops: 150, Seeds: 2, FaultOps: 10}
			// The bounce area of a cache that is a block has a sixteenth of its size, or if there is no room, none.
			cfg.Sim.Total = region + bounce + more + 144<<10
			cfg.New = func(t testing.TB, dev driver.Device) mem.Allocator {
				a, err := mem.Open(allocator, dev)
				testkit.Must(t, err)
				l := newSessionAllocator(nil)
				c, top := newCaches(a, dev, l)
				l.below = top
				k, err := c.reserve(nil, dev.DefaultStream(), region)
				testkit.Must(t, err)
				if c.events != nil {
					top.(mem.Observable).Observe(func(mem.Event) {})
				}
				return led{l, k}
			}
			memtest.Run(t, cfg)
		})
	}
}

// A moved block is returned to its allocator, and its holder is notified of the block that it can free.
func TestLanesFollowMovedBlocks(t *testing.T) {
	dev := drivertest.OpenSim(t, 8<<20)
	a, err := arena.New(dev, arena.Config{Size: 1 << 20})
	testkit.Must(t, err)
	l := newSessionAllocator(a)
	s := dev.DefaultStream()
	low, err := l.Alloc(s, 1000)
	testkit.Must(t, err)
	high, err := l.Alloc(s, 3000)
	testkit.Must(t, err)
	h := &holder{block: high}
	if !mem.Movable(l, high, h) {
		t.Fatal("the block is not movable")
	}
	l.Free(low)
	testkit.Must(t, a.Compact(s))
	if h.block.Ptr != low.Ptr || h.block.Tag != high.Tag {
		t.Errorf("the block is %+v, want it at %#x with tag %d", h.block, low.Ptr, high.Tag)
	}
	testkit.Contains(t, testkit.Panic(t, func() { l.Free(high) }), "not a live block")
	l.Free(h.block)
	testkit.Contains(t, testkit.Panic(t, func() { l.Free(h.block) }), "not a live block")
	testkit.Must(t, a.Close())
	testkit.Must(t, dev.Close())
	wellLeft(t, dev)
}

// A freed block is distinguished from a later one with the same table entry, address and size.
func TestLanesNoticeStaleFrees(t *testing.T) {
	dev := drivertest.OpenSim(t, 8<<20)
	a, err := arena.New(dev, arena.Config{Size: 1 << 20})
	testkit.Must(t, err)
	l := newSessionAllocator(a)
	s := dev.DefaultStream()
	stale, err := l.Alloc(s, 1000)
	testkit.Must(t, err)
	l.Free(stale)
	now, err := l.Alloc(s, 1000)
	testkit.Must(t, err)
	if now.Ptr != stale.Ptr || now.Size != stale.Size {
		t.Fatalf("want the same memory: %+v, %+v", stale, now)
	}
	testkit.Contains(t, testkit.Panic(t, func() { l.Free(stale) }), "not a live block")
	testkit.Contains(t, testkit.Panic(t, func() { l.Movable(stale, &holder{}) }), "not a live block")
	l.Free(now)
	testkit.Must(t, a.Close())
	testkit.Must(t, dev.Close())
	wellLeft(t, dev)
}

// The options of a request reach the allocator.
func TestLanesPassWishesOn(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	var below wished
	l := newSessionAllocator(&below)
	s := dev.DefaultStream()
	for range 2 {
		b, err := l.AllocWith(s, 512, mem.AllocOptions{NoRetry: true, Logged: true})
		testkit.Must(t, err)
		l.Free(b)
	}
	b, err := l.Alloc(s, 512)
	testkit.Must(t, err)
	l.Free(b)
	if below.n != 2 {
		t.Errorf("wishes have come to the allocator %d times", below.n)
	}
	l.close()
	if _, err := l.AllocWith(s, 512, mem.AllocOptions{NoRetry: true}); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	testkit.Must(t, dev.Close())
}

// wished counts the requests that have both options.
type wished struct {
	nobodys
	n int
}

func (w *wished) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if o.NoRetry && o.Logged {
		w.n++
	}
	return w.Alloc(s, size)
}

type holder struct{ block mem.Block }

func (h *holder) BeginMove() ([]driver.Stream, bool) { return nil, true }

func (h *holder) EndMove(b mem.Block, _ driver.Stream) { h.block = b }

// An allocation and its free take this long through the session allocator alone.
func BenchmarkLanes(b *testing.B) {
	dev := sim.New(sim.Options{})
	l := newSessionAllocator(nobodys{})
	l.setRoute(dev.DefaultStream(), nil, &usage{})
	for b.Loop() {
		block, _ := l.Alloc(dev.DefaultStream(), 512)
		l.Free(block)
	}
}

type nobodys struct{}

func (nobodys) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	return mem.Block{Ptr: 512, Size: size}, nil
}

func (nobodys) Free(mem.Block, ...driver.Stream) {}
