package arena

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A state is what a record stands for.
type state uint8

const (
	none state = iota
	live
	frozen
	child
)

// A record is what the arena knows of a block.
type record struct {
	at     int64 // offset in the region
	size   int64 // a multiple of Round
	asked  int64 // bytes
	holder mem.Holder
	origin reuse.Set // the stream that it was allocated for
	mover  reuse.Set // the stream that moved it last
	gen    uint32    // counts the blocks that the record stood for; never 0 of a block
	place  uint32    // in Arena.order, unless frozen
	state  state
	lifted bool // its holder said yes to BeginMove, and waits for EndMove
	stays  bool // its holder said no the last time
}

// enter makes a record of a block that was taken.
func (a *Arena) enter(r record) uint32 {
	var i uint32
	if n := len(a.vacant); n > 0 {
		i, a.vacant = a.vacant[n-1], a.vacant[:n-1]
	} else {
		i = uint32(len(a.records))
		a.records = append(a.records, record{})
	}
	r.gen = max(1, a.records[i].gen+1) // in four billion blocks it comes round
	r.place = uint32(len(a.order))
	a.order = append(a.order, i)
	a.records[i] = r
	a.countLoan(&r)
	return i
}

// leave takes a block's record out.
func (a *Arena) leave(i uint32) {
	r := &a.records[i]
	a.countReturn(r)
	if r.state != frozen {
		last := a.order[len(a.order)-1]
		a.order[r.place], a.records[last].place = last, r.place
		a.order = a.order[:len(a.order)-1]
	}
	*r = record{gen: r.gen}
	a.vacant = append(a.vacant, i)
}

// block is what callers have of a record. The tag is never 0.
func (a *Arena) block(i uint32) mem.Block {
	r := &a.records[i]
	return mem.Block{Ptr: a.pointer(r.at), Size: r.size, Tag: uint64(r.gen)<<32 | uint64(i)}
}

// find returns the record of a live block, and panics if b is none.
func (a *Arena) find(call string, b mem.Block) uint32 {
	i, gen := uint32(b.Tag), uint32(b.Tag>>32)
	fact := "no block of this arena"
	switch {
	case int(i) >= len(a.records) || gen == 0 || gen > a.records[i].gen || a.records[i].state == child:
	case gen < a.records[i].gen || a.records[i].state == none:
		fact = "freed already"
	case a.block(i) == b:
		return i
	case a.records[i].mover != 0:
		fact = fmt.Sprintf("%d bytes at %#x, where it was moved, or no block of this arena",
			a.records[i].size, uint64(a.block(i).Ptr))
	}
	panic(fmt.Sprintf("arena: %s of %d bytes at %#x: %s", call, b.Size, uint64(b.Ptr), fact))
}

// pointer is the address of an offset.
func (a *Arena) pointer(at int64) driver.Pointer { return a.ground.base + driver.Pointer(at) }
