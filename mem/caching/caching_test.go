package caching_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// Peaks of sums over streams must be exact although no stream looks at the others: a second account, kept from events,
// says what they are.
func TestPeaksOverStreamsAreExact(t *testing.T) {
	for seed := range uint64(30) {
		b := newBench(t, gib, "")
		r := rand.New(rand.NewPCG(seed, 0))
		streams := []driver.Stream{b.s, b.stream(), b.stream(), b.stream()}
		streams = streams[:1+r.IntN(4)]
		type account struct{ now, peak int64 }
		var count, bytes, requested, active, activeBytes account
		add := func(a *account, n int64) {
			a.now += n
			a.peak = max(a.peak, a.now)
		}
		type owned struct {
			mem.Block
			asked int64
			s     driver.Stream
		}
		var live, waiting []owned
		side := b.stream()
		for step := range 600 {
			switch {
			case len(live) == 0 || r.IntN(5) < 2+step/200%2:
				size := 1 + r.Int64N(3*mib)
				s := streams[r.IntN(len(streams))]
				// Whatever is pending is noticed as done at the next request.
				for _, w := range waiting {
					add(&active, -1)
					add(&activeBytes, -w.Size)
					add(&requested, -w.asked)
				}
				waiting = nil
				o := owned{b.allocOn(s, size), size, s}
				live = append(live, o)
				add(&count, 1)
				add(&bytes, o.Size)
				add(&requested, size)
				add(&active, 1)
				add(&activeBytes, o.Size)
			case step%97 == 0:
				b.ResetPeakStats()
				for _, a := range []*account{&count, &bytes, &requested, &active, &activeBytes} {
					a.peak = a.now
				}
			default:
				i := r.IntN(len(live))
				o := live[i]
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				add(&count, -1)
				add(&bytes, -o.Size)
				if r.IntN(4) == 0 {
					b.Free(o.Block, side)
					waiting = append(waiting, o)
				} else {
					b.Free(o.Block)
					add(&requested, -o.asked)
					add(&active, -1)
					add(&activeBytes, -o.Size)
				}
			}
			if r.IntN(20) == 0 || step == 599 { // not after every step: asking folds
				s := b.Stats()
				for name, pair := range map[string][2]int64{
					"allocation":      {s.Allocation.All.Peak, count.peak},
					"allocated_bytes": {s.AllocatedBytes.All.Peak, bytes.peak},
					"requested_bytes": {s.RequestedBytes.All.Peak, requested.peak},
					"active":          {s.Active.All.Peak, active.peak},
					"active_bytes":    {s.ActiveBytes.All.Peak, activeBytes.peak},
				} {
					if pair[0] != pair[1] {
						t.Fatalf("seed %d, %d streams, step %d: peak of %s is %d, want %d", seed, len(streams), step, name, pair[0], pair[1])
					}
				}
			}
		}
	}
}

// A block that comes back after the last wait is used, where PyTorch runs out of memory (its issue 189504).
func TestTheCacheIsSearchedAgainAfterTheLastWait(t *testing.T) {
	for _, exact := range []string{"False", "True"} {
		b := newBench(t, gib, "limit:40MiB,pytorch-exact:"+exact)
		side := b.stream()
		b.dev.Hold(side.ID())
		b.Free(b.alloc(40 * mib))
		keep, waits := b.alloc(20*mib), b.alloc(20*mib)
		if err := side.Fill(waits.Ptr, 1, 1); err != nil {
			t.Fatal(err)
		}
		b.Free(waits, side)
		if exact == "True" {
			oom := b.fails(20 * mib)
			testkit.Equal(t, "the largest free block", oom.LargestFree, 20*mib)
			continue
		}
		again := b.alloc(20 * mib)
		testkit.Equal(t, "the address", again.Ptr, waits.Ptr)
		testkit.Equal(t, "retries", b.Stats().NumAllocRetries, 0)
		b.Free(again)
		b.Free(keep)
	}
}

