package paged

import (
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

const unit = 512 // bytes: what every address and size is a multiple of

// A ref finds a span's record. Zero is none: that record is nobody's, and what neighbours write there is never read.
type ref uint32

type spanState uint8

const (
	none  spanState = iota // the record is unused
	hole                   // free, in a list of its bin
	front                  // the hole at the end of a region, in no list
	block                  // on loan, or held by a rack
	whole                  // a slab
	slot                   // a part of a slab: on loan, or held by a rack
	spare                  // a part of a slab that is free
)

// A span is a stretch of a region, or a slot of a slab: one cache line. The borrower of a block, or the rack that holds
// it, may read what says where it is; the links belong to Allocator.mu.
type span struct {
	ptr  driver.Pointer
	past reuse.Dependencies // free: what may still touch it; else the stream that it was allocated for

	units uint32 // size, in units
	// turns counts the times that the block came back. A tag holds the count of the loan that it was made for, so a Free that
	// comes twice finds another (but not 4,294,967,296 loans later).
	turns        atomic.Uint32
	prev, next   ref // neighbours; of a slot: prev is its slab
	prev2, next2 ref // in the list of a bin or of a shelf
	stream       driver.StreamID
	mapping      mref   // of a block or slab: where it starts
	live         uint16 // of a slab: slots that are not free
	slack        uint16 // units that were not asked for, in bytes
	region       uint16
	state        spanState
	lent         bool // on loan
}

func (r *span) size() int64  { return int64(r.units) * unit }
func (r *span) asked() int64 { return r.size() - int64(r.slack) }

func (r *span) end() driver.Pointer { return r.ptr + driver.Pointer(r.size()) }

// lend puts a block on loan. Nobody else has it.
func (r *span) lend(at ref, asked int64) mem.Block {
	size := r.size()
	r.slack, r.lent = uint16(size-asked), true
	return mem.Block{Ptr: r.ptr, Size: size, Tag: uint64(r.turns.Load())<<32 | uint64(at)}
}

// turn takes a block back, unless it is not on loan by this tag.
func (r *span) turn(tag uint64) bool {
	turns := uint32(tag >> 32)
	if !r.lent || !r.turns.CompareAndSwap(turns, turns+1) {
		return false
	}
	r.lent = false
	return true
}

const (
	recordChunk = 1 << 12 // records
	maxChunks   = 1 << 14
)

// records hold all spans; their addresses never change, and they are never given up.
type records struct {
	chunks [maxChunks]*[recordChunk]span
	n      uint32 // chunks; guarded by Allocator.mu, as is what follows
	unused ref    // linked by next
}

func (rs *records) at(at ref) *span { return &rs.chunks[at/recordChunk%maxChunks][at%recordChunk] }

// find returns the record of a block that is on loan, and panics if b can be none.
func (rs *records) find(b mem.Block) (ref, *span) {
	at := ref(b.Tag)
	if at >= maxChunks*recordChunk || rs.chunks[at/recordChunk] == nil {
		panicForeign(b)
	}
	r := rs.at(at)
	if r.ptr != b.Ptr || r.size() != b.Size {
		panicForeign(b)
	}
	return at, r
}

// take returns an unused record. The caller holds mu.
func (rs *records) take() (ref, *span) {
	if rs.unused == 0 {
		if rs.n == maxChunks {
			panic("paged: more than 67,108,864 blocks and holes")
		}
		first := ref(rs.n) * recordChunk
		rs.chunks[rs.n] = new([recordChunk]span)
		rs.n++
		for i := recordChunk - 1; i >= 0; i-- {
			if at := first + ref(i); at != 0 {
				rs.at(at).next, rs.unused = rs.unused, at
			}
		}
	}
	at := rs.unused
	r := rs.at(at)
	rs.unused = r.next
	r.past, r.slack, r.live = reuse.Dependencies{}, 0, 0
	return at, r
}

// give takes a record back.
func (rs *records) give(at ref, r *span) {
	r.state, r.ptr, r.units = none, 0, 0
	r.next, rs.unused = rs.unused, at
}
