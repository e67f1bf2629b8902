package caching_test

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
	"github.com/ashlar-go/ashlar/trace"
)

// segmentsOf is what Snapshot says of a pool.
func segmentsOf(a *caching.Allocator, id mem.PoolID) []mem.SegmentInfo {
	return slices.DeleteFunc(a.Snapshot(), func(s mem.SegmentInfo) bool { return s.Pool != id })
}

func liveIn(segments []mem.SegmentInfo) (n int) {
	for _, s := range segments {
		for _, b := range s.Blocks {
			if b.State == mem.ActiveAllocated {
				n++
			}
		}
	}
	return n
}

func (b *graphBench) checkpoint(id mem.PoolID) *caching.PoolState {
	b.t.Helper()
	s, err := b.Checkpoint(id)
	b.ok(err)
	return s
}

func (b *graphBench) restore(s *caching.PoolState) *caching.Delta {
	b.t.Helper()
	d, err := b.Restore(s)
	b.ok(err)
	b.ok(b.Check())
	return d
}

// at is the block that is live again at the address of another.
func (b *graphBench) at(d *caching.Delta, was mem.Block) mem.Block {
	b.t.Helper()
	now, ok := d.At(was.Ptr)
	if !ok || now.Size != was.Size {
		b.t.Fatalf("at %#x the delta has %+v, want a block of %d bytes", was.Ptr, now, was.Size)
	}
	return now
}

func TestBehaviour52_RestoreGivesAddressesSizesAndStatesBack(t *testing.T) {
	restores := func(b *graphBench, id mem.PoolID, live ...mem.Block) []mem.Block {
		b.t.Helper()
		want := segmentsOf(b.Allocator, id)
		state := b.checkpoint(id)
		for _, s := range state.Segments() {
			clear(s.Blocks) // a copy's
		}
		for _, block := range live {
			b.Free(block)
		}
		if got := segmentsOf(b.Allocator, id); reflect.DeepEqual(got, want) {
			b.t.Fatal("freeing the blocks changed nothing")
		}
		d := b.restore(state)
		if got := segmentsOf(b.Allocator, id); !reflect.DeepEqual(got, want) {
			b.t.Fatalf("after the restore:\n%+v\nwant:\n%+v", got, want)
		}
		if got := state.Segments(); !reflect.DeepEqual(got, want) || state.Pool() != id {
			b.t.Errorf("the state says:\n%+v\nof pool %v, want:\n%+v", got, state.Pool(), want)
		}
		equal(b.t, "blocks freed by the restore", len(d.Freed), 0)
		equal(b.t, "blocks live", len(d.Live), len(live))
		for i, block := range live {
			live[i] = b.at(d, block)
		}
		return live
	}
	onGraphDevices(t, func(b *graphBench) {
		zero := b.zeros(8 * 8 * 4)
		simple := mem.PoolID{1, 0}
		var result mem.Block
		graphs := []driver.Graph{b.capture(simple, b.s[0], func() { result = b.chain(b.s[0], zero, 1) })}
		blocks := append(restores(b, simple, result), zero)
		pools := []mem.PoolID{simple}
		for i, keep := range [][]int{{5}, {5, 8}, {5, 6}} {
			id := mem.PoolID{uint64(2 + i), 0}
			pools = append(pools, id)
			var live []mem.Block
			graphs = append(graphs, b.capture(id, b.s[0], func() {
				var all []mem.Block
				for range 11 {
					all = append(all, b.alloc(b.s[0], 512))
				}
				for n, block := range all {
					b.ok(b.s[0].Fill(block.Ptr, byte(n), 512))
					if slices.Contains(keep, n) {
						live = append(live, block)
					} else {
						b.Free(block)
					}
				}
			}))
			blocks = append(blocks, restores(b, id, live...)...)
		}
		b.finish(graphs, pools, blocks...)
	})
}

