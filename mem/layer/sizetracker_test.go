package layer_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A block's sizes and number are known from its Alloc to its Free, also after moves, and not for another's.
func TestTrackedFollowsMoves(t *testing.T) {
	below := &slidingAllocator{}
	a := layer.NewSizeTracker(below, layer.SizeTrackerOptions{})
	hole := fake.MustAlloc(t, a, 64)
	o := own(t, a, 100)
	a.Free(hole)
	compact(t, below, idle{})
	if o.block.Ptr != shelfStart || a.RequestedSize(o.block) != 100 || a.AllocationID(o.block) != 2 {
		t.Errorf("%+v, %d bytes asked for, number %d", o.block, a.RequestedSize(o.block), a.AllocationID(o.block))
	}
	other := o.block
	other.Size++
	for name, ask := range map[string]func(){
		"RequestedSize": func() { a.RequestedSize(other) }, "AllocatedSize": func() { a.AllocatedSize(hole) },
		"AllocationID": func() { a.AllocationID(mem.Block{}) }, "Free": func() { a.Free(hole) },
	} {
		testkit.Contains(t, testkit.Panic(t, ask), "layer: SizeTracker: "+name, "not live")
	}
	a.Free(o.block)
}

// Blocks that were cut from others to be aligned stay where they are, and go back as they came.
func TestTrackedAligns(t *testing.T) {
	below := &slidingAllocator{}
	a := layer.NewSizeTracker(below, layer.SizeTrackerOptions{From: 1})
	fake.MustAlloc(t, a, 1)
	for _, alignment := range []int64{1, 2, 64, 1 << 20, 1 << 40} {
		b, err := a.AllocRaw(fake.S0, alignment, 10, mem.AllocOptions{})
		testkit.Must(t, err)
		if int64(b.Ptr)%alignment != 0 || b.Size < 10 || mem.Movable(a, b, stuck{}) != (alignment == 1) {
			t.Errorf("%+v at a multiple of %d", b, alignment)
		}
		a.Free(b, fake.S1)
		if last := below.used[len(below.used)-1]; len(last) != 1 || last[0] != fake.S1 {
			t.Errorf("its Free names %v below", last)
		}
	}
	if len(below.blocks) != 1 {
		t.Errorf("%d blocks are left below", len(below.blocks)-1)
	}
	for _, alignment := range []int64{0, -8, 3} {
		testkit.Contains(t, testkit.Panic(t, func() { a.AllocRaw(fake.S0, alignment, 1, mem.AllocOptions{}) }), "layer: SizeTracker: AllocRaw", "power of two")
	}
	testkit.Contains(t, testkit.Panic(t, func() { layer.NewSizeTracker(below, layer.SizeTrackerOptions{From: 3}) }), "layer: SizeTracker", "power of two")
	base := &optioned{Pile: fake.NewPile(256)}
	_, err := layer.NewSizeTracker(base, layer.SizeTrackerOptions{}).AllocRaw(fake.S0, 4096, 1, mem.AllocOptions{NoRetry: true})
	if testkit.Must(t, err); len(base.got) != 1 || !base.got[0].NoRetry {
		t.Errorf("an aligned request's wishes: %+v", base.got)
	}
}

// An allocator that does not track tells from a snapshot, if it makes any: of live blocks, at their very addresses.
func TestSlowSizes(t *testing.T) {
	dev := drivertest.OpenSim(t, 256<<20)
	a := layer.NewCounter(newCaching(t, dev))
	s := dev.DefaultStream()
	b, err := a.Alloc(s, 1000)
	testkit.Must(t, err)
	if asked, size, ok := layer.SlowSizes(a, b.Ptr); !ok || asked != 1000 || size != b.Size {
		t.Errorf("%d and %d bytes, %v", asked, size, ok)
	}
	if _, _, ok := layer.SlowSizes(a, b.Ptr+256); ok {
		t.Error("an address within a block is taken for a block")
	}
	a.Free(b)
	if _, _, ok := layer.SlowSizes(a, b.Ptr); ok {
		t.Error("a free block is taken for one live")
	}
	if _, _, ok := layer.SlowSizes(fake.NewPile(1), b.Ptr); ok {
		t.Error("an allocator without snapshots knows a block")
	}
}