// Behaviour of record_stream: a block is not used again before the other stream is done, and then it is.
func TestBehaviour30_PendingBlocksComeBackWhenTheOtherStreamIsDone(t *testing.T) {
	b := newBench(t, gib, "")
	side, other := b.stream(), b.stream()
	b.dev.Hold(side.ID())
	block := b.alloc(5 * mib)
	if err := side.Fill(block.Ptr, 1, 1); err != nil {
		t.Fatal(err)
	}
	b.Free(block, b.s, side, side)
	next := b.alloc(5 * mib)
	if next.Ptr == block.Ptr {
		t.Fatal("the block was used again while the other stream uses it")
	}
	testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 2)
	b.dev.Resume(side.ID())
	b.Free(b.allocOn(other, 512)) // a request on any stream notices
	testkit.Equal(t, "active blocks once it is done", b.Stats().Active.All.Current, 1)
	again := b.alloc(5 * mib)
	testkit.Equal(t, "the address", again.Ptr, block.Ptr)
	b.Free(next)
	b.Free(again)
}

// A stream with long work does not keep blocks from coming back that wait for another (PyTorch issue 71616).
func TestPendingBlocksOfOneStreamDoNotWaitForAnother(t *testing.T) {
	b := newBench(t, gib, "")
	slow, quick := b.stream(), b.stream()
	b.dev.Hold(slow.ID())
	first, second := b.alloc(mib), b.alloc(mib)
	if err := slow.Fill(first.Ptr, 1, 1); err != nil {
		t.Fatal(err)
	}
	b.Free(first, slow)
	b.Free(second, quick)
	b.ProcessPending()
	testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 1)
}

// While requests go to a private pool, no mark is taken or asked for; what is pending comes back afterwards.
func TestPendingBlocksWaitForTheEndOfACapture(t *testing.T) {
	b := newBench(t, gib, "")
	side := b.stream()
	block := b.alloc(mib)
	pool := mem.PoolID{1, 0}
	b.BeginAllocateToPool(pool, func(s driver.Stream) bool { return s == side })
	before := b.dev.Calls()
	b.Free(block, side)
	inside := b.allocOn(side, mib)
	outside := b.alloc(512)
	if err := b.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	after := b.dev.Calls()
	testkit.Equal(t, "marks taken", after[sim.CallMark].Count, before[sim.CallMark].Count)
	testkit.Equal(t, "marks asked for", after[sim.CallReached].Count, before[sim.CallReached].Count)
	testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 3)
	b.EndAllocateToPool(pool)
	b.ProcessPending()
	testkit.Equal(t, "active blocks afterwards", b.Stats().Active.All.Current, 2)
	b.Free(inside)
	b.Free(outside)
	b.ReleasePool(pool)
	b.emptyCache()
	testkit.Equal(t, "reserved in the end", b.Stats().ReservedBytes.All.Current, 0)
}

func TestLowMemoryCallbacksComeBeforeTheDriver(t *testing.T) {
	b := newBench(t, gib, "")
	hoard := b.alloc(30 * mib)
	asked := 0
	b.OnLowMemory("test", func() bool {
		asked++
		if hoard == (mem.Block{}) {
			return false
		}
		b.Free(hoard)
		hoard = mem.Block{}
		return true
	})
	block := b.alloc(30 * mib)
	testkit.Equal(t, "callbacks", asked, 1)
	testkit.Equal(t, "segments", b.Stats().Segment.All.Current, 1)
	other := b.alloc(30 * mib)
	testkit.Equal(t, "callbacks that freed nothing", asked, 2)
	testkit.Equal(t, "segments", b.Stats().Segment.All.Current, 2)
	b.Free(block)
	b.Free(other)
}