func TestBehaviour53_RestoreFreesWhatWasAllocatedLater(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		id, main := mem.PoolID{1, 0}, b.s[0]
		var first, kept, later, large mem.Block
		g1 := b.capture(id, main, func() {
			first, kept = b.alloc(main, 600), b.alloc(main, 512)
			b.ok(main.Fill(kept.Ptr, 1, 512))
		})
		state, want := b.checkpoint(id), segmentsOf(b.Allocator, id)
		b.Free(first)
		g2 := b.capture(id, main, func() {
			later, large = b.alloc(main, 512), b.alloc(main, 3*mib)
			b.ok(main.Fill(large.Ptr, 1, 512))
		})
		equal(t, "the address of what came later", later.Ptr, first.Ptr)

		d := b.restore(state)
		gone := []mem.Block{later, large}
		slices.SortFunc(gone, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
		if !reflect.DeepEqual(d.Freed, gone) {
			t.Errorf("freed: %+v, want %+v", d.Freed, gone)
		}
		got := segmentsOf(b.Allocator, id)
		added := slices.DeleteFunc(slices.Clone(got), func(s mem.SegmentInfo) bool { return s.Ptr == want[0].Ptr })
		got = slices.DeleteFunc(got, func(s mem.SegmentInfo) bool { return s.Ptr != want[0].Ptr })
		if !reflect.DeepEqual(got, want) || len(added) != 1 || added[0].ActiveSize != 0 || len(added[0].Blocks) != 1 {
			t.Errorf("after the restore:\n%+v, want\n%+v\nand %+v, which should be one free segment", got, want, added)
		}
		for _, stale := range []mem.Block{first, kept, later, large} {
			mustPanic(t, "not live", func() { b.Free(stale) })
			mustPanic(t, "not live", func() { b.Free(stale, b.s[1]) })
		}
		b.finish([]driver.Graph{g1, g2}, []mem.PoolID{id, id}, b.at(d, first), b.at(d, kept))
	})
}

// Who has a block that came to lie where one was at the checkpoint has lost it, even if the two are of one size. What was
// live at the checkpoint has not, however often it was restored in between.
func TestARestoreNamesWhatWasLost(t *testing.T) {
	b := newBench(t, gib, "")
	id := mem.PoolID{1, 0}
	b.BeginAllocateToPool(id, everyStream)
	kept, first := b.alloc(512), b.alloc(512)
	state, err := b.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	b.Free(first)
	later := b.alloc(512)
	b.EndAllocateToPool(id)
	equal(t, "where the later block is", later.Ptr, first.Ptr)
	d, err := b.Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	if want := []mem.Block{later}; !slices.Equal(d.Freed, want) {
		t.Errorf("freed: %+v, want %+v", d.Freed, want)
	}
	again, err := b.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []*caching.PoolState{state, again, state, again} {
		if d, err = b.Restore(s); err != nil || len(d.Freed) != 0 {
			t.Errorf("restore %d: freed %+v, %v; want nothing", i, d.Freed, err)
		}
	}
	later, _ = d.At(first.Ptr)
	b.Free(later)
	b.BeginAllocateToPool(id, everyStream)
	b.ReleasePool(id)
	later = b.alloc(512)
	b.EndAllocateToPool(id)
	if d, err = b.Restore(again); err != nil || !slices.Equal(d.Freed, []mem.Block{later}) {
		t.Errorf("freed: %+v, %v; want %+v", d.Freed, err, later)
	}
	if now, ok := d.At(kept.Ptr); !ok || now == kept {
		t.Errorf("the block that stayed is %+v, %v; want a new one", now, ok)
	}
	for _, block := range d.Live {
		b.Free(block)
	}
	b.ReleasePool(id)
}

