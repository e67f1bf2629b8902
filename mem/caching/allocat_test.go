package caching_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

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
	testkit.Equal(t, "free parts", b.Stats().InactiveSplit.All.Current, 2)
	end, ok := at(2*mib-512, 512)
	testkit.Equal(t, "the last bytes are free", ok, true)
	testkit.Equal(t, "free parts", b.Stats().InactiveSplitBytes.All.Current, 2*mib-1536)
	b.Free(middle)
	b.Free(end)

	// The requested size is rounded as in a request, and a remainder that would not have been cut off belongs to the
	// block.
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
					testkit.Equal(t, "what was asked for", info.RequestedSize, c[1])
				}
			}
		}
		b.Free(block)
	}
	testkit.Contains(t, testkit.Panic(t, func() { at(0, 0) }), "AllocAt of 0 bytes")
	if block, ok := at(0, 1<<61); ok {
		t.Errorf("2 EiB: %+v", block)
	}
	b.ReleasePool(id)
}