func TestThrowOnOOMGivesNothingBack(t *testing.T) {
	b := newBench(t, gib, "limit:100MiB,throw_on_cudamalloc_oom:True")
	b.Free(b.alloc(60 * mib))
	b.fails(80 * mib)
	s := b.Stats()
	testkit.Equal(t, "reserved", s.ReservedBytes.All.Current, 60*mib)
	testkit.Equal(t, "rejections", s.NumOOMRejections, 1)
	testkit.Equal(t, "retries", s.NumAllocRetries, 0)
}

// Oversize blocks: not cut up, not given to small requests, given back one by one when there is no room.
func TestOversizeBlocks(t *testing.T) {
	b := newBench(t, gib, "max_split_size_mb:40,max_non_split_rounding_mb:25,limit:200MiB")
	b.Free(b.alloc(100 * mib))
	s := b.Stats()
	testkit.Equal(t, "oversize segments", s.OversizeSegments.Current, 1)
	testkit.Equal(t, "oversize allocations ever", s.OversizeAllocations.Allocated, 1)
	testkit.Equal(t, "oversize allocations now", s.OversizeAllocations.Current, 0)
	small := b.alloc(30 * mib)
	testkit.Equal(t, "segments after a small request", b.Stats().Segment.All.Current, 2)
	near := b.alloc(80 * mib)
	testkit.Equal(t, "a near size gets the block whole", near.Size, 100*mib)
	b.Free(near)
	far := b.alloc(70 * mib)
	testkit.Equal(t, "a far size gets a block of its own", far.Size, 70*mib)
	testkit.Equal(t, "and there was room for both", b.Stats().NumDeviceFree, 0)
	b.Free(far)
	all := b.alloc(160 * mib)
	testkit.Equal(t, "segments given back for a large request", b.Stats().NumDeviceFree, 2)
	testkit.Equal(t, "without emptying the cache", b.Stats().NumAllocRetries, 0)
	b.Free(all)
	b.Free(small)
}

// For a large request only as many oversize blocks are released as make up its size. A block of max_split_size is one.
func TestOversizeBlocksJustEnough(t *testing.T) {
	for _, c := range []struct{ size, givenBack int64 }{{160 * mib, 2}, {200 * mib, 3}} {
		b := newBench(t, gib, "max_split_size_mb:40,limit:200MiB")
		var blocks []mem.Block
		for _, size := range []int64{100 * mib, 60 * mib, 40 * mib} {
			blocks = append(blocks, b.alloc(size))
		}
		for _, block := range blocks {
			b.Free(block)
		}
		all := b.alloc(c.size)
		testkit.Equal(t, "segments given back", b.Stats().NumDeviceFree, c.givenBack)
		testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 200*mib)
		testkit.Equal(t, "without emptying the cache", b.Stats().NumAllocRetries, 0)
		if c.givenBack == 2 {
			b.Free(b.alloc(40 * mib))
			testkit.Equal(t, "segments made", b.Stats().NumDeviceAlloc, 4)
		}
		b.Free(all)
	}
}

func TestGarbageCollectionFreesTheLongestUnused(t *testing.T) {
	b := newBench(t, gib, "garbage_collection_threshold:0.5,limit:208MiB")
	old, young := b.alloc(40*mib), b.alloc(44*mib)
	b.Free(old)
	for range 10 {
		b.Free(b.alloc(39 * mib)) // uses the old block, which is young then
	}
	b.Free(young)
	for range 20 {
		b.Free(b.alloc(43 * mib))
	}
	big := b.alloc(60 * mib) // 84 MiB are reserved: under the threshold
	testkit.Equal(t, "segments given back", b.Stats().NumDeviceFree, 0)
	more := b.alloc(70 * mib) // 144 MiB are: the block of 40 MiB has not been used for longest
	testkit.Equal(t, "segments given back", b.Stats().NumDeviceFree, 1)
	testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 174*mib)
	b.Free(big)
	b.Free(more)
}

