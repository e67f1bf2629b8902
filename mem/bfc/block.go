package bfc

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A ref is the number of a record; 0 is none.
type ref uint32

// A state tells what a record stands for.
type state uint8

const (
	none state = iota // the record is vacant
	live              // a live block
	free              // a free block, in its bin
)

// A block is the allocator's record of a block.
type block struct {
	ptr         driver.Pointer
	size        int64 // a multiple of unit
	left, right ref   // its children in the bin, while it is free
	prev, next  ref   // its neighbours in the segment
	requested   int64 // bytes; of a free block that has not merged since, those of its last user

	deps    reuse.Dependencies // while free: the streams that may still use it; while live: its stream
	freedAt uint64             // while free: the counter at its free; 0 if none, or if the safe frontier has passed it
	stream  driver.StreamID    // while live: that of its Alloc
	gen     uint32             // generation: counts the allocations; never 0 of a live block
	state   state
	queued  bool // in Allocator.timed
}

func (r *block) shares() bool { return r.prev != 0 || r.next != 0 }

// newBlock returns a record for a free block. It may reallocate all records.
func (a *Allocator) newBlock(ptr driver.Pointer, size int64) ref {
	var n ref
	if last := len(a.unused) - 1; last >= 0 {
		n, a.unused = a.unused[last], a.unused[:last]
	} else {
		n = ref(len(a.blocks))
		a.blocks = append(a.blocks, block{})
	}
	r := &a.blocks[n]
	*r = block{ptr: ptr, size: size, state: free, gen: r.gen, queued: r.queued}
	return n
}

// deleteBlock makes a record vacant.
func (a *Allocator) deleteBlock(n ref) {
	r := &a.blocks[n]
	*r = block{gen: r.gen, queued: r.queued}
	a.unused = append(a.unused, n)
}

// addToBin adds a free block to its bin, and removeFromBin removes it. Its neighbours do not change in between.
func (a *Allocator) addToBin(n ref) {
	a.bins.insert(a.blocks, n)
	if r := &a.blocks[n]; r.shares() && a.pages == nil {
		a.stats.InactiveSplit.All.Increase(1)
		a.stats.InactiveSplitBytes.All.Increase(r.size)
	}
}

func (a *Allocator) removeFromBin(n ref) {
	a.bins.remove(a.blocks, n)
	if r := &a.blocks[n]; r.shares() && a.pages == nil {
		a.stats.InactiveSplit.All.Decrease(1)
		a.stats.InactiveSplitBytes.All.Decrease(r.size)
	}
}

// split cuts a block that is in no bin to size bytes, and adds the rest to its bin.
func (a *Allocator) split(n ref, size int64) {
	rest := a.newBlock(a.blocks[n].ptr+driver.Pointer(size), a.blocks[n].size-size)
	r, x := &a.blocks[n], &a.blocks[rest]
	x.deps, x.freedAt = r.deps, r.freedAt
	x.prev, x.next = n, r.next
	if x.next != 0 {
		a.blocks[x.next].prev = rest
	}
	r.next, r.size = rest, size
	a.addToBin(rest)
	a.queue(rest)
}

// coalesce merges a free block that is in no bin with its free neighbours, and returns the merged block, which is in no
// bin. The block, and the neighbours that it merges with, are below the safe frontier, unless force is set, which
// merges one neighbour on either side. Several blocks in a row below the frontier may be unmerged.
func (a *Allocator) coalesce(n ref, force bool) ref {
	mergeable := func(beside ref, force bool) bool {
		r := &a.blocks[beside]
		return beside != 0 && r.state == free && (force || r.freedAt == 0 && a.blocks[n].freedAt == 0)
	}
	for next, f := a.blocks[n].next, force; mergeable(next, f); next, f = a.blocks[n].next, false {
		a.removeFromBin(next)
		a.merge(n, next)
	}
	for prev, f := a.blocks[n].prev, force; mergeable(prev, f); prev, f = a.blocks[n].prev, false {
		a.removeFromBin(prev)
		a.merge(prev, n)
		n = prev
	}
	return n
}

// merge adds the block after n to n. Neither is in a bin.
func (a *Allocator) merge(n, next ref) {
	r, x := &a.blocks[n], &a.blocks[next]
	r.size += x.size
	r.requested = 0
	r.deps = a.streams.Merge(r.deps, x.deps)
	r.freedAt = max(r.freedAt, x.freedAt)
	if r.next = x.next; r.next != 0 {
		a.blocks[r.next].prev = n
	}
	a.deleteBlock(next)
}

// handle returns the mem.Block of a live record. The tag is never 0.
func (r *block) handle(n ref) mem.Block {
	return mem.Block{Ptr: r.ptr, Size: r.size, Tag: uint64(r.gen)<<32 | uint64(n)}
}

// lookup returns the record of a live block, and panics for any other b.
func (a *Allocator) lookup(b mem.Block) ref {
	n, gen := ref(b.Tag), uint32(b.Tag>>32)
	fact := "no block of this allocator"
	if n != 0 && int(n) < len(a.blocks) && gen != 0 {
		switch r := &a.blocks[n]; {
		case r.state == live && r.handle(n) == b:
			return n
		case gen < r.gen || gen == r.gen && r.state != live:
			fact = "freed already, or no block of this allocator"
		}
	}
	panic(fmt.Sprintf("bfc: Free of %d bytes at %#x: %s", b.Size, uint64(b.Ptr), fact))
}
