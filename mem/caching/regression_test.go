package caching_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// Each test here failed once, against the code of its day.

func everyStream(driver.Stream) bool { return true }

// The front of a split segment must not be given back as though it were the segment.
func TestOversizeBlocksThatWereSplitBeforeStay(t *testing.T) {
	b := newBench(t, gib, "limit:220MiB")
	b.Free(b.alloc(200 * mib))
	front, back := b.alloc(100*mib), b.alloc(100*mib)
	b.Free(front)
	b.configure("max_split_size_mb:64")
	b.fails(150 * mib)
	if err := b.s.Fill(back.Ptr, 1, back.Size); err != nil {
		t.Error("a live block's memory is gone:", err)
	}
	testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 200*mib)
	b.Free(back)
}

// A free waits for the stream that it was given, not for a closed one that had the same number.
func TestAFreeWaitsForTheHeirOfAStreamNumber(t *testing.T) {
	b := newBench(t, gib, "limit:2MiB")
	old := b.stream()
	first, second, keep := b.alloc(mib/2), b.alloc(mib/2), b.alloc(mib)
	b.Free(first, old)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	heir := b.stream()
	testkit.Equal(t, "the number", heir.ID(), old.ID())
	b.dev.Hold(heir.ID())
	if err := heir.Fill(second.Ptr, 1, second.Size); err != nil {
		t.Fatal(err)
	}
	b.Free(second, old, heir)
	both := b.alloc(mib) // takes the two together, so it has to wait for the heir
	if err := b.s.Fill(both.Ptr, 2, both.Size); err != nil {
		t.Error(err)
	}
	b.Free(both)
	b.Free(keep)
}

// Pages are not unmapped under the work of a stream that has the number of the block's own, closed one.
func TestUnmappingWaitsForTheHeirOfAStreamNumber(t *testing.T) {
	b := newBench(t, gib, "expandable_segments:True")
	old := b.stream()
	block := b.allocOn(old, 40*mib)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	heir := b.stream()
	b.dev.Hold(heir.ID())
	if err := heir.Fill(block.Ptr, 1, 1); err != nil {
		t.Fatal(err)
	}
	b.Free(block, heir)
	b.emptyCache()
	testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 0)
}

// Nor are they under the work of such a stream that allocated the block itself, from the free memory of the closed one.
func TestUnmappingWaitsForTheHeirThatAllocates(t *testing.T) {
	b := newBench(t, gib, "expandable_segments:True")
	old := b.stream()
	b.Free(b.allocOn(old, 40*mib))
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	heir := b.stream()
	block := b.allocOn(heir, 40*mib)
	b.dev.Hold(heir.ID())
	if err := heir.Fill(block.Ptr, 1, 1); err != nil {
		t.Fatal(err)
	}
	b.Free(block)
	b.emptyCache()
	testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 0)
}