// The error must give the figures and the remedies.
func TestOutOfMemoryExplains(t *testing.T) {
	b := newBench(t, gib, "limit:400MiB")
	side := b.stream()
	b.Free(b.allocOn(side, 100*mib))
	pinned := b.alloc(100 * mib)
	keep := b.allocOn(side, 2*mib) // cuts the 100 MiB
	hog := b.alloc(200 * mib)
	b.Free(hog)
	pin := b.alloc(30 * mib) // cuts the 200 MiB
	oom := b.fails(180 * mib)
	testkit.Equal(t, "requested", oom.Requested, 180*mib)
	testkit.Equal(t, "segment", oom.Segment, 180*mib)
	testkit.Equal(t, "allowed", oom.Allowed, 400*mib)
	testkit.Equal(t, "allocated", oom.Allocated, 132*mib)
	testkit.Equal(t, "reserved", oom.Reserved, 400*mib)
	testkit.Equal(t, "the largest free block", oom.LargestFree, 170*mib)
	testkit.Equal(t, "stranded", oom.Stranded, 268*mib)
	if len(oom.Pinning) != 2 || oom.Pinning[0].Ptr != pin.Ptr || oom.Pinning[0].Stranded != 170*mib || oom.Pinning[1].Ptr != keep.Ptr {
		t.Errorf("pinning blocks: %+v", oom.Pinning)
	}
	names := ""
	for _, r := range oom.Remedies {
		names += r.Name + ";"
	}
	testkit.Equal(t, "remedies", names, "expandable_segments:True;max_split_size_mb:100;")
	for _, want := range []string{
		"Tried to allocate 180.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which 624.00 MiB is free. 400.00 MiB allowed; ",
		"132.00 MiB is allocated, and 268.00 MiB is reserved but unallocated.",
		"the request: 180.00 MiB (188743680 bytes) on stream 0, large pool; largest free block there: 170.00 MiB",
		"cached on stream 0, large pool: 170.00 MiB in 1 blocks, the largest 170.00 MiB",
		"cached on stream 1, large pool: 98.00 MiB in 1 blocks, the largest 98.00 MiB",
		"stranded: 268.00 MiB is free but shares a segment with blocks in use",
		fmt.Sprintf("a block of 30.00 MiB at %#x pins 170.00 MiB of a segment of 200.00 MiB", pin.Ptr),
		"would have fitted with expandable_segments:True",
	} {
		if !strings.Contains(oom.Error(), want) {
			t.Errorf("the message lacks %q:\n%v", want, oom)
		}
	}
	b.configure("expandable_segments:True")
	b.Free(pinned)
	b.Free(keep)
	b.Free(pin)
	oom = b.fails(500 * mib)
	if strings.Contains(oom.Error(), "expandable_segments:True") {
		t.Errorf("the message proposes what is on already:\n%v", oom)
	}
	other := newBench(t, gib, "limit:100MiB")
	otherSide := other.stream()
	x, y := other.allocOn(otherSide, 60*mib), mem.Block{}
	other.Free(x)
	y = other.allocOn(otherSide, 2*mib)
	if oom := other.fails(50 * mib); len(oom.Remedies) == 0 || oom.Remedies[0].Name != "the cache of stream 1" {
		t.Errorf("remedies: %+v", oom.Remedies)
	}
	other.Free(y)
}

// A crowded device reports the processes that use it.
type crowded struct {
	driver.Device
	processes []driver.ProcessMemory
	err       error
	asked     int
}

func (d *crowded) Processes() ([]driver.ProcessMemory, error) {
	d.asked++
	return d.processes, d.err
}