func TestBehaviour54_DeadOutputsLiveAgainAndAreFreedRaw(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		zero := b.zeros(512)
		id := mem.PoolID{1, 0}
		var outputs [2]mem.Block
		g := b.capture(id, b.s[0], func() {
			outputs = [2]mem.Block{b.chain(b.s[0], zero, 1), b.chain(b.s[0], zero, 2)}
		})
		state := b.checkpoint(id)
		live := func() int { return liveIn(segmentsOf(b.Allocator, id)) }
		for round := range 3 {
			for _, o := range outputs {
				b.Free(o)
			}
			equal(t, "live before the restore", live(), 0)
			d := b.restore(state)
			equal(t, "live after the restore", live(), 2)
			if round < 2 {
				outputs = [2]mem.Block{b.at(d, outputs[0]), b.at(d, outputs[1])}
				continue
			}
			for i, block := range d.Live {
				b.Free(block)
				equal(t, "live after a raw free", live(), 1-i)
			}
		}
		b.finish([]driver.Graph{g}, []mem.PoolID{id}, zero)
	})
}

// The owners are tensors' storages, on a device with a backend.
func TestBehaviour55_OwnersFreeWhatTheyOwnOnce(t *testing.T) {
	dev, err := host.Open(host.Options{Total: gib})
	if err != nil {
		t.Fatal(err)
	}
	place := tensortest.On(t, dev)
	a := newAllocator(t, dev, "")
	id, s := mem.PoolID{1, 0}, dev.DefaultStream()
	own := func(block mem.Block) *tensor.Storage {
		storage, err := tensor.FromPointer(place, block.Ptr, block.Size, func(used ...driver.Stream) { a.Free(block, used...) })
		if err != nil {
			t.Fatal(err)
		}
		return storage
	}
	live := func() int { return liveIn(segmentsOf(a, id)) }

	var storages []*tensor.Storage
	var ptrs []driver.Pointer
	a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	for range 3 {
		block, err := a.Alloc(s, 512)
		if err != nil {
			t.Fatal(err)
		}
		storages, ptrs = append(storages, own(block)), append(ptrs, block.Ptr)
	}
	a.EndAllocateToPool(id)
	state, err := a.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "segments", len(a.Snapshot()), 1)
	equal(t, "live", live(), 3)
	for _, storage := range storages {
		storage.Release()
	}
	equal(t, "live when the tensors are dead", live(), 0)

	d, err := a.Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "live after the restore", live(), 3)
	var blocks []mem.Block
	for _, ptr := range ptrs {
		block, _ := d.At(ptr)
		blocks = append(blocks, block)
	}
	for i, block := range blocks[:2] {
		storage := own(block)
		equal(t, "where the owner's memory is", storage.Pointer(), ptrs[i])
		storage.Release()
		equal(t, "live without that owner", live(), 2-i)
		mustPanic(t, "not live", func() { a.Free(block) })
	}
	borrowed, err := tensor.FromPointer(place, blocks[2].Ptr, blocks[2].Size, nil)
	if err != nil {
		t.Fatal(err)
	}
	borrowed.Release()
	equal(t, "live without one who owns nothing", live(), 1)
	a.Free(blocks[2])
	equal(t, "live after a raw free", live(), 0)
	equal(t, "segments in the end", len(a.Snapshot()), 1)
	a.ReleasePool(id)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// What a restore is for: the second of two graphs is captured once the results of the first are no blocks any more, and
// must leave their memory alone when both are launched.
func TestAGraphIsCapturedBehindAnother(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		id, main := mem.PoolID{1, 0}, b.s[0]
		zero := b.zeros(4096)
		var first, second mem.Block
		g1 := b.capture(id, main, func() { first = b.chain(main, zero, 1) })
		state := b.checkpoint(id)
		b.Free(first)
		b.ok(g1.Launch(main)) // its result is there, but nobody's

		first = b.at(b.restore(state), first)
		g2 := b.capture(id, main, func() {
			other := b.chain(main, zero, 2)
			second = b.alloc(main, b.size)
			b.sum(main, second, first, other, 1)
			b.Free(other)
		})
		for range 3 {
			b.ok(g1.Launch(main))
			b.ok(g2.Launch(main))
			b.holds(main, first, 94)
			b.holds(main, second, 94+156+1)
		}
		b.finish([]driver.Graph{g1, g2}, []mem.PoolID{id, id}, zero, first, second)
	})
}

