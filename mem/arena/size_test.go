package arena_test

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// The limit bounds the live bytes, rounded, children included; used and peak are counted as asked and as rounded.
func TestLimitsAndPeaks(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	w := newWorld(t, dev, arena.Config{Size: 1 << 20, Round: 1024, Limit: 10*kib + 512}, 1)
	s := w.streams[1]
	a := w.mustAlloc(w.root, s, 1, false)
	b := w.mustAlloc(w.root, s, 5*kib+1, false)
	if a.Size != kib || b.Size != 6*kib {
		t.Fatalf("blocks of %d and %d bytes: want whole KiB", a.Size, b.Size)
	}
	_, err := w.root.Alloc(s, 3*kib+1)
	oom := (*mem.OutOfMemory)(nil)
	if !errors.As(err, &oom) || oom.Allowed != 10*kib+512 || oom.Allocated != 7*kib || oom.Requested != 3*kib+1 || oom.Rounded != 4*kib ||
		len(oom.Remedies) != 1 || oom.Remedies[0].Name != "limit=11KiB" {
		t.Errorf("over the limit: %+v", err)
	}
	if _, err := w.root.Child(4 * kib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a child over the limit: %v", err)
	}
	w.free(w.mustAlloc(w.root, s, 3*kib, false))
	w.root.SetLimit(0)
	c := w.mustAlloc(w.root, s, 100*kib, false)
	w.root.SetLimit(5 * kib) // what is live stays so
	if w.root.Limit() != 5*kib {
		t.Errorf("Limit is %d", w.root.Limit())
	}
	w.free(c)
	w.free(b)
	st := w.root.Stats()
	if n := st.AllocatedBytes.All; n.Current != kib || n.Peak != 107*kib {
		t.Errorf("allocated: %+v: want 1 KiB now and 107 at most", n)
	}
	if n := st.RequestedBytes.All; n.Current != 1 || n.Peak != 1+5*kib+1+100*kib {
		t.Errorf("requested: %+v", n)
	}
	if st.NumOOMs != 2 {
		t.Errorf("%d OOMs, want 2", st.NumOOMs)
	}
	w.mustAlloc(w.root, s, 4*kib, false)
	w.finish()
}

// BMEngine subtracts the memory needed for moving from its limit; here it is allocated beside the region.
func TestWholeRegionIsForBlocks(t *testing.T) {
	w := simWorld(t, 1<<20)
	b := w.mustAlloc(w.root, w.streams[1], 1<<20, false)
	if w.root.Size() != 1<<20 || len(holes(w.root)) != 0 {
		t.Errorf("a region of %d bytes, holes %v", w.root.Size(), holes(w.root))
	}
	w.free(b)
	w.finish()
}

// With pages, memory is mapped as needed, and EmptyCache gives back the end of the region that no block needs.
func TestPagesComeAndGo(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 16 << 20, Granularity: 64 * kib}))
	w := newWorld(t, dev, arena.Config{Page: 64 * kib, Bounce: 64 * kib}, 1)
	mapped := func(want int64) {
		t.Helper()
		st := w.root.Stats()
		if st.ReservedBytes.All.Current != want {
			t.Fatalf("%d bytes are mapped, want %d", st.ReservedBytes.All.Current, want)
		}
		var n int64
		for _, seg := range w.root.Snapshot() {
			n += seg.TotalSize
		}
		if n != want {
			t.Fatalf("the snapshot has %d bytes, want %d", n, want)
		}
	}
	mapped(0)
	a := w.mustAlloc(w.root, w.streams[1], 100*kib, true)
	mapped(128 * kib)
	b := w.mustAlloc(w.root, w.streams[2], 500*kib, true)
	mapped(640 * kib)
	w.must(w.root.EmptyCache())
	mapped(640 * kib)
	w.free(a)
	w.must(w.root.EmptyCache()) // b is in the way
	mapped(640 * kib)
	w.must(w.root.Compact(w.streams[3]))
	w.must(w.root.EmptyCache())
	mapped(512 * kib)
	w.check(b, w.streams[1])
	w.free(b)
	w.must(w.root.EmptyCache())
	mapped(0)
	c := w.mustAlloc(w.root, w.streams[3], 1, true)
	mapped(64 * kib)
	w.free(c)
	w.finish()
}

// If a full device has no more pages, the arena first makes better use of the mapped ones.
func TestNoMorePages(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 1 << 20, Granularity: 64 * kib}))
	w := newWorld(t, dev, arena.Config{Size: 64 << 20, Page: 64 * kib, Bounce: 4 * kib}, 1)
	rest, err := dev.Alloc(1<<20 - 256*kib - 4*kib)
	w.must(err)
	kept := w.checkerboard(w.root, 16*kib, true)
	big := w.mustAlloc(w.root, w.streams[1], 100*kib, true)
	if w.moved == 0 {
		t.Error("nothing was moved")
	}
	_, err = w.root.Alloc(w.streams[1], 100*kib)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) || !errors.Is(oom.Cause, driver.ErrNoMemory) || oom.Reserved != 256*kib {
		t.Errorf("Alloc: %v; want what the device said", err)
	}
	for _, b := range append(kept, big) {
		w.check(b, w.streams[2])
	}
	w.must(dev.Free(rest))
	w.finish()
}