// The error names the processes that the device reports, in one call with no lock held; if a device cannot report them,
// the rest of the error is the same.
func TestOutOfMemoryTellsWhoHasTheDevice(t *testing.T) {
	dev := &crowded{Device: drivertest.OpenSim(t, gib), processes: []driver.ProcessMemory{
		{PID: 12, Bytes: 3 * gib}, {PID: 77, Self: true, Bytes: 5 * mib}, {PID: 13, Bytes: -1},
	}}
	a := newAllocator(t, dev, "")
	_, err := a.Alloc(dev.DefaultStream(), 2*gib)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) {
		t.Fatalf("%v, want an *OutOfMemory", err)
	}
	testkit.Equal(t, "processes", fmt.Sprint(oom.Processes), fmt.Sprint([]mem.ProcessMemory{
		{PID: 12, Bytes: 3 * gib}, {PID: 77, Self: true, Bytes: 5 * mib},
	}))
	if want := "is free. Process 12 has 3.00 GiB memory in use. Including memory from elsewhere, this process has 5.00 MiB " +
		"memory in use. "; !strings.Contains(err.Error(), want) {
		t.Errorf("the message lacks %q:\n%v", want, err)
	}
	testkit.Equal(t, "questions", dev.asked, 1)
	if _, err := a.Alloc(dev.DefaultStream(), 1<<60); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("more than 1 EiB: %v", err)
	}
	testkit.Equal(t, "questions after a request that no device was asked for", dev.asked, 1)
	dev.err = &driver.Error{Call: "Processes", Code: driver.ErrLost}
	_, err = a.Alloc(dev.DefaultStream(), 2*gib)
	if !errors.As(err, &oom) || len(oom.Processes) != 0 || errors.Is(err, driver.ErrLost) {
		t.Errorf("with a device that fails to tell: %v", err)
	}
}

func TestMisusePanicsAndNothingIsLost(t *testing.T) {
	b, other := newBench(t, gib, ""), newBench(t, gib, "")
	block := b.alloc(512)
	foreign := other.alloc(512)
	side := b.stream()
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = b.Alloc(b.s, -1) }), "caching: Alloc of -1 bytes")
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(mem.Block{Ptr: block.Ptr + 512, Size: 512, Tag: block.Tag}) }),
		"not live")
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(mem.Block{Ptr: block.Ptr}) }), "did not make")
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(mem.Block{Ptr: 1, Tag: 1 << 60}) }), "not live")
	b.Free(block)
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(block) }), "not live")
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(block, side) }), "not live")
	again := b.alloc(512)
	testkit.Equal(t, "the address", again.Ptr, block.Ptr)
	// the old block has the address of the new one
	testkit.Contains(t, testkit.Panic(t, func() { b.Free(block) }), "not live")
	b.Free(again)
	testkit.Contains(t, testkit.Panic(t, func() { b.EndAllocateToPool(mem.PoolID{0, 1}) }), "no requests go to pool")
	testkit.Contains(t, testkit.Panic(t, func() { b.ReleasePool(mem.PoolID{0, 1}) }), "has no users")
	testkit.Contains(t, testkit.Panic(t, func() { b.BeginAllocateToPool(mem.PoolID{}, nil) }), "the default pool")
	b.Free(b.alloc(mib))
	other.Free(foreign)
}

func TestCloseGivesEverythingBack(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		b := newBench(t, gib, settings)
		block := b.alloc(30 * mib)
		b.Free(b.alloc(mib))
		if err := b.Close(); err == nil || !strings.Contains(err.Error(), "1 blocks of 31457280 bytes are still live") {
			t.Errorf("Close with a live block: %v", err)
		}
		b.Free(block)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if leaks := b.dev.Leaks(); len(leaks.Allocations)+len(leaks.Reservations)+len(leaks.Pages) != 0 {
			t.Errorf("after Close the device holds %v", leaks)
		}
		if _, err := b.Alloc(b.s, 1); !errors.Is(err, caching.ErrClosed) {
			t.Errorf("Alloc after Close: %v", err)
		}
		if err := b.EmptyCache(); !errors.Is(err, caching.ErrClosed) {
			t.Errorf("EmptyCache after Close: %v", err)
		}
	}
}

