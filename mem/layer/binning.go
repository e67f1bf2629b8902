package layer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Bin serves requests of at most Size bytes that no smaller bin serves.
type Bin struct {
	Size      int64 // bytes
	Allocator mem.Allocator
}

// A Binning allocator sends each request to an allocator chosen by size. See NewBinning.
type Binning struct {
	bins               []Bin           // ascending by size
	parts              []mem.Allocator // those of the bins, then that of the rest
	blockTable[uint16]                 // index of the bin
}

// NewBinning returns an allocator that sends a request to the bin with the smallest size that is not below the
// request's, and larger requests to rest. It is RMM's binning_memory_resource, whose bins are Slabs of powers of two
// over rest; any allocators will do. The size alone chooses the allocator: a bin without room fails the request (give
// it a Fallback). Sizes that are not positive, or equal, panic. A warm call takes one short lock.
func NewBinning(rest mem.Allocator, bins ...Bin) *Binning {
	b := &Binning{bins: slices.Clone(bins), blockTable: blockTable[uint16]{name: "Binning"}}
	slices.SortFunc(b.bins, func(x, y Bin) int { return cmp.Compare(x.Size, y.Size) })
	for i, bin := range b.bins {
		if bin.Size <= 0 || i > 0 && bin.Size == b.bins[i-1].Size || len(b.bins) > 1<<15 {
			panic(fmt.Sprintf("layer: Binning with a bin of %d bytes, one of %d: want positive sizes, none twice",
				bin.Size, len(b.bins)))
		}
		b.parts = append(b.parts, bin.Allocator)
	}
	b.parts = append(b.parts, rest)
	return b
}

// Alloc implements mem.Allocator. The error is that of the bin.
func (x *Binning) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return x.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (x *Binning) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	at, _ := slices.BinarySearchFunc(x.bins, size, func(b Bin, size int64) int {
		if b.Size < size {
			return -1
		}
		return 1
	})
	b, err := mem.AllocWith(x.parts[at], s, size, o)
	if err != nil || b.Ptr == 0 {
		return mem.Block{}, err
	}
	return x.add(s.ID(), size, b, b, uint16(at)), nil
}

// Free implements mem.Allocator.
func (x *Binning) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	rec := x.remove(b, used)
	x.parts[rec.value].Free(rec.below, used...)
}

// Movable implements mem.Mover. It returns false if the allocator of the block's bin is no Mover.
func (x *Binning) Movable(b mem.Block, h mem.Holder) bool {
	return x.movable(b, h, func(bin uint16) mem.Allocator { return x.parts[bin] })
}

// EmptyCache implements mem.Trimmer, for the bins and then for rest.
func (x *Binning) EmptyCache() error { return emptyCaches(x.parts...) }

// Unwrap implements mem.Wrapper. It returns rest, so mem.Find finds the statistics of rest.
func (x *Binning) Unwrap() mem.Allocator { return x.parts[len(x.bins)] }
