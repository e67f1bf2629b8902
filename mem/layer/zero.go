package layer

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Zeroer allocates zeroed blocks. See NewZeroer.
type Zeroer struct{ Pass }

// NewZeroer returns an allocator whose blocks are all zero bytes for work queued on their stream after Alloc. It queues
// a Fill over each block of a, including the rounding, on the block's stream. So no byte of one tenant reaches another,
// provided that all of them allocate through a Zeroer: put it below the layer that separates them, such as Quotas, and
// above any layer that reuses memory. Layers that do refuse a Zeroer below them: magazine.New and NewSlabs panic, and
// arena.NewFrom and planned.New return an error. The order of the stream suffices; Alloc does not wait.
// NewIsolatedQuotas wipes memory only when it changes hands.
//
// Blocks are zeroed when they are allocated, not when they are freed. So memory that was moved, split or merged is
// zeroed too, a failed Fill is an error of Alloc (the block is freed), and a free costs nothing. Until then the bytes
// remain: code that reads the device's memory without a Zeroer sees them.
//
// A call costs one Fill. While the stream captures, the Fill belongs to the graph and each launch repeats it; before
// the first launch the old bytes remain. So tenants that must not see each other's data must not capture.
func NewZeroer(a mem.Allocator) *Zeroer { return &Zeroer{Pass{a}} }

// ZeroesBlocks marks allocators above which memory must not be reused (mem/internal/zeroed).
func (*Zeroer) ZeroesBlocks() {}

// Alloc implements mem.Allocator. The error is that of the allocator below, or the device's error in filling the block.
func (z *Zeroer) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return z.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (z *Zeroer) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(z.Below, s, size, o)
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	if err := s.Fill(b.Ptr, 0, b.Size); err != nil {
		z.Below.Free(b)
		return mem.Block{}, fmt.Errorf("layer: Zeroer: wipe %d bytes: %w", b.Size, err)
	}
	return b, nil
}
