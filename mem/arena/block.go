package arena

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A state is the state of an entry of Arena.blocks.
type state uint8

const (
	none state = iota
	live
	frozen
	child
)

// A block is an allocated span of the arena.
type block struct {
	at         int64      // offset in the region
	size       int64      // a multiple of Round
	requested  int64      // bytes
	holder     mem.Holder // nil: it does not move
	origin     reuse.Set  // the stream of its allocation
	mover      reuse.Set  // the stream that last moved it
	generation uint32     // number of the entry's allocations; never 0 for a live block
	orderIndex uint32     // in Arena.order, unless frozen
	state      state
	moving     bool // its holder agreed to BeginMove and waits for EndMove
	refused    bool // its holder refused the last time
}

// addBlock adds an allocated block.
func (a *Arena) addBlock(r block) uint32 {
	i := slots.Unused(&a.blocks, &a.unused)
	r.generation = max(1, a.blocks[i].generation+1) // wraps after four billion allocations
	r.orderIndex = uint32(len(a.order))
	a.order = append(a.order, i)
	a.blocks[i] = r
	a.countAlloc(&r)
	return i
}

// removeBlock removes a freed block.
func (a *Arena) removeBlock(i uint32) {
	r := &a.blocks[i]
	a.countFree(r)
	if r.state != frozen {
		last := a.order[len(a.order)-1]
		a.order[r.orderIndex], a.blocks[last].orderIndex = last, r.orderIndex
		a.order = a.order[:len(a.order)-1]
	}
	*r = block{generation: r.generation}
	a.unused = append(a.unused, i)
}

// handle returns the mem.Block of a block. Its tag is never 0.
func (a *Arena) handle(i uint32) mem.Block {
	r := &a.blocks[i]
	return mem.Block{Ptr: a.pointer(r.at), Size: r.size, Tag: uint64(r.generation)<<32 | uint64(i)}
}

// find returns the index of a live block, and panics if b is not live.
func (a *Arena) find(call string, b mem.Block) uint32 {
	i, generation := uint32(b.Tag), uint32(b.Tag>>32)
	fact := "no block of this arena"
	switch {
	case int(i) >= len(a.blocks) || generation == 0 || generation > a.blocks[i].generation || a.blocks[i].state == child:
	case generation < a.blocks[i].generation || a.blocks[i].state == none:
		fact = "freed already"
	case a.handle(i) == b:
		return i
	case a.blocks[i].mover != 0:
		fact = fmt.Sprintf("%d bytes at %#x, where it was moved, or no block of this arena",
			a.blocks[i].size, uint64(a.handle(i).Ptr))
	}
	panic(fmt.Sprintf("arena: %s of %d bytes at %#x: %s", call, b.Size, uint64(b.Ptr), fact))
}

// pointer returns the address of an offset.
func (a *Arena) pointer(at int64) driver.Pointer { return a.region.base + driver.Pointer(at) }