// A private pool that ends while a request of it waits for the driver is not forgotten.
func TestAPoolThatEndsDuringARequestIsNotForgotten(t *testing.T) {
	onAlloc := func() {} // called once, in the middle of an Alloc
	dev := intercept.Wrap(drivertest.OpenSim(t, gib), func(c intercept.Call, next func() error) error {
		if f := onAlloc; c.Kind == intercept.Alloc {
			onAlloc = func() {}
			f()
		}
		return next()
	})
	a := newAllocator(t, dev, "release_lock_on_cudamalloc:True")
	id := mem.PoolID{1, 0}
	a.BeginAllocateToPool(id, everyStream)
	onAlloc = func() {
		if err := a.Check(); err != nil {
			t.Error(err)
		}
		a.EndAllocateToPool(id)
		a.ReleasePool(id)
		if err := a.EmptyCache(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err == nil || !strings.Contains(err.Error(), "waits for 2097152 bytes") {
			t.Errorf("Close during a request: %v", err)
		}
	}
	block, err := a.Alloc(dev.DefaultStream(), mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(block)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "reserved", a.Stats().ReservedBytes.All.Current, 0)
}

func TestAPoolThatEndsInACallbackIsNotForgotten(t *testing.T) {
	b := newBench(t, gib, "")
	id := mem.PoolID{1, 0}
	b.BeginAllocateToPool(id, everyStream)
	b.OnLowMemory("test", func() bool {
		b.EndAllocateToPool(id)
		b.ReleasePool(id)
		return b.EmptyCache() != nil
	})
	b.Free(b.alloc(mib))
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnAllocatorClosedInACallbackStaysClosed(t *testing.T) {
	b := newBench(t, gib, "")
	b.OnLowMemory("test", func() bool { return b.Close() != nil })
	if _, err := b.Alloc(b.s, mib); !errors.Is(err, caching.ErrClosed) {
		t.Errorf("Alloc = %v, want ErrClosed", err)
	}
	testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 0)
}

func TestACloseThatFailsChangesNothing(t *testing.T) {
	b := newBench(t, gib, "")
	id := mem.PoolID{1, 0}
	b.BeginAllocateToPool(id, everyStream)
	graphs := b.alloc(mib)
	b.Free(graphs) // a captured graph uses it at each replay
	b.EndAllocateToPool(id)
	live := b.alloc(mib)
	if err := b.Close(); err == nil {
		t.Error("Close with a live block succeeded")
	}
	if err := b.s.Fill(graphs.Ptr, 1, 1); err != nil {
		t.Error("a Close that failed gave back the memory of a pool in use:", err)
	}
	b.Free(live)
	b.ReleasePool(id)
}

func TestAPoolIsNotReleasedUnderACapture(t *testing.T) {
	b := newBench(t, gib, "")
	id := mem.PoolID{1, 0}
	b.BeginAllocateToPool(id, everyStream)
	testkit.Contains(t, testkit.Panic(t, func() { b.ReleasePool(id) }), "requests still go to pool")
	b.Free(b.alloc(1))
	b.EndAllocateToPool(id)
	b.ReleasePool(id)
}

// Memory that a private pool could not give back is not lost with the pool.
func TestAPoolWhoseReservationStaysIsNotForgotten(t *testing.T) {
	inner := drivertest.OpenSim(t, gib)
	dev := fault.Wrap(inner)
	a := newAllocator(t, dev, "expandable_segments:True")
	id := mem.PoolID{1, 0}
	a.BeginAllocateToPool(id, everyStream)
	block, err := a.Alloc(dev.DefaultStream(), mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(block)
	a.EndAllocateToPool(id)
	a.ReleasePool(id)
	dev.SetRules(fault.Rule{Kind: intercept.Release, Nth: 1})
	if err := a.EmptyCache(); err == nil {
		t.Error("EmptyCache did not tell of the failure")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "reservations left", len(inner.Leaks().Reservations), 0)
}

// A program that captures graphs for ever does not fill the allocator up.
func TestPoolsThatAreGoneLeaveNothing(t *testing.T) {
	b := newBench(t, gib, "")
	for i := range uint64(70_000) {
		id := mem.PoolID{i + 1, 0}
		b.BeginAllocateToPool(id, everyStream)
		block := b.alloc(512)
		b.EndAllocateToPool(id)
		b.Free(block)
		b.ReleasePool(id)
		if i%100 == 99 {
			b.emptyCache()
			if reserved := b.Stats().ReservedBytes.All.Current; reserved != 0 {
				t.Fatalf("after %d captures %d bytes stay reserved", i+1, reserved)
			}
		}
	}
}

func TestARequestLargerThanItsReservationLeavesNone(t *testing.T) {
	b := newBench(t, gib, "expandable_segments:True,throw_on_cudamalloc_oom:True")
	for range 5 {
		b.fails(2 * gib)
	}
	testkit.Equal(t, "reservations", len(b.dev.Leaks().Reservations), 0)
}

func TestHugeRoundUpsDoNotOverflow(t *testing.T) {
	b := newBench(t, gib, "roundup_power2_divisions:36028797018963968")
	block := b.alloc(100)
	testkit.Equal(t, "the block's size", block.Size, 512)
	b.Free(block)
}

func TestAnExbibyteIsTooMuch(t *testing.T) {
	testkit.Equal(t, "refused at once", newBench(t, gib, "").fails(1<<60).TooLarge, true)
}

func TestLargeSegmentsHaveABound(t *testing.T) {
	cfg := caching.Default()
	cfg.LargeSegmentSize = 2 << 40
	if _, err := caching.New(drivertest.OpenSim(t, gib), cfg); err == nil {
		t.Error("segments of 2 TiB were accepted")
	}
}

// Oversize follows the current split limit, also for blocks allocated under another limit.
func TestOversizeCountersFollowTheSplitLimit(t *testing.T) {
	b := newBench(t, gib, "")
	block := b.alloc(100 * mib)
	b.configure("max_split_size_mb:64")
	testkit.Equal(t, "oversize allocations", b.Stats().OversizeAllocations.Current, 1)
	testkit.Equal(t, "oversize segments", b.Stats().OversizeSegments.Current, 1)
	b.Free(block)
	testkit.Equal(t, "oversize allocations after the free", b.Stats().OversizeAllocations.Current, 0)
	testkit.Equal(t, "freed", b.Stats().OversizeAllocations.Freed, 1)
	b.configure("")
	testkit.Equal(t, "oversize segments without a limit", b.Stats().OversizeSegments.Current, 0)
}

// Each string changes the settings it names, under either name, and is checked against the settings in force.
func TestSettingsAtRunTime(t *testing.T) {
	b := newBench(t, gib, "large_segment_size_mb:12")
	b.configure("release_lock_on_hipmalloc:True")
	testkit.Equal(t, "ReleaseLock", b.Config().ReleaseLock, true)
	b.configure("max_split_size_mb:16")
	testkit.Equal(t, "the split limit", b.Config().MaxSplitSize, 16*mib)
	testkit.Equal(t, "ReleaseLock stays", b.Config().ReleaseLock, true)
	testkit.Equal(t, "the large segment size stays", b.Config().LargeSegmentSize, 12*mib)
	b.configure("max_split_size_mb:16,large_segment_size_mb:14")
	if _, err := b.ParseConfigure("max_split_size_mb:16,large_segment_size_mb:20"); err == nil {
		t.Error("a split limit below the large segment size was accepted")
	}
	testkit.Equal(t, "nothing changed", b.Config().LargeSegmentSize, 14*mib)
}

// A nil stream is the caller's bug, which is named, and must not leave locks behind.
func TestDefect02_NilStreamsAreNamed(t *testing.T) {
	b := newBench(t, gib, "")
	pool := b.NewPool(caching.PoolOptions{})
	block := b.alloc(1)
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(block, nil) }), "caching: Free with a nil stream")
	for _, size := range []int64{0, 1, gib} {
		testkit.Contains(t, testkit.Panic(t, func() { _, _ = b.Alloc(nil, size) }), "caching: Alloc on a nil stream")
		testkit.Contains(t, testkit.Panic(t, func() { _, _ = b.AllocWith(nil, size, mem.AllocOptions{NoRetry: true}) }),
			"caching: Alloc on a nil stream")
		testkit.Contains(t, testkit.Panic(t, func() { _, _ = pool.Alloc(nil, size) }), "caching: Alloc on a nil stream")
		testkit.Contains(t, testkit.Panic(t, func() {
			_, _ = pool.AllocWith(nil, size, mem.AllocOptions{NoRetry: true})
		}), "caching: Alloc on a nil stream")
	}
	testkit.Contains(t, testkit.Panic(t, func() { b.AllocAt(nil, mem.PoolID{}, block.Ptr, 1) }),
		"caching: AllocAt on a nil stream")
	b.Free(block)
	testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 0)
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