func TestARestoreTouchesNoMemory(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		id, main := mem.PoolID{1, 0}, b.s[0]
		b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
		var live []mem.Block
		for i := range byte(20) {
			block := b.alloc(main, 1000+200_000*int64(i%7))
			b.ok(main.Fill(block.Ptr, i, block.Size))
			live = append(live, block)
		}
		for i := 1; i < len(live); i += 3 {
			b.Free(live[i])
		}
		b.EndAllocateToPool(id)
		state := b.checkpoint(id)
		for i := 2; i < len(live); i += 3 {
			b.Free(live[i])
		}
		d := b.restore(state)
		for i, block := range live {
			if i%3 != 0 {
				continue // live at both times
			}
			got := make([]byte, block.Size)
			b.ok(main.CopyOut(got, b.at(d, block).Ptr))
			if !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, len(got))) {
				t.Errorf("block %d has other contents after the restore", i)
			}
		}
		b.finish(nil, []mem.PoolID{id}, d.Live...)
	})
}

// Pages that were mapped since stay mapped, and free; PyTorch fails here (its issue 161356).
func TestAnExpandableSegmentMayHaveGrownSinceTheCheckpoint(t *testing.T) {
	b := newGraphBench(t, sim.New(sim.Options{Total: gib}), nil)
	b.Allocator = newAllocator(t, b.dev, "expandable_segments:True")
	id, main := mem.PoolID{1, 0}, b.s[0]
	b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	kept := b.alloc(main, 30*mib)
	hole := b.alloc(main, 5*mib)
	state := b.checkpoint(id)
	last := b.alloc(main, 70*mib)
	b.Free(hole)
	b.EndAllocateToPool(id)

	reserved, calls := b.Stats().ReservedBytes.All.Current, b.dev.Calls()
	d := b.restore(state)
	equal(t, "calls of the device", b.dev.Calls(), calls)
	equal(t, "reserved", b.Stats().ReservedBytes.All.Current, reserved)
	if !reflect.DeepEqual(d.Freed, []mem.Block{last}) || len(d.Live) != 2 {
		t.Errorf("delta %+v, want only the last block freed and two live", d)
	}
	got := segmentsOf(b.Allocator, id)
	if len(got) != 1 || len(got[0].Blocks) != 3 || got[0].Blocks[2].State != mem.Inactive {
		t.Errorf("after the restore: %+v, want two blocks and the rest free", got)
	}
	b.finish(nil, []mem.PoolID{id}, b.at(d, kept), b.at(d, hole))
}

