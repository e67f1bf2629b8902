package caching_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

func TestDefect15_CacheInfoTellsWhatIsCachedAndTheLargestBlock(t *testing.T) {
	b := newBench(t, gib, "")
	info := func(want, wantLargest int64) {
		t.Helper()
		cached, largest := b.CacheInfo()
		equal(t, "cached and free", cached, want)
		equal(t, "the largest block", largest, wantLargest)
	}
	info(0, 0)
	small, large := b.alloc(512), b.alloc(30*mib)
	info(2*mib-512, 2*mib-512)
	side := b.stream()
	b.Free(b.allocOn(side, 12*mib))
	info(14*mib-512, 12*mib)
	p := b.NewPool(caching.PoolOptions{})
	block, err := p.Alloc(b.s, 40*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(block)
	info(54*mib-512, 40*mib)
	b.Free(large)
	b.Free(small)
	info(84*mib, 40*mib)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	b.emptyCache()
	info(0, 0)
}

// PyTorch's gc_counter: the searches of the pool since the block became free, while garbage is collected.
func TestDefect15_SnapshotsTellTheAgeOfFreeBlocks(t *testing.T) {
	b := newBench(t, gib, "garbage_collection_threshold:0.9,limit:500MiB")
	ages := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, s := range b.Snapshot() {
			for _, block := range s.Blocks {
				got = append(got, block.GCCount)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the ages are %v, want %v", got, want)
		}
	}
	first, second := b.alloc(20*mib), b.alloc(30*mib)
	ages(0, 0)
	b.Free(first)
	ages(0, 0)
	b.Free(b.alloc(40 * mib)) // one search
	ages(1, 0, 0)
	b.Free(b.alloc(40 * mib))
	ages(2, 0, 0)
	b.Free(second)
	b.Free(b.alloc(mib)) // of the other pool
	ages(2, 0, 0, 0)
	b.Free(b.alloc(20 * mib))
	ages(0, 1, 1, 0)
}

func TestDefect15_AllocAtTakesBlocksOfTheDefaultPool(t *testing.T) {
	b := newBench(t, gib, "")
	at := func(ptr driver.Pointer, size int64) (mem.Block, bool) { return b.AllocAt(b.s, mem.PoolID{}, ptr, size) }
	first := b.alloc(30 * mib)
	if _, ok := at(first.Ptr, 512); ok {
		t.Error("a block that is on loan was given out again")
	}
	b.Free(first)
	middle, ok := at(first.Ptr+driver.Pointer(4*mib), 4*mib)
	if !ok || middle.Ptr != first.Ptr+driver.Pointer(4*mib) || middle.Size != 4*mib {
		t.Fatalf("AllocAt = %+v, %v", middle, ok)
	}
	p := b.NewPool(caching.PoolOptions{})
	private, err := p.Alloc(b.s, 30*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(private)
	if block, ok := at(private.Ptr, mib); ok {
		t.Errorf("a private pool's block was given out: %+v", block)
	}
	if block, ok := b.AllocAt(b.s, mem.PoolID{0, 12345}, first.Ptr, 512); ok {
		t.Errorf("a block of a pool that does not exist: %+v", block)
	}
	equal(t, "the blocks around it", b.Stats().InactiveSplitBytes.All.Current, 26*mib)
	b.Free(middle)
	b.Free(b.alloc(30 * mib))
	equal(t, "segments", b.Stats().Segment.All.Current, 2)
}
