package mem

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
)

// ErrContentsLost is matched by the error of a request or compaction in which the device failed in a move, and then in
// undoing it. Blocks whose holders received a stream in EndMove, but no new address, may hold each other's bytes. Later
// moves may fail with the same error.
var ErrContentsLost = errors.New("mem: contents of blocks are lost")

// A Holder keeps the address of a block that its allocator may move. The allocator calls it under its own locks, from
// any goroutine that allocates or compacts: its methods must return soon and must not call an allocator.
type Holder interface {
	// BeginMove asks whether the block may be moved now. If it returns true, no code may read the address or queue work
	// on the memory until EndMove. used are the streams, besides the block's own, whose queued work may access the
	// memory. A holder must return false for a block whose address is in a captured graph.
	BeginMove() (used []driver.Stream, ok bool)

	// EndMove is called once for each BeginMove that returned true. The block is now at b; its tag may have changed
	// too. If it was moved, s is the stream that copies the bytes, and work queued on other streams from now on must
	// wait for the work queued on s at this moment. If it was not moved, b is unchanged, and s is nil unless the device
	// failed after copies of the block may have been queued on s: then other work must wait for s all the same, and
	// the block's bytes may also be at other blocks' addresses.
	EndMove(b Block, s driver.Stream)
}

// A Mover is an allocator, or a layer over one, that moves blocks whose holders permit it.
type Mover interface {
	// Movable permits the allocator to move b, a live block, until its Free: h is asked before each move. It returns
	// false, and does not keep h, if no allocator in the stack moves blocks. A block is not moved without such a call.
	// A second call for a block replaces its holder. A holder must refuse once it has begun to free its block.
	Movable(b Block, h Holder) bool
}

// A Compactor moves blocks together, so that the free memory becomes one range.
type Compactor interface {
	Mover

	// Compact queues on s the moves that bring the movable blocks together, and calls their holders. s waits for the
	// streams that use the blocks; Compact itself does not wait unless the allocator documents it. The error is the
	// reason why no blocks can be moved, or an error of the device. After an error of the device, each block is at the
	// address that its holder received last, and has its contents unless the error matches ErrContentsLost.
	Compact(s driver.Stream) error
}

// Movable permits a to move b, one of its live blocks, if a is a Mover. A layer that is not a Mover prevents the
// allocators below from moving its blocks.
func Movable(a Allocator, b Block, h Holder) bool {
	m, ok := a.(Mover)
	return ok && m.Movable(b, h)
}