func TestWhatCannotBeRestoredIsLeftAsItIs(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		simulated := sim.New(sim.Options{Total: gib})
		b := newGraphBench(t, simulated, simulated)
		b.Allocator = newAllocator(t, b.dev, settings)
		id, main, side := mem.PoolID{0, 1}, b.s[0], b.s[1]
		in := func(f func()) {
			b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
			f()
			b.EndAllocateToPool(id)
		}
		refused := func(what string, state *caching.PoolState, want error) {
			t.Helper()
			before, stats := b.Snapshot(), b.Stats()
			d, err := b.Restore(state)
			if !errors.Is(err, want) || d != nil {
				t.Errorf("%q, %s: %+v, error %v; want one that matches %v", settings, what, d, err, want)
			}
			if !reflect.DeepEqual(b.Snapshot(), before) || b.Stats() != stats {
				t.Errorf("%q, %s: the restore failed and changed something", settings, what)
			}
			b.ok(b.Check())
		}
		if _, err := b.Checkpoint(id); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a checkpoint of no pool: %v", err)
		}
		var small, large mem.Block
		in(func() { small, large = b.alloc(main, 512), b.alloc(main, 3*mib) })
		state := b.checkpoint(id)

		b.BeginAllocateToPool(id, func(driver.Stream) bool { return false })
		refused("requests are going to the pool", state, driver.ErrInvalid)
		b.EndAllocateToPool(id)

		release := b.hold(side)
		b.ok(side.Fill(large.Ptr, 1, 1))
		b.Free(large, side)
		refused("a block is pending", state, driver.ErrNotReady)
		if _, err := b.Checkpoint(id); !errors.Is(err, driver.ErrNotReady) {
			t.Errorf("a checkpoint of a pool with a pending block: %v", err)
		}
		release()
		b.sync(side)
		d := b.restore(state)
		small, large = b.at(d, small), b.at(d, large)

		elsewhere := newAllocator(t, b.dev, settings)
		mustPanic(t, "another allocator", func() { elsewhere.Restore(state) })

		// The large segment goes; the pool stays for the sake of its small one, and is used again.
		b.Free(large)
		b.ReleasePool(id)
		b.ReleasePool(id)
		refused("the pool was released", state, driver.ErrInvalid)
		b.ok(b.EmptyCache())
		in(func() {})
		refused("a segment is gone", state, driver.ErrInvalid)
		b.Free(small)
		b.ReleasePool(id)
		b.ok(b.EmptyCache())
		refused("the pool is gone", state, driver.ErrInvalid)

		// The addresses serve others now.
		for _, now := range []struct {
			what  string
			pool  mem.PoolID
			s     driver.Stream
			sizes []int64
		}{
			{"the memory is another pool's", mem.PoolID{0, 2}, main, []int64{512, 3 * mib}},
			{"the memory is another stream's", id, side, []int64{512, 3 * mib}},
			{"a segment has another size", id, main, []int64{512, 30 * mib}},
			{"segments are of another kind", id, main, []int64{3 * mib, 512}},
		} {
			if settings != "" && now.what == "a segment has another size" {
				continue // the pages are all there
			}
			in(func() {}) // the pool exists
			var blocks []mem.Block
			b.BeginAllocateToPool(now.pool, func(driver.Stream) bool { return true })
			for _, size := range now.sizes {
				blocks = append(blocks, b.alloc(now.s, size))
			}
			b.EndAllocateToPool(now.pool)
			if blocks[0].Ptr != small.Ptr && blocks[1].Ptr != large.Ptr {
				t.Errorf("%q, %s: no block is where one was", settings, now.what)
			}
			refused(now.what, state, driver.ErrInvalid)
			for _, block := range blocks {
				b.Free(block)
			}
			b.ReleasePool(id)
			b.ReleasePool(now.pool)
			b.ok(b.EmptyCache())
		}

		// A state of a small segment alone, where a large one is now.
		in(func() { small = b.alloc(main, 512) })
		state = b.checkpoint(id)
		b.Free(small)
		b.ReleasePool(id)
		b.ok(b.EmptyCache())
		in(func() { large = b.alloc(main, 3*mib) })
		equal(t, "the address of the large block", large.Ptr, small.Ptr)
		refused("a small segment is a large one now", state, driver.ErrInvalid)
		b.Free(large)
		b.ReleasePool(id)
		b.finish(nil, nil)
		if _, err := b.Checkpoint(id); !errors.Is(err, caching.ErrClosed) {
			t.Errorf("a checkpoint after Close: %v", err)
		}
		if _, err := b.Restore(state); !errors.Is(err, caching.ErrClosed) {
			t.Errorf("a restore after Close: %v", err)
		}
	}
}

