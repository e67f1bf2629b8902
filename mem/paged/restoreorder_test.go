package paged_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// The blocks of a delta are in address order, also if the later addresses of the pool are lower. At finds each of them.
func TestDeltasAreInAddressOrder(t *testing.T) {
	r := simple(t, 64, paged.Config{Addresses: 64 * granule})
	vm, id := r.dev.VirtualMemory(), mem.PoolID{1, 0}
	inPool := func(n int) (blocks []mem.Block) {
		r.a.BeginAllocateToPool(id, every)
		defer r.a.EndAllocateToPool(id)
		for range n {
			blocks = append(blocks, r.granules(1))
		}
		return blocks
	}
	restore := func(s *paged.PoolState) *mem.PoolDelta {
		d, err := r.a.Restore(s)
		r.must(err)
		for _, list := range [][]mem.Block{d.Live, d.Freed} {
			if !slices.IsSortedFunc(list, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) }) {
				t.Errorf("not in address order: %v", list)
			}
		}
		return d
	}
	const low = 40 * granule
	lowest, err := vm.Reserve(low)
	r.must(err)
	first := inPool(1)
	r.free(first...)
	empty, err := r.a.Checkpoint(id)
	r.must(err)
	blocks := inPool(2)
	r.must(vm.Release(lowest, low))
	blocks = append(blocks, inPool(8)...)
	if blocks[0].Ptr < blocks[9].Ptr {
		t.Fatalf("the first block is at %#x, below the last one at %#x", blocks[0].Ptr, blocks[9].Ptr)
	}
	full, err := r.a.Checkpoint(id)
	r.must(err)
	d := restore(full)
	for _, b := range blocks {
		if _, ok := d.At(b.Ptr); !ok {
			t.Errorf("At does not find the block at %#x", b.Ptr)
		}
	}
	if d := restore(empty); len(d.Freed) != len(blocks) {
		t.Errorf("%d blocks freed, want %d", len(d.Freed), len(blocks))
	}
	r.a.ReleasePool(id)
}