// Each layer reports the same for an address as for the block that it allocated there.
func TestDefect06_SlowSizesAreThoseOfTheTopmostLayer(t *testing.T) {
	dev := drivertest.OpenSim(t, 256<<20)
	s := dev.DefaultStream()
	check := func(t *testing.T, a mem.Allocator, b mem.Block, asked int64) {
		t.Helper()
		requested, allocated, ok := layer.SlowSizes(a, b.Ptr)
		if !ok || requested != asked || allocated != b.Size {
			t.Errorf("a block of %d bytes at %#x, %d asked for: %d and %d, %v", b.Size, uint64(b.Ptr), asked, requested, allocated, ok)
		}
		if tracker, is := a.(mem.SizeTracker); is && (tracker.RequestedSize(b) != requested || tracker.AllocatedSize(b) != allocated) {
			t.Errorf("the tracker says %d and %d", tracker.RequestedSize(b), tracker.AllocatedSize(b))
		}
		a.Free(b)
		if _, _, ok := layer.SlowSizes(a, b.Ptr); ok {
			t.Error("a free block is taken for one live")
		}
	}
	tracked := layer.NewSizeTracker(newCaching(t, dev), layer.SizeTrackerOptions{Empty: true})
	for _, r := range []struct{ alignment, size, allocated int64 }{
		{4096, 1000, 5120}, {512, 1000, 1536}, {256, 1000, 1024}, {1, 0, 512},
	} {
		b, err := tracked.AllocRaw(s, r.alignment, r.size, mem.AllocOptions{})
		testkit.Must(t, err)
		if b.Size != r.allocated {
			t.Errorf("%d bytes at a multiple of %d: a block of %d", r.size, r.alignment, b.Size)
		}
		check(t, tracked, b, r.size)
	}
	// A block whose start is not that of the block below.
	keep := mustAllocOn(t, tracked, s, 512)
	b, err := tracked.AllocRaw(s, 4096, 1000, mem.AllocOptions{})
	testkit.Must(t, err)
	if _, _, ok := layer.SlowSizes(tracked, b.Ptr-driver.Pointer(4096-512)); ok {
		t.Error("the start of the block below is taken for a block")
	}
	check(t, layer.NewCounter(tracked), b, 1000)
	tracked.Free(keep)
	for name, a := range map[string]mem.Allocator{
		"align":    layer.NewAligner(newCaching(t, dev), 4096, layer.AlignerOptions{}),
		"guard":    layer.NewGuard(newCaching(t, dev), layer.GuardOptions{}),
		"slab":     layer.NewSlabs(newCaching(t, dev), 4096, 16),
		"fallback": layer.NewFallback(layer.NewLimiter(newCaching(t, dev), 0), newCaching(t, dev)),
		"binning":  layer.NewBinning(fake.NewPile(256), layer.Bin{Size: 1 << 20, Allocator: newCaching(t, dev)}),
	} {
		t.Run(name, func(t *testing.T) { check(t, a, mustAllocOn(t, a, s, 1000), 1000) })
	}
}

// Goroutines that allocate while the owner retires either get their blocks or hear that it is over; the last one to
// come back ends it, once, when all is back below.
func TestTrackedRetiresUnderLoad(t *testing.T) {
	for range 50 {
		below := &countedBump{}
		a := layer.NewSizeTracker(below, layer.SizeTrackerOptions{})
		var ended atomic.Int64
		var at mem.Usage
		var all, begun sync.WaitGroup
		begun.Add(4)
		for i := range 4 {
			all.Go(func() {
				defer func() { _ = recover() }() // Alloc after Retire
				var first sync.Once
				for n := int64(1); ; n++ {
					b, err := a.Alloc(fake.Stream{Number: driver.StreamID(i)}, n)
					if err != nil {
						t.Error(err)
						return
					}
					first.Do(begun.Done)
					if a.RequestedSize(b) != n || a.AllocationID(b) == 0 || a.Usage().Blocks.Current < 1 {
						t.Errorf("%+v: %d bytes asked for", b, a.RequestedSize(b))
					}
					a.Free(b)
				}
			})
		}
		begun.Wait()
		a.Retire(func(s mem.Usage) {
			if at = s; below.live.Load() != 0 {
				t.Errorf("it ends with %d live blocks", below.live.Load())
			}
			ended.Add(1)
		})
		all.Wait()
		if n := ended.Load(); n != 1 || at.Blocks.Current != 0 || at.Blocks.Allocated < 4 || at != a.Usage() {
			t.Fatalf("it has ended %d times, with %+v", n, at)
		}
	}
}

// countedBump counts the blocks that are live.
type countedBump struct {
	bump
	live atomic.Int64
}

func (l *countedBump) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	l.live.Add(1)
	return l.bump.Alloc(s, size)
}

func (l *countedBump) Free(mem.Block, ...driver.Stream) { l.live.Add(-1) }

// A panic below leaves nothing live.
func TestTrackedAfterAPanicBelow(t *testing.T) {
	a := layer.NewSizeTracker(buggy{}, layer.SizeTrackerOptions{})
	testkit.Panic(t, func() { a.Alloc(fake.S0, 1000) })
	ended := false
	a.Retire(func(mem.Usage) { ended = true })
	if !ended || a.Usage() != (mem.Usage{}) {
		t.Errorf("ended: %v, with %+v", ended, a.Usage())
	}
	layer.NewSizeTracker(buggy{}, layer.SizeTrackerOptions{}).Retire(nil)
}