// A restore to a state with nothing live is a number of frees, in the order of addresses: the statistics, every peak
// among them, are those of such frees.
func TestARestoreCountsAsFreesDo(t *testing.T) {
	for seed := range uint64(40) {
		stats := func(restore bool) mem.Stats {
			r := rand.New(rand.NewPCG(seed, 0))
			b := newBench(t, gib, "")
			id, streams := mem.PoolID{1, 0}, []driver.Stream{b.s, b.stream(), b.stream()}
			b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
			for _, s := range streams {
				b.Free(b.allocOn(s, 512))
				b.Free(b.allocOn(s, 3*mib))
			}
			state, err := b.Checkpoint(id)
			if err != nil {
				t.Fatal(err)
			}
			var live []mem.Block
			for range 40 {
				live = append(live, b.allocOn(streams[r.IntN(3)], 1+r.Int64N([]int64{40 * kib, 300 * kib, 3 * mib}[r.IntN(3)])))
			}
			for range 10 {
				i := r.IntN(len(live))
				b.Free(live[i])
				live = slices.Delete(live, i, i+1)
			}
			b.EndAllocateToPool(id)
			b.ResetPeakStats()
			if restore {
				if d, err := b.Restore(state); err != nil || len(d.Freed) != len(live) {
					t.Fatalf("seed %d: %+v, %v", seed, d, err)
				}
			} else {
				slices.SortFunc(live, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
				for _, block := range live {
					b.Free(block)
				}
			}
			b.ReleasePool(id)
			return b.Stats()
		}
		if got, want := stats(true), stats(false); got != want {
			t.Errorf("seed %d: after a restore\n%+v, after frees\n%+v", seed, got, want)
		}
	}
}

// Peaks are those of frees and allocations one after the other: what is free at the checkpoint is never counted as live.
func TestARestoreMakesNoPeakOfItsOwn(t *testing.T) {
	b := newBench(t, gib, "")
	id, side := mem.PoolID{1, 0}, b.stream()
	b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	first, second := b.alloc(4*mib), b.allocOn(side, 4*mib)
	gap, end := b.alloc(6*mib), b.alloc(2*mib)
	b.Free(gap)
	b.EndAllocateToPool(id)
	state, err := b.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	b.ResetPeakStats()
	want := b.Stats()
	for _, block := range []mem.Block{first, second, end} {
		b.Free(block)
	}
	d, err := b.Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	got := b.Stats()
	equal(t, "peak of allocated bytes", got.AllocatedBytes.All.Peak, want.AllocatedBytes.All.Peak)
	equal(t, "peak of blocks", got.Allocation.All.Peak, want.Allocation.All.Peak)
	equal(t, "free split blocks", got.InactiveSplit.All.Current, want.InactiveSplit.All.Current)
	equal(t, "their bytes", got.InactiveSplitBytes.All.Current, want.InactiveSplitBytes.All.Current)
	for _, block := range d.Live {
		b.Free(block)
	}
	b.ReleasePool(id)
}

// A recording of restores is a recording: what was asked for can be asked for again, and the verifier follows it to the
// byte.
func TestARecordingOfARestoreReplays(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		b := newBench(t, gib, settings)
		recorder := trace.NewRecorder(trace.RecorderOptions{})
		b.Observe(recorder.Observe)
		id := mem.PoolID{1, 0}
		in := func(f func()) {
			b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
			f()
			b.EndAllocateToPool(id)
		}
		var blocks []mem.Block
		in(func() {
			for _, size := range []int64{500, 1024, 1, 3*mib - 7, 2 * mib, 4*mib + 1, 1536, 31*mib + 300_000, 90} {
				blocks = append(blocks, b.alloc(size))
			}
		})
		b.Free(blocks[1])
		b.Free(blocks[4])
		state, err := b.Checkpoint(id)
		if err != nil {
			t.Fatal(err)
		}
		b.Free(blocks[0])
		b.Free(blocks[3])
		in(func() { b.alloc(5 * mib); b.alloc(2001) })
		d, err := b.Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		b.Free(d.Live[1])
		in(func() { b.alloc(512) })

		p, err := trace.ToProgram(recorder.Trace(), trace.ProgramOptions{})
		if err != nil || p.Anomalies.Count != 0 {
			t.Fatalf("%q: error %v, anomalies %+v", settings, err, p.Anomalies)
		}
		dev := sim.New(sim.Options{Total: gib})
		again := newAllocator(t, dev, settings)
		if _, err := replay.Run(p, again, dev, replay.Options{}); err != nil {
			t.Fatal(err)
		}
		equal(t, "allocated after the replay", again.Stats().AllocatedBytes.All.Current, b.Stats().AllocatedBytes.All.Current)

		shot, err := snapshot.Of(b.Allocator, snapshot.Live{Recorder: recorder})
		if err != nil {
			t.Fatal(err)
		}
		v, err := replay.Verify(shot, replay.VerifyOptions{TotalMemory: gib})
		// What was asked for at free blocks, which a restore gives back too, is not recorded: it may differ in the end.
		if err != nil || v.AddressesMatched != v.Allocs || v.SegmentEventsMatched != v.SegmentEvents || !v.PeaksEqual() || v.Restored == 0 {
			t.Errorf("%q: error %v, verdict %+v, difference %v", settings, err, v, v.Difference)
		}
	}
}

