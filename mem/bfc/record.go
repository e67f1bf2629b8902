package bfc

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A ref is the number of a record; 0 is none.
type ref uint32

// A state is what a record stands for.
type state uint8

const (
	none state = iota // nothing: the record is vacant
	live              // a block on loan
	free              // a free block, in its bin
)

// A record is what the allocator knows of a block.
type record struct {
	ptr         driver.Pointer
	size        int64 // a multiple of unit
	left, right ref   // its children in the bin, while it is free
	prev, next  ref   // its neighbours in the segment
	asked       int64 // bytes; of a free block, by its last user, if it has not merged since

	past    reuse.Dependencies // while free: who may still touch it; while live: its stream
	freedAt uint64             // while free: the counter at its free; 0: none, or the safe frontier has passed it
	stream  driver.StreamID    // while live: that it was allocated for
	gen     uint32             // counts the loans; never 0 of a live block
	state   state
	queued  bool // in Allocator.timed
}

func (r *record) shares() bool { return r.prev != 0 || r.next != 0 }

// enter returns a record for a free block. It may move all records.
func (a *Allocator) enter(ptr driver.Pointer, size int64) ref {
	var n ref
	if last := len(a.vacant) - 1; last >= 0 {
		n, a.vacant = a.vacant[last], a.vacant[:last]
	} else {
		n = ref(len(a.records))
		a.records = append(a.records, record{})
	}
	r := &a.records[n]
	*r = record{ptr: ptr, size: size, state: free, gen: r.gen, queued: r.queued}
	return n
}

// drop gives a record up.
func (a *Allocator) drop(n ref) {
	r := &a.records[n]
	*r = record{gen: r.gen, queued: r.queued}
	a.vacant = append(a.vacant, n)
}

// shelve puts a free block into its bin, and unshelve takes it out. Its neighbours do not change in between.
func (a *Allocator) shelve(n ref) {
	a.bins.insert(a.records, n)
	if r := &a.records[n]; r.shares() && a.pages == nil {
		a.stats.InactiveSplit.All.Increase(1)
		a.stats.InactiveSplitBytes.All.Increase(r.size)
	}
}

func (a *Allocator) unshelve(n ref) {
	a.bins.remove(a.records, n)
	if r := &a.records[n]; r.shares() && a.pages == nil {
		a.stats.InactiveSplit.All.Decrease(1)
		a.stats.InactiveSplitBytes.All.Decrease(r.size)
	}
}

// split cuts the end off a block that is in no bin, so that size bytes are left, and shelves what it cut off.
func (a *Allocator) split(n ref, size int64) {
	rest := a.enter(a.records[n].ptr+driver.Pointer(size), a.records[n].size-size)
	r, x := &a.records[n], &a.records[rest]
	x.past, x.freedAt = r.past, r.freedAt
	x.prev, x.next = n, r.next
	if x.next != 0 {
		a.records[x.next].prev = rest
	}
	r.next, r.size = rest, size
	a.shelve(rest)
	a.queue(rest)
}

// coalesce merges a free block that is in no bin with the free blocks beside it, and returns what they became, which is in no
// bin. Neighbours above the safe frontier stay as they are, unless force is set, which takes one on either side; so must the
// block itself be below it. Below it there may be several in a row that have not merged yet.
func (a *Allocator) coalesce(n ref, force bool) ref {
	mergeable := func(beside ref, force bool) bool {
		r := &a.records[beside]
		return beside != 0 && r.state == free && (force || r.freedAt == 0 && a.records[n].freedAt == 0)
	}
	for next, f := a.records[n].next, force; mergeable(next, f); next, f = a.records[n].next, false {
		a.unshelve(next)
		a.merge(n, next)
	}
	for prev, f := a.records[n].prev, force; mergeable(prev, f); prev, f = a.records[n].prev, false {
		a.unshelve(prev)
		a.merge(prev, n)
		n = prev
	}
	return n
}

// merge adds the block after n to n. Neither is in a bin.
func (a *Allocator) merge(n, next ref) {
	r, x := &a.records[n], &a.records[next]
	r.size += x.size
	r.asked = 0
	r.past = a.streams.Merge(r.past, x.past)
	r.freedAt = max(r.freedAt, x.freedAt)
	if r.next = x.next; r.next != 0 {
		a.records[r.next].prev = n
	}
	a.drop(next)
}

// block is what callers have of a live record. The tag is never 0.
func (r *record) block(n ref) mem.Block {
	return mem.Block{Ptr: r.ptr, Size: r.size, Tag: uint64(r.gen)<<32 | uint64(n)}
}

// lookup returns the record of a live block, and panics if b is none.
func (a *Allocator) lookup(b mem.Block) ref {
	n, gen := ref(b.Tag), uint32(b.Tag>>32)
	fact := "no block of this allocator"
	if n != 0 && int(n) < len(a.records) && gen != 0 {
		switch r := &a.records[n]; {
		case r.state == live && r.block(n) == b:
			return n
		case gen < r.gen || gen == r.gen && r.state != live:
			fact = "freed already, or no block of this allocator"
		}
	}
	panic(fmt.Sprintf("bfc: Free of %d bytes at %#x: %s", b.Size, uint64(b.Ptr), fact))
}