// Memory that the device does not take back is kept for the next Close, and nothing is allocated until then.
func TestCloseFails(t *testing.T) {
	for _, cfg := range []arena.Config{{Size: 1 << 20}, {Size: 1 << 20, Page: 64 * kib}} {
		dev := fault.Wrap(sim.New(sim.Options{Total: 16 << 20, Granularity: 64 * kib}))
		closeDevice(t, dev)
		w := newWorld(t, dev, cfg, 1)
		w.mustAlloc(w.root, w.streams[1], 100*kib, true)
		w.free(w.blocks[0])
		failures := 0
		for n := int64(1); ; n++ {
			dev.SetRules(fault.Rule{Nth: n, Onwards: true})
			err := w.root.Close()
			dev.SetRules()
			if err == nil {
				break
			}
			failures++
			b, again := w.root.Alloc(w.streams[1], 1)
			if again != nil && !errors.Is(again, driver.ErrClosed) {
				t.Errorf("Alloc after Close has failed (%v): %v", err, again)
			}
			w.root.Free(b) // if it could not wait for the streams it goes on as before
		}
		if failures == 0 {
			t.Error("no driver call of Close failed")
		}
		w.finish()
	}
}

// The free bytes in an error are backed by memory, and the error names a limit as the remedy where moving blocks would
// make room.
func TestOutOfMemoryCountsMemory(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 1 << 20, Granularity: 64 * kib}))
	w := newWorld(t, dev, arena.Config{Size: 64 << 20, Page: 64 * kib, Bounce: 4 * kib, NoCompact: true}, 1)
	rest, err := dev.Alloc(1<<20 - 256*kib)
	w.must(err)
	w.checkerboard(w.root, 16*kib, false)
	fails := func() *mem.OutOfMemory {
		t.Helper()
		_, err := w.root.Alloc(w.streams[1], 64*kib)
		oom := (*mem.OutOfMemory)(nil)
		if !errors.As(err, &oom) {
			t.Fatalf("Alloc: %v", err)
		}
		return oom
	}
	oom := fails()
	if oom.LargestFree != 16*kib || oom.Stranded != 128*kib || oom.Cached[0].Bytes != 128*kib || oom.Cached[0].Blocks != 8 {
		t.Errorf("the error says: largest %d, stranded %d, cached %+v", oom.LargestFree, oom.Stranded, oom.Cached)
	}
	if len(oom.Remedies) != 1 || oom.Remedies[0].Name != "compact=on" {
		t.Errorf("the remedies are %v", oom.Remedies)
	}
	w.must(dev.Free(rest))
	w.root.SetLimit(128 * kib)
	if oom := fails(); len(oom.Remedies) != 1 || oom.Remedies[0].Name != "limit=192KiB" {
		t.Errorf("with addresses and memory left, the remedies are %v", oom.Remedies)
	}
	w.finish()

	w = newWorld(t, dev, arena.Config{Size: 256 * kib}, 1)
	w.checkerboard(w.root, 16*kib, true)
	w.root.SetLimit(128 * kib)
	if oom := fails(); len(oom.Remedies) != 1 || oom.Remedies[0].Name != "limit=192KiB" {
		t.Errorf("with blocks that may be moved, the remedies are %v", oom.Remedies)
	}
	hold := w.root.Pin()
	if oom := fails(); len(oom.Remedies) != 0 {
		t.Errorf("with blocks that are held, the remedies are %v", oom.Remedies)
	}
	hold.Release()
	w.finish()
}

// Requests that no device can serve get an error that says so, on every path.
func TestTooLarge(t *testing.T) {
	w := simWorld(t, 1<<20)
	for name, ask := range map[string]func(size int64) error{
		"Alloc": func(size int64) error { _, err := w.root.Alloc(w.streams[1], size); return err },
		"Child": func(size int64) error { _, err := w.root.Child(size); return err },
	} {
		for _, size := range []int64{1<<60 + 1, math.MaxInt64 - 1, math.MaxInt64} {
			oom := (*mem.OutOfMemory)(nil)
			if err := ask(size); !errors.As(err, &oom) || !oom.TooLarge || oom.Requested != size {
				t.Errorf("%s of %d: %v", name, size, err)
			}
		}
	}
	w.finish()
}

// The limit may change while other goroutines allocate. The race detector checks it.
func TestLimitOfManyGoroutines(t *testing.T) {
	w := simWorld(t, 256*kib)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := range 200 {
				w.root.SetLimit([]int64{0, 64 * kib}[i%2])
				b, err := w.root.Alloc(w.streams[0], 4*kib)
				if err != nil {
					t.Error(err)
					return
				}
				w.root.Free(b)
			}
		})
	}
	wg.Wait()
	w.root.SetLimit(0)
	w.finish()
}

// The statistics count the times that memory was mapped behind an arena with pages, and that some was given back.
func TestDeviceCallsAreCounted(t *testing.T) {
	dev := closeDevice(t, sim.New(sim.Options{Total: 16 << 20, Granularity: 64 * kib}))
	w := newWorld(t, dev, arena.Config{Size: 1024 * kib, Page: 64 * kib}, 1)
	want := func(when string, allocs, frees int64) {
		t.Helper()
		if s := w.root.Stats(); s.NumDeviceAlloc != allocs || s.NumDeviceFree != frees {
			t.Errorf("%s: %d allocations and %d frees of the device, want %d and %d", when, s.NumDeviceAlloc, s.NumDeviceFree,
				allocs, frees)
		}
	}
	want("when it is new", 0, 0)
	a, b := w.mustAlloc(w.root, w.streams[0], 64*kib, false), w.mustAlloc(w.root, w.streams[0], 64*kib, false)
	want("with two pages", 2, 0)
	w.must(w.root.EmptyCache())
	want("with nothing to give back", 2, 0)
	w.free(b)
	w.must(w.root.EmptyCache())
	want("with one page", 2, 1)
	w.free(a)
	w.finish()
}