func TestAllocAtTakesAnyPartOfAFreeBlock(t *testing.T) {
	b := newBench(t, gib, "")
	id := mem.PoolID{1, 0}
	b.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	first := b.alloc(512)
	b.Free(first)
	b.EndAllocateToPool(id)
	at := func(offset, size int64) (mem.Block, bool) {
		return b.AllocAt(b.s, id, first.Ptr+driver.Pointer(offset), size)
	}
	middle, ok := at(mib, 1024)
	if !ok || middle.Ptr != first.Ptr+driver.Pointer(mib) || middle.Size != 1024 {
		t.Fatalf("in the middle: %+v, %v", middle, ok)
	}
	for _, c := range [][2]int64{{mib, 512}, {mib - 512, 1024}, {mib + 512, 512}, {100, 512}, {2*mib - 512, 1024}, {2 * mib, 512}, {-512, 512}} {
		if block, ok := at(c[0], c[1]); ok {
			t.Errorf("%d bytes at %d: %+v", c[1], c[0], block)
		}
	}
	equal(t, "free parts", b.Stats().InactiveSplit.All.Current, 2)
	end, ok := at(2*mib-512, 512)
	equal(t, "the last bytes are free", ok, true)
	equal(t, "free parts", b.Stats().InactiveSplitBytes.All.Current, 2*mib-1536)
	b.Free(middle)
	b.Free(end)

	// What was asked for is rounded as in a request, and what would not have been cut off belongs to the block.
	odd, ok := at(512, 700)
	if !ok || odd.Size != 1024 {
		t.Errorf("700 bytes: %+v, %v", odd, ok)
	}
	b.Free(odd)
	b.BeginAllocateToPool(id, everyStream)
	b.ReleasePool(id)
	first = b.alloc(32 * mib)
	b.Free(first)
	b.EndAllocateToPool(id)
	for _, c := range [][3]int64{
		{0, 31*mib + 5, 32 * mib}, {0, 31 * mib, 32 * mib}, {0, 31*mib - 512, 31*mib - 512}, {2 * mib, 29*mib + 1, 30 * mib},
	} {
		block, ok := at(c[0], c[1])
		if !ok || block.Size != c[2] {
			t.Errorf("%d bytes at %d: %+v, %v; want a block of %d bytes", c[1], c[0], block, ok, c[2])
		}
		for _, s := range segmentsOf(b.Allocator, id) {
			for _, info := range s.Blocks {
				if info.Ptr == block.Ptr && info.Size == block.Size {
					equal(t, "what was asked for", info.RequestedSize, c[1])
				}
			}
		}
		b.Free(block)
	}
	mustPanic(t, "AllocAt of 0 bytes", func() { at(0, 0) })
	if block, ok := at(0, 1<<61); ok {
		t.Errorf("2 EiB: %+v", block)
	}
	b.ReleasePool(id)
}

