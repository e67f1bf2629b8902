package paged_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A restored pool has the blocks of the checkpoint, as snapshots describe them, and old blocks are not live.
func TestRestoreGivesBlocksBack(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	id := mem.PoolID{1, 0}
	r.a.BeginAllocateToPool(id, every)
	kept := []mem.Block{r.alloc(r.s, 100), r.alloc(r.s, 3*granule), r.alloc(r.s, 600)}
	gone := r.granules(1)
	r.a.EndAllocateToPool(id)
	r.free(gone)
	state, err := r.a.Checkpoint(id)
	r.must(err)
	if state.Pool() != id {
		t.Errorf("the state is of pool %v", state.Pool())
	}
	r.a.Free(kept[1])
	r.a.BeginAllocateToPool(id, every)
	later := r.granules(2)
	r.a.EndAllocateToPool(id)
	r.a.ReleasePool(id)
	d, err := r.a.Restore(state)
	r.must(err)
	r.check()
	if len(d.Freed) != 1 || d.Freed[0] != later || len(d.Live) != len(kept) {
		t.Errorf("freed %v, live %v", d.Freed, d.Live)
	}
	var live []driver.Pointer
	for i, b := range kept {
		now, ok := d.At(b.Ptr)
		if !ok || now.Size != b.Size {
			t.Errorf("block %d of %d bytes became %+v", i, b.Size, now)
		}
		testkit.Contains(t, testkit.Panic(t, func() { r.free(b) }), "not live")
		kept[i], live = now, append(live, now.Ptr)
	}
	r.must(r.a.CheckPoolLive(id, live))
	again, err := r.a.Checkpoint(id)
	r.must(err)
	for i, seg := range state.Segments() {
		for _, b := range seg.Blocks {
			if b.State == mem.ActiveAllocated && !reflect.DeepEqual(b, blockAt(again.Segments(), b.Ptr)) {
				t.Errorf("segment %d had %+v, and has %+v", i, b, blockAt(again.Segments(), b.Ptr))
			}
		}
	}
	testkit.Equal(t, "requested", r.a.Stats().RequestedBytes.All.Current, 100+3*granule+600)
	r.free(kept...)
	r.a.ReleasePool(id)
}

func blockAt(segments []mem.SegmentInfo, p driver.Pointer) (b mem.BlockInfo) {
	for _, seg := range segments {
		for _, b := range seg.Blocks {
			if b.Ptr == p {
				return b
			}
		}
	}
	return b
}

// A state that cannot be restored is an error that changes nothing.
func TestRestoreFails(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	id := mem.PoolID{1, 0}
	if _, err := r.a.Checkpoint(id); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a checkpoint of no pool: %v", err)
	}
	fails := func(what string, s *paged.PoolState) {
		t.Helper()
		if d, err := r.a.Restore(s); !errors.Is(err, driver.ErrInvalid) || d != nil {
			t.Errorf("%s: %v, %v", what, d, err)
		}
		r.check()
	}
	r.a.BeginAllocateToPool(id, every)
	b := r.granules(3)
	state, err := r.a.Checkpoint(id)
	r.must(err)
	fails("requests go to the pool", state)
	r.a.EndAllocateToPool(id)
	other, err := paged.New(r.sim, paged.Config{})
	r.must(err)
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = other.Restore(state) }), "another allocator")
	r.must(other.Close())
	r.free(b)
	r.a.ReleasePool(id)
	fails("the pool was released", state)
	r.must(r.a.EmptyCache())
	r.a.RetainPool(id)
	fails("the pool is another one", state)
	r.a.ReleasePool(id)

	p := r.a.NewPool(paged.PoolOptions{})
	b, err = p.Alloc(r.s, 3*granule)
	r.must(err)
	state, err = r.a.Checkpoint(p.ID())
	r.must(err)
	p.Free(b)
	r.must(p.EmptyCache())
	fails("the memory was freed", state)
	r.must(p.Close())
	r.must(r.a.EmptyCache())
}
