package caching_test

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// segmentsOf returns a pool's segments from Snapshot.
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
		testkit.Equal(b.t, "blocks freed by the restore", len(d.Freed), 0)
		testkit.Equal(b.t, "blocks live", len(d.Live), len(live))
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
		testkit.Equal(t, "the address of what came later", later.Ptr, first.Ptr)

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
			testkit.Contains(t, testkit.Panic(t, func() { b.Free(stale) }), "not live")
			testkit.Contains(t, testkit.Panic(t, func() { b.Free(stale, b.s[1]) }), "not live")
		}
		b.finish([]driver.Graph{g1, g2}, []mem.PoolID{id, id}, b.at(d, first), b.at(d, kept))
	})
}

// Who has a block that came to lie where one was at the checkpoint has lost it, even if the two are of one size. What
// was live at the checkpoint has not, however often it was restored in between.
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
	testkit.Equal(t, "where the later block is", later.Ptr, first.Ptr)
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
			testkit.Equal(t, "live before the restore", live(), 0)
			d := b.restore(state)
			testkit.Equal(t, "live after the restore", live(), 2)
			if round < 2 {
				outputs = [2]mem.Block{b.at(d, outputs[0]), b.at(d, outputs[1])}
				continue
			}
			for i, block := range d.Live {
				b.Free(block)
				testkit.Equal(t, "live after a raw free", live(), 1-i)
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
	testkit.Equal(t, "segments", len(a.Snapshot()), 1)
	testkit.Equal(t, "live", live(), 3)
	for _, storage := range storages {
		storage.Release()
	}
	testkit.Equal(t, "live when the tensors are dead", live(), 0)

	d, err := a.Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "live after the restore", live(), 3)
	var blocks []mem.Block
	for _, ptr := range ptrs {
		block, _ := d.At(ptr)
		blocks = append(blocks, block)
	}
	for i, block := range blocks[:2] {
		storage := own(block)
		testkit.Equal(t, "where the owner's memory is", storage.Pointer(), ptrs[i])
		storage.Release()
		testkit.Equal(t, "live without that owner", live(), 2-i)
		testkit.Contains(t, testkit.Panic(t, func() { a.Free(block) }), "not live")
	}
	borrowed, err := tensor.FromPointer(place, blocks[2].Ptr, blocks[2].Size, nil)
	if err != nil {
		t.Fatal(err)
	}
	borrowed.Release()
	testkit.Equal(t, "live without one who owns nothing", live(), 1)
	a.Free(blocks[2])
	testkit.Equal(t, "live after a raw free", live(), 0)
	testkit.Equal(t, "segments in the end", len(a.Snapshot()), 1)
	a.ReleasePool(id)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// The purpose of a restore: the second of two graphs is captured after the result blocks of the first were freed, and
// must not use their memory when both are launched.
func TestAGraphIsCapturedBehindAnother(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		id, main := mem.PoolID{1, 0}, b.s[0]
		zero := b.zeros(4096)
		var first, second mem.Block
		g1 := b.capture(id, main, func() { first = b.chain(main, zero, 1) })
		state := b.checkpoint(id)
		b.Free(first)
		b.ok(g1.Launch(main)) // its result is there, but has no owner

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
	b := newGraphBench(t, drivertest.OpenSim(t, gib), nil)
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
	testkit.Equal(t, "calls of the device", b.dev.Calls(), calls)
	testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, reserved)
	if !reflect.DeepEqual(d.Freed, []mem.Block{last}) || len(d.Live) != 2 {
		t.Errorf("delta %+v, want only the last block freed and two live", d)
	}
	got := segmentsOf(b.Allocator, id)
	if len(got) != 1 || len(got[0].Blocks) != 3 || got[0].Blocks[2].State != mem.Inactive {
		t.Errorf("after the restore: %+v, want two blocks and the rest free", got)
	}
	b.finish(nil, []mem.PoolID{id}, b.at(d, kept), b.at(d, hole))
}
