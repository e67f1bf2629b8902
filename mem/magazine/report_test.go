package magazine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
)

// Held blocks are free in reports of the Cache and live in reports of the allocator below, and accumulated counters
// count the calls of the Cache.
func TestReportsKnowWhatIsHeld(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	_, below := over(t, dev, "", magazine.Options{})
	c := newSingle(below, magazine.Options{})
	s := dev.DefaultStream()
	stats, _ := mem.Find[mem.StatsReporter](c)
	snapshots, _ := mem.Find[mem.Snapshotter](c)
	want := func(when string, onLoan, requested, allocated, freed int64) {
		t.Helper()
		now := stats.Stats()
		if n := now.Allocation.All; n.Current != onLoan+1 || n.Allocated != allocated || n.Freed != freed {
			t.Errorf("%s: allocation %+v, want %d, %d, %d", when, n, onLoan, allocated, freed)
		}
		if now.Allocation.SmallPool != now.Allocation.All {
			t.Errorf("%s: %+v in the small pool, %+v in all", when, now.Allocation.SmallPool, now.Allocation.All)
		}
		if n := now.RequestedBytes.All.Current; n != 512+requested {
			t.Errorf("%s: %d bytes requested, want %d", when, n, requested)
		}
		if now.InactiveSplitBytes.All.Current+now.ActiveBytes.All.Current != now.ReservedBytes.All.Current {
			t.Errorf("%s: inactive %d and active %d bytes are not the reserved %d", when,
				now.InactiveSplitBytes.All.Current, now.ActiveBytes.All.Current, now.ReservedBytes.All.Current)
		}
	}
	if _, err := below.Alloc(s, 512); err != nil { // keeps the segment in pieces
		t.Fatal(err)
	}
	a, b := mustAlloc(t, c, s, 1000), mustAlloc(t, c, s, 1000)
	c.Free(a)
	c.Free(b)
	want("two held", 0, 0, 3, 2)
	if n := below.Stats().Allocation.All.Current; n != 3 {
		t.Errorf("%d blocks are live below, want 3", n)
	}
	a = mustAlloc(t, c, s, 600)
	want("one allocated again", 1, 600, 4, 2)
	for _, seg := range snapshots.Snapshot() {
		if seg.AllocatedSize != 512+a.Size || seg.RequestedSize != 512+600 || len(seg.Blocks) != 4 {
			t.Errorf("the segment is %+v", seg)
		}
		for _, blk := range seg.Blocks[1:] {
			if live := blk.Ptr == a.Ptr; live != (blk.State == mem.ActiveAllocated) || live && blk.RequestedSize != 600 {
				t.Errorf("of %+v, live %v", blk, live)
			}
		}
	}
	stats.ResetAccumulatedStats()
	want("reset", 1, 600, 0, 0)
	c.Flush()
	want("flushed", 1, 600, 0, 0)
	c.Free(a, s)
	want("freed", 0, 0, 0, 1)
	c.Free(mustAlloc(t, c, s, 1000))
	c.Free(mustAlloc(t, c, s, 900))
	want("two pairs", 0, 0, 2, 3)
	stats.ResetPeakStats()
	if p := stats.Stats().Allocation.All.Peak; p != 2 {
		t.Errorf("with one block held the peak is reset to %d", p)
	}
}

// A slow allocator waits in the middle of the first Free.
type slow struct {
	mem.Allocator
	first   sync.Once
	reached chan struct{} // closed when that Free is under way
	release chan struct{}
}

func (s *slow) Free(b mem.Block, used ...driver.Stream) {
	s.Allocator.Free(b, used...)
	s.first.Do(func() {
		close(s.reached)
		<-s.release
	})
}

func (s *slow) Unwrap() mem.Allocator { return s.Allocator }

// Blocks that are on their way back to the allocator below are live in no report.
func TestStatsWhileBlocksLeave(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	inner, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	below := &slow{Allocator: inner, reached: make(chan struct{}), release: make(chan struct{})}
	c := magazine.New(below, magazine.Options{})
	var blocks []mem.Block
	for range 100 {
		blocks = append(blocks, mustAlloc(t, c, dev.DefaultStream(), 512))
	}
	for _, b := range blocks[1:] {
		c.Free(b)
	}
	flushed := make(chan struct{})
	go func() { c.Flush(); close(flushed) }()
	<-below.reached
	counted := make(chan int64)
	go func() {
		stats, _ := mem.Find[mem.StatsReporter](c)
		counted <- stats.Stats().Allocation.All.Current
	}()
	var n int64
	select {
	case n = <-counted: // at once, or
		close(below.release)
	case <-time.After(20 * time.Millisecond): // when the blocks are back
		close(below.release)
		n = <-counted
	}
	if n != 1 {
		t.Errorf("%d live blocks, want the one that is", n)
	}
	<-flushed
	c.Free(blocks[0])
}
