package layer

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Zeroer allocator allocates blocks that hold nothing of their last user. See Zero.
type Zeroer struct{ Pass }

// Zero returns an allocator whose blocks are all zero bytes for the work that is queued on their stream after Alloc: it
// queues a Fill over each block of a, over what a rounded up too, on the stream that it is for. No byte of one tenant
// so reaches another, provided that all of them allocate through a Zero: put it below what tells them apart, such as
// Quotas, and above what hands memory out again, such as a cache or a Slab, whose pieces it would not see. The order of
// streams does it: the layer below sees to it that the memory is the stream's by then, and nobody waits.
//
// Blocks are wiped when they are allocated, not when they are freed. So memory that was moved, split, merged or left
// behind by a compaction is wiped all the same, a failing Fill is an error of Alloc (the block goes back below) and
// keeps no secret in the cache, and a free costs nothing. Until then the bytes are where they were: who reads a
// device's memory without going through a Zero sees them.
//
// A call costs a Fill: one driver call. While the stream captures, the wipe belongs to the graph, and each launch
// wipes. Before the first one the bytes are where they were, so do not let tenants capture who must not see each
// other's.
func NewZeroer(a mem.Allocator) *Zeroer { return &Zeroer{Pass{a}} }

// Alloc implements mem.Allocator. The error is that of the layer below, or the device's, which could not wipe.
func (z *Zeroer) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := z.Below.Alloc(s, size)
	return z.wipe(s, b, err)
}

// AllocWith implements mem.OptionsAllocator.
func (z *Zeroer) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(z.Below, s, size, o)
	return z.wipe(s, b, err)
}

func (z *Zeroer) wipe(s driver.Stream, b mem.Block, err error) (mem.Block, error) {
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	if err := s.Fill(b.Ptr, 0, b.Size); err != nil {
		z.Below.Free(b)
		return mem.Block{}, fmt.Errorf("layer: Zeroer: wipe %d bytes: %w", b.Size, err)
	}
	return b, nil
}
