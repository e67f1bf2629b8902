package mem

import "github.com/ashlar-go/ashlar/driver"

// A Holder keeps the address of a block that its allocator may move. The allocator calls it under its own locks, from
// whichever goroutine allocates or compacts: its methods return soon and call no allocator.
type Holder interface {
	// BeginMove asks whether the block may be moved now. Whoever says yes lets nobody take the address, nor queue work on the
	// memory, until EndMove. The streams are those, beside the one that the block was allocated for, whose queued work may
	// touch the memory. A block whose address is in a captured graph stays where it is: the holder refuses.
	BeginMove() (used []driver.Stream, ok bool)

	// EndMove ends what BeginMove began, once for each BeginMove that said yes. The block lies at b now; its tag may have changed too.
	// If it was moved, s is the stream that moves the bytes, and work that is queued on others from now on must wait for
	// what is queued on s at this moment; if it was not, s is nil and b is the block as it was.
	EndMove(b Block, s driver.Stream)
}

// A Mover is an allocator, or a layer over one, that moves blocks whose holders let it.
type Mover interface {
	// Movable lets b, a live block, be moved from now on until its Free: h is asked before each move. It reports false,
	// and keeps nothing, if nothing here moves blocks. A block for which it was not called stays where it is. Called again
	// for a block, it is the later holder that counts. A holder refuses once it has begun to free its block.
	Movable(b Block, h Holder) bool
}

// A Compactor slides blocks together, so that the free memory becomes one hole.
type Compactor interface {
	Mover

	// Compact queues on s the moves that bring the movable blocks together, and tells their holders. It waits for no work,
	// unless the allocator says where it does: s waits for the streams that use the blocks. The error says why nothing could
	// be moved, or is the device's: then each block is where its holder was told last.
	Compact(s driver.Stream) error
}

// Movable lets b, a live block of a, be moved from now on if a moves blocks: see Mover. A layer that is no Mover, and so
// could not follow its block, keeps what is below it from moving any.
func Movable(a Allocator, b Block, h Holder) bool {
	m, ok := a.(Mover)
	return ok && m.Movable(b, h)
}