// A peak that another stream's block makes when it comes back counts.
func TestPeaksOfBlocksThatComeBack(t *testing.T) {
	b := newBench(t, gib, "")
	other, used := b.stream(), b.stream()
	var x, y [4]mem.Block
	for i := range x {
		x[i], y[i] = b.alloc(mib/2), b.allocOn(other, mib/2)
	}
	b.ResetPeakStats()
	b.Free(x[0])
	b.Free(y[0], used)
	b.ProcessPending()
	x[0] = b.alloc(mib / 2)
	testkit.Equal(t, "peak of inactive_split", b.Stats().InactiveSplit.All.Peak, 2)
}

// A peak that lasts only for a part of a request that fails counts.
func TestPeaksOfRequestsThatFail(t *testing.T) {
	b := newBench(t, 220*mib, "expandable_segments:True")
	other := b.stream()
	x1, x2, x3 := b.alloc(20*mib), b.alloc(20*mib), b.alloc(40*mib)
	b.alloc(20 * mib)
	b.Free(x1)
	b.Free(x3)
	b.emptyCache() // 40 MiB reserved
	b.Free(x2)
	b.Free(b.allocOn(other, 20*mib)) // 60
	b.ResetPeakStats()
	if _, err := b.dev.Alloc(220*mib - 60*mib - 25*mib); err != nil {
		t.Fatal(err)
	}
	b.fails(80 * mib) // maps 20 MiB, which makes 80, then finds no room, and gives 60 back
	testkit.Equal(t, "peak of reserved_bytes", b.Stats().ReservedBytes.All.Peak, 80*mib)
}

