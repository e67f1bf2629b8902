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
	bins  []Bin // ascending by size
	parts       // those of the bins, then that of the rest
}

// NewBinning returns an allocator that sends a request to the bin with the smallest size that is not below the
// request's, and larger requests to rest. It is RMM's binning_memory_resource, whose bins are Slabs of powers of two
// over rest; any allocators will do. The size alone chooses the allocator: a bin without room fails the request (give
// it a Fallback). Sizes that are not positive, or equal, panic. A warm call takes one short lock.
func NewBinning(rest mem.Allocator, bins ...Bin) *Binning {
	b := &Binning{bins: slices.Clone(bins), parts: newParts("Binning")}
	slices.SortFunc(b.bins, func(x, y Bin) int { return cmp.Compare(x.Size, y.Size) })
	for i, bin := range b.bins {
		if bin.Size <= 0 || i > 0 && bin.Size == b.bins[i-1].Size || len(b.bins) > 1<<15 {
			panic(fmt.Sprintf("layer: Binning with a bin of %d bytes, one of %d: want positive sizes, none twice",
				bin.Size, len(b.bins)))
		}
		b.all = append(b.all, bin.Allocator)
	}
	b.all = append(b.all, rest)
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
	b, err := mem.AllocWith(x.all[at], s, size, o)
	if err != nil || b.Ptr == 0 {
		return mem.Block{}, err
	}
	return x.add(s.ID(), size, b, b, uint16(at)), nil
}

// Unwrap implements mem.Wrapper. It returns rest, so mem.Find finds the statistics of rest.
func (x *Binning) Unwrap() mem.Allocator { return x.all[len(x.bins)] }
