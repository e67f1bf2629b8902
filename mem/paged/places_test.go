package paged_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// placed allocates a block at an offset into the places.
func (r *rig) placed(offset, size int64) mem.Block {
	r.t.Helper()
	b, err := r.a.AllocAt(r.places()+driver.Pointer(offset), r.s, size, mem.AllocOptions{})
	r.must(err)
	return b
}

func (r *rig) places() driver.Pointer {
	r.t.Helper()
	base, size, err := r.a.Places()
	r.must(err)
	if size < r.dev.Info().TotalMemory {
		r.t.Fatalf("%d bytes of addresses: want enough for all memory", size)
	}
	return base
}

func TestABlockIsAtTheAddressThatTheCallerChose(t *testing.T) {
	r := simple(t, 1<<15, paged.Config{})
	base := r.places()
	for range 3 {
		first, second := r.placed(3*granule, 2*granule), r.placed(granule, 2*granule)
		if first.Ptr != base+3*granule || second.Ptr != base+granule {
			t.Errorf("blocks at %#x and %#x, want them at 3 and 1 granules of %#x", first.Ptr, second.Ptr, base)
		}
		r.check()
		r.free(first, second)
		r.check()
	}
	if n := r.calls(func() { r.free(r.placed(3*granule, 2*granule)) }); n != 0 {
		t.Errorf("%d driver calls for a block at an address that has memory, want none", n)
	}
}

func TestABlockIsElsewhereIfItsAddressesAreInUse(t *testing.T) {
	r := simple(t, 1<<15, paged.Config{})
	base := r.places()
	first := r.placed(0, 4*granule)
	for _, offset := range []int64{0, granule, 512} {
		b := r.placed(offset, granule)
		if b.Ptr < first.Ptr+driver.Pointer(first.Size) && first.Ptr < b.Ptr+driver.Pointer(b.Size) {
			t.Errorf("a block at %#x overlaps the one at %#x", b.Ptr, first.Ptr)
		}
		r.check()
		r.free(b)
	}
	r.free(first)
	other := r.granules(2)
	if other.Ptr == base {
		t.Error("a request without an address got one of those that AllocAt serves")
	}
	r.free(other)
}

// Addresses that are not among the places have no effect.
func TestAddressesBeyondThePlacesAreIgnored(t *testing.T) {
	r := simple(t, 8, paged.Config{Page: granule})
	base := r.places()
	_, size, err := r.a.Places()
	r.must(err)
	end := base + driver.Pointer(size)
	idle := r.granules(2)
	r.free(idle)
	for _, p := range []driver.Pointer{512, base - granule, end - granule, end, 1<<64 - granule, 1<<64 - 512} {
		calls := r.calls(func() {
			b, err := r.a.AllocAt(p, r.s, 2*granule, mem.AllocOptions{})
			r.must(err)
			if b.Ptr != idle.Ptr {
				t.Errorf("with %#x the block is at %#x, want it at %#x as without an address", p, b.Ptr, idle.Ptr)
			}
			r.check()
			r.free(b)
		})
		if calls != 0 {
			t.Errorf("with %#x there are %d driver calls, want none", p, calls)
		}
	}
}

// Memory that is short is not wasted on addresses: idle pages move to them, and from them to other blocks.
func TestPlacesShareTheMemoryOfTheOtherBlocks(t *testing.T) {
	r := simple(t, 8, paged.Config{Page: granule})
	all := r.placed(0, 8*granule)
	r.noMemory(func() error { _, err := r.a.Alloc(r.s, granule); return err }())
	r.free(all)
	all = r.granules(8)
	if _, err := r.a.AllocAt(r.places(), r.s, granule, mem.AllocOptions{}); err == nil {
		t.Error("there is memory for a ninth granule of eight")
	}
	r.check()
	r.free(all)
	r.free(r.placed(5*granule, 8*granule))
}

func TestBlocksInARowAreNeighbours(t *testing.T) {
	r := simple(t, 1<<15, paged.Config{})
	gap, end := r.granules(4), r.granules(1)
	r.free(gap)
	var blocks []mem.Block
	for i := range 4 {
		b, err := r.a.AllocAt(0, r.s, 3*granule/2, mem.AllocOptions{})
		r.must(err)
		if i > 0 && b.Ptr != blocks[i-1].Ptr+3*granule/2 {
			t.Errorf("block %d is at %#x, the one before at %#x: want it right behind", i, b.Ptr, blocks[i-1].Ptr)
		}
		blocks = append(blocks, b)
	}
	r.check()
	r.free(append(blocks, end)...)
}

// If little memory is left, a row begins in holes, as all blocks do then.
func TestARowUsesHolesIfMemoryIsShort(t *testing.T) {
	r := simple(t, 8, paged.Config{Page: granule})
	gap, end := r.granules(1), r.granules(6)
	r.free(gap)
	b, err := r.a.AllocAt(0, r.s, granule, mem.AllocOptions{})
	r.must(err)
	if b.Ptr != gap.Ptr {
		t.Errorf("the block is at %#x, want it in the hole at %#x", b.Ptr, gap.Ptr)
	}
	r.free(b, end)
}

// Slabs of small blocks lie side by side, so that they keep few pages in use.
func TestSlabsAreNeighboursAmongPlaces(t *testing.T) {
	r := simple(t, 1<<15, paged.Config{})
	r.places()
	var blocks []mem.Block
	low, high := ^driver.Pointer(0), driver.Pointer(0)
	for i := range int64(6) {
		blocks = append(blocks, r.granules(3), r.alloc(r.s, 512*(1+i)))
		small := blocks[len(blocks)-1]
		low, high = min(low, small.Ptr), max(high, small.Ptr)
	}
	if high-low > 6*64<<10 {
		t.Errorf("six slabs lie in %d bytes, want %d", high-low, 6*64<<10)
	}
	r.check()
	r.free(blocks...)
}

func TestPlacesOfAClosedAllocator(t *testing.T) {
	r := simple(t, 8, paged.Config{})
	r.places()
	r.must(r.a.Close())
	if _, _, err := r.a.Places(); err == nil {
		t.Error("Places of a closed allocator is no error")
	}
	if _, err := r.a.AllocAt(0, r.s, granule, mem.AllocOptions{}); err == nil {
		t.Error("AllocAt of a closed allocator is no error")
	}
}