// Events of all streams come one at a time, also while observers come and go.
func TestObserversComeAndGo(t *testing.T) {
	b := newBench(t, 8*gib, "")
	var wg sync.WaitGroup
	stop := make(chan bool)
	for _, s := range []driver.Stream{b.s, b.stream(), b.stream()} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				block, err := b.Alloc(s, 512)
				if err != nil {
					t.Error(err)
					return
				}
				b.Free(block)
			}
		})
	}
	heard := 0 // the race detector watches it
	for range 500 {
		b.Observe(func(mem.Event) { heard++ })
		b.Observe(nil)
	}
	close(stop)
	wg.Wait()
}

// Requests and frees on four streams, from four goroutines, while settings change, captures begin and end, and the
// cache is emptied: nothing is lost and every invariant holds. It is for the race detector, too.
func TestConcurrentUseUnderChange(t *testing.T) {
	b := newBench(t, 2*gib, "")
	streams := []driver.Stream{b.s, b.stream(), b.stream(), b.stream()}
	settings := []string{
		"", "expandable_segments:True", "expandable_segments:False,max_split_size_mb:20,limit:600MiB",
		"garbage_collection_threshold:0.3,limit:400MiB",
	}
	var wg sync.WaitGroup
	stop := make(chan bool)
	wg.Go(func() {
		defer close(stop)
		r := rand.New(rand.NewPCG(99, 7))
		for i := range 400 {
			switch r.IntN(5) {
			case 0:
				if _, err := b.ParseConfigure(settings[r.IntN(len(settings))]); err != nil {
					t.Error(err)
				}
			case 1:
				id := mem.PoolID{uint64(1 + i%5), 0}
				k := r.IntN(4)
				b.BeginAllocateToPool(id, func(s driver.Stream) bool { return s == streams[k] })
				for range 3 {
					if block, err := b.Alloc(streams[k], 1+r.Int64N(3*mib)); err == nil {
						b.Free(block, streams[r.IntN(4)])
					}
				}
				b.EndAllocateToPool(id)
				b.ReleasePool(id)
			case 2:
				if err := b.EmptyCache(); err != nil {
					t.Error(err)
				}
			case 3:
				b.Stats()
				b.Snapshot()
			case 4:
				if err := b.Check(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			var live []mem.Block
			for {
				select {
				case <-stop:
					for _, block := range live {
						b.Free(block)
					}
					return
				default:
				}
				if len(live) < 30 && r.IntN(2) == 0 {
					size := 1 + r.Int64N(mib)
					if r.IntN(5) == 0 {
						size = 1 + r.Int64N(30*mib)
					}
					if block, err := b.Alloc(streams[r.IntN(4)], size); err == nil {
						live = append(live, block)
					}
				} else if len(live) > 0 {
					i := r.IntN(len(live))
					block := live[i]
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
					if r.IntN(3) == 0 {
						b.Free(block, streams[r.IntN(4)])
					} else {
						b.Free(block)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "reserved in the end", b.Stats().ReservedBytes.All.Current, 0)
}