// A destroyed stream must not break later work: neither its cached blocks, nor frees that wait for it, nor a stream
// that gets its number.
func TestBehaviour81_DestroyedStreams(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		b := newBench(t, gib, settings)
		gone := b.stream()
		id := gone.ID()
		block, waits := b.allocOn(gone, 30*mib), b.alloc(mib)
		b.Free(waits, gone)
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
		b.Free(block)
		heir := b.stream()
		testkit.Equal(t, "the number of the next stream", heir.ID(), id)
		again := b.allocOn(heir, 30*mib)
		testkit.Equal(t, "the address", again.Ptr, block.Ptr)
		if err := heir.Fill(again.Ptr, 1, again.Size); err != nil {
			t.Fatal(err)
		}
		b.Free(again)
		if err := heir.Close(); err != nil {
			t.Fatal(err)
		}
		b.emptyCache()
		testkit.Equal(t, "reserved in the end", b.Stats().ReservedBytes.All.Current, 0)
	}
}

func TestBaseAllocation(t *testing.T) {
	b := newBench(t, gib, "")
	first, second := b.alloc(3*mib), b.alloc(4*mib)
	ptr, size, err := b.BaseAllocation(second)
	if err != nil || ptr != first.Ptr || size != 20*mib {
		t.Errorf("BaseAllocation = %#x, %d, %v; want the segment of 20 MiB at %#x", ptr, size, err, first.Ptr)
	}
	b.Free(first)
	b.Free(second)
	b.configure("expandable_segments:True")
	b.emptyCache()
	block := b.alloc(mib)
	if _, _, err := b.BaseAllocation(block); err == nil || !strings.Contains(err.Error(), "expandable_segments:False") {
		t.Errorf("BaseAllocation of an expandable block: %v", err)
	}
	b.Free(block)
	testkit.Contains(t, testkit.Panic(t, func() { _, _, _ = b.BaseAllocation(block) }), "not live")
	testkit.Equal(t, "the largest free block", b.LargestFree(), 2*mib)
}

func TestExpandableSegmentsNeedVirtualMemory(t *testing.T) {
	cfg := caching.Default()
	cfg.ExpandableSegments = true
	_, err := caching.New(sim.New(sim.Options{Total: gib, NoVirtualMemory: true}), cfg)
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("New = %v, want ErrUnsupported", err)
	}
}

// Events come in one order over all streams and report every change.
func TestObserverHearsEverything(t *testing.T) {
	b := newBench(t, gib, "limit:21MiB")
	side := b.stream()
	var heard []string
	b.Observe(func(e mem.Event) { heard = append(heard, fmt.Sprintf("%v %d s%d", e.Action, e.Size, e.Stream)) })
	block := b.allocOn(side, 12*mib-1)
	b.Free(block, b.s)
	b.fails(30 * mib)
	b.Snapshot()
	b.Observe(nil)
	b.Free(b.alloc(1))
	testkit.Equal(t, "events", strings.Join(heard, ", "), "segment_alloc 12582912 s1, alloc 12582911 s1, free_requested 12582911 s1, "+
		"free_completed 12582911 s1, segment_free 12582912 s1, oom 31457280 s0, snapshot 0 s0")
}

// A free whose mark cannot be taken keeps its block until it can.
func TestAFreeWhoseMarkFailsStaysPending(t *testing.T) {
	dev := fault.Wrap(drivertest.OpenSim(t, gib))
	a := newAllocator(t, dev, "")
	s := dev.DefaultStream()
	side := drivertest.NewStream(t, dev)
	block, err := a.Alloc(s, mib)
	if err != nil {
		t.Fatal(err)
	}
	dev.SetRules(fault.Rule{Kind: "Stream.Mark", Nth: 1, Onwards: true, Code: driver.ErrLost})
	a.Free(block, side)
	a.ProcessPending()
	testkit.Equal(t, "active blocks", a.Stats().Active.All.Current, 1)
	dev.SetRules()
	a.ProcessPending()
	testkit.Equal(t, "active blocks once marks can be taken", a.Stats().Active.All.Current, 0)
}
