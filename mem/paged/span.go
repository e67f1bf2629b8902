package paged

import (
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

const unit = 512 // bytes: every address and size is a multiple of this

// A ref is the index of a span. Zero is none: neighbours may write to that span, but its fields are never read.
type ref uint32

type spanState uint8

const (
	none     spanState = iota // unused
	hole                      // free, in the list of its bin
	tail                      // the hole at the end of a region, in no list
	block                     // live, or in a processor cache
	slabSpan                  // a slab
	slot                      // a part of a slab: live, or in a processor cache
	freeSlot                  // a free part of a slab
)

// A span is a range of a region, or a slot of a slab: one cache line. The owner of a block, or the processor cache
// that holds it, may read its address and size. The links belong to Allocator.mu.
type span struct {
	ptr  driver.Pointer
	deps reuse.Dependencies // free: the streams that may still access it; otherwise the stream of its allocation

	units uint32 // size, in units
	// generation counts the frees of the block. A tag holds the generation of its allocation, so a second Free finds
	// another one (until 4,294,967,296 allocations later).
	generation   atomic.Uint32
	prev, next   ref // neighbours; of a slot: prev is its slab
	prev2, next2 ref // in the list of a bin or of free slots
	stream       driver.StreamID
	mapping      mref   // of a block or slab: the mapping at its start; of a hole: perhaps that
	extra        uint32 // of a slab: slots that are not free; otherwise: bytes of the block beyond those requested
	region       uint16
	state        spanState
	allocated    bool // live
}

func (r *span) size() int64      { return int64(r.units) * unit }
func (r *span) requested() int64 { return r.size() - int64(r.extra) }

func (r *span) end() driver.Pointer { return r.ptr + driver.Pointer(r.size()) }

// tag returns the tag of a block's current allocation.
func (r *span) tag(at ref) uint64 { return uint64(r.generation.Load())<<32 | uint64(at) }

// privateTag is the bit of the tags of private pools' blocks, which no processor cache holds.
const privateTag = 1 << 31

// placeTag is the bit of the tags of blocks at addresses that the caller chose. Below it is the index of the span.
const placeTag = 1 << 30

// markAllocated makes a block live and returns it. No other goroutine has the block.
func (r *span) markAllocated(at ref, asked int64) mem.Block {
	size := r.size()
	r.extra, r.allocated = uint32(size-asked), true
	return mem.Block{Ptr: r.ptr, Size: size, Tag: r.tag(at)}
}

// markFree ends the allocation with this tag. It returns false if the block is not live by this tag.
func (r *span) markFree(tag uint64) bool {
	gen := uint32(tag >> 32)
	if !r.allocated || !r.generation.CompareAndSwap(gen, gen+1) {
		return false
	}
	r.allocated = false
	return true
}

const (
	spanChunk = 1 << 12 // spans
	maxChunks = 1 << 14
)

// A spanTable holds all spans. Their addresses never change, and they are never freed to Go.
type spanTable struct {
	chunks [maxChunks]*[spanChunk]span
	n      uint32 // chunks; guarded by Allocator.mu, as is what follows
	unused ref    // linked by next
}

func (t *spanTable) at(at ref) *span { return &t.chunks[at/spanChunk%maxChunks][at%spanChunk] }

// find returns the span of a live block. It panics if b cannot be one.
func (t *spanTable) find(b mem.Block) (ref, *span) {
	at := ref(b.Tag) &^ (privateTag | placeTag)
	if at >= maxChunks*spanChunk || t.chunks[at/spanChunk] == nil {
		panicForeign(b)
	}
	r := t.at(at)
	if r.ptr != b.Ptr || r.size() != b.Size {
		panicForeign(b)
	}
	return at, r
}

// alloc returns an unused span. The caller holds mu.
func (t *spanTable) alloc() (ref, *span) {
	if t.unused == 0 {
		if t.n == maxChunks {
			panic("paged: more than 67,108,864 blocks and holes")
		}
		first := ref(t.n) * spanChunk
		t.chunks[t.n] = new([spanChunk]span)
		t.n++
		for i := spanChunk - 1; i >= 0; i-- {
			if at := first + ref(i); at != 0 {
				t.at(at).next, t.unused = t.unused, at
			}
		}
	}
	at := t.unused
	r := t.at(at)
	t.unused = r.next
	r.deps, r.extra = reuse.Dependencies{}, 0
	return at, r
}

// free makes a span unused.
func (t *spanTable) free(at ref, r *span) {
	r.state, r.ptr, r.units = none, 0, 0
	r.next, t.unused = t.unused, at
}