// Whichever call of the device fails, a restore either gives the state back or says why not.
func TestRestoreWhateverFails(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		restored := 0
		for n := int64(1); ; n++ {
			dev := fault.Wrap(sim.New(sim.Options{Total: gib}))
			a := newAllocator(t, dev, settings)
			main, id := dev.DefaultStream(), mem.PoolID{1, 0}
			side, err := dev.NewStream(driver.StreamOptions{})
			if err != nil {
				t.Fatal(err)
			}
			dev.SetRules(fault.Rule{Nth: n})
			live := map[mem.Block]bool{}
			alloc := func(sizes ...int64) {
				a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
				for _, size := range sizes {
					if block, err := a.Alloc(main, size); err == nil {
						live[block] = true
					}
				}
				a.EndAllocateToPool(id)
			}
			free := func(used ...driver.Stream) {
				sorted := slices.SortedFunc(maps.Keys(live), func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
				for _, block := range sorted[:len(sorted)/2] {
					a.Free(block, used...)
					delete(live, block)
				}
			}
			alloc(512, 3*mib, 700, 12*mib)
			free(side)
			state, err := a.Checkpoint(id)
			if err != nil && !errors.Is(err, driver.ErrNotReady) {
				t.Errorf("%q, call %d: %v", settings, n, err)
			}
			if err == nil {
				want := segmentsOf(a, id)
				alloc(5*mib, 40*mib)
				free(side)
				switch d, err := a.Restore(state); {
				case err == nil:
					restored++
					clear(live)
					for _, block := range d.Live {
						live[block] = true
					}
					if got := liveIn(segmentsOf(a, id)); got != liveIn(want) {
						t.Errorf("%q, call %d: %d blocks are live, want %d", settings, n, got, liveIn(want))
					}
				case !errors.Is(err, driver.ErrNotReady):
					t.Errorf("%q, call %d: %v", settings, n, err)
				}
			}
			failed := dev.Failed()
			if err := a.Check(); err != nil {
				t.Errorf("%q, call %d: %v", settings, n, err)
			}
			dev.SetRules()
			for block := range live {
				a.Free(block)
			}
			if err := a.Close(); err != nil {
				t.Errorf("%q, call %d: %v", settings, n, err)
			}
			if failed == 0 {
				break
			}
		}
		if restored < 3 {
			t.Errorf("%q: only %d restores went through", settings, restored)
		}
	}
}

func TestRestoreWhileOthersAllocate(t *testing.T) {
	dev, err := host.Open(host.Options{Total: gib})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	a := newAllocator(t, dev, "")
	id := mem.PoolID{0, 1}
	streams := []driver.Stream{dev.DefaultStream()}
	for range 2 {
		s, err := dev.NewStream(driver.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
	for i := range 60 {
		block, err := a.Alloc(streams[i%3], int64(1+i%5*300_000))
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 1 {
			a.Free(block)
		}
	}
	a.EndAllocateToPool(id)
	state, err := a.Checkpoint(id)
	if err != nil {
		t.Fatal(err)
	}
	want := segmentsOf(a, id)

	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				block, err := a.Alloc(streams[(i+n)%3], int64(1+n%9*200_000))
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case n%50 == 49:
					a.Free(block, streams[n%3])
				case n%300 == 299 && i == 0:
					a.Free(block)
					if err := a.EmptyCache(); err != nil {
						t.Error(err)
					}
				default:
					a.Free(block)
				}
			}
		})
	}
	for i := range 150 {
		d, err := a.Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		if got := segmentsOf(a, id); !reflect.DeepEqual(got, want) {
			t.Fatalf("restore %d: %+v, want %+v", i, got, want)
		}
		for n, block := range d.Live {
			if n%3 == i%3 {
				a.Free(block)
			}
		}
	}
	close(stop)
	others.Wait()
	if d, err := a.Restore(state); err != nil {
		t.Error(err)
	} else {
		for _, block := range d.Live {
			a.Free(block)
		}
	}
	a.ReleasePool(id)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
