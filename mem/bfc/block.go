package bfc

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A ref is the index of a block; 0 is none.
type ref uint32

// A state is the state of an entry of Allocator.blocks.
type state uint8

const (
	none state = iota // unused entry
	live              // allocated
	free              // a free block, in its bin
)

// A block is a span of a segment.
type block struct {
	ptr         driver.Pointer
	size        int64 // a multiple of unit
	left, right ref   // its children in the bin, while it is free
	prev, next  ref   // its neighbours in the segment
	requested   int64 // bytes; of a free block, by its last user, if it has not merged since

	deps       reuse.Dependencies // while free: the streams that may still use it; while live: its stream
	freedAt    uint64             // while free: the counter at its free; 0: none, or below the safe frontier
	stream     driver.StreamID    // while live: the stream of its allocation
	generation uint32             // number of its allocations; never 0 while live
	state      state
	queued     bool // in Allocator.timed
}

func (r *block) shares() bool { return r.prev != 0 || r.next != 0 }

// newBlock returns a new free block. It may move all blocks in memory.
func (a *Allocator) newBlock(ptr driver.Pointer, size int64) ref {
	var n ref
	if last := len(a.unused) - 1; last >= 0 {
		n, a.unused = a.unused[last], a.unused[:last]
	} else {
		n = ref(len(a.blocks))
		a.blocks = append(a.blocks, block{})
	}
	r := &a.blocks[n]
	*r = block{ptr: ptr, size: size, state: free, generation: r.generation, queued: r.queued}
	return n
}

// deleteBlock makes an entry unused.
func (a *Allocator) deleteBlock(n ref) {
	r := &a.blocks[n]
	*r = block{generation: r.generation, queued: r.queued}
	a.unused = append(a.unused, n)
}

// addToBin puts a free block into its bin. Its neighbours must not change before removeFromBin.
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

// split splits the end off a block that is in no bin, leaving size bytes, and puts the end into its bin.
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

// coalesce merges a free block that is in no bin with its free neighbours, and returns the result, which is in no bin.
// Neighbours above the safe frontier stay as they are, and the block itself must be below it, unless force is set,
// which takes one neighbour on either side. Below the frontier there may be several free neighbours in a row.
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

// handle returns the mem.Block of a live block. Its tag is never 0.
func (r *block) handle(n ref) mem.Block {
	return mem.Block{Ptr: r.ptr, Size: r.size, Tag: uint64(r.generation)<<32 | uint64(n)}
}

// lookup returns the index of a live block, and panics if b is not live.
func (a *Allocator) lookup(b mem.Block) ref {
	n, generation := ref(b.Tag), uint32(b.Tag>>32)
	fact := "no block of this allocator"
	if n != 0 && int(n) < len(a.blocks) && generation != 0 {
		switch r := &a.blocks[n]; {
		case r.state == live && r.handle(n) == b:
			return n
		case generation < r.generation || generation == r.generation && r.state != live:
			fact = "freed already, or no block of this allocator"
		}
	}
	panic(fmt.Sprintf("bfc: Free of %d bytes at %#x: %s", b.Size, uint64(b.Ptr), fact))
}
