package caching

import "github.com/ashlar-go/ashlar/driver"

// A blockRef finds a block's record in its shard's slab. Zero is no block.
type blockRef uint32

// A block is a span of a segment: on loan, waiting for other streams, free, or, in an expandable segment, a span of
// addresses without memory. The blocks of a segment are linked in the order of their addresses and tile it.
//
// Records are never given up to the garbage collector and hold no pointers: 64 bytes, one cache line.
type block struct {
	ptr        driver.Pointer
	size       int64
	requested  int64 // what the last user asked for; kept while free, as PyTorch does
	gcBase     int64 // family.calls when it was last put into the free set
	prev, next blockRef
	expandable uint32 // index into shard.expandables + 1; 0 in an ordinary segment
	pending    int32  // marks on other streams that its free still waits for
	pool       uint16 // index into shard.pools
	gen        uint16 // how often the record has been handed out: part of the tag, so that a stale one is noticed
	state      blockState
	_          [7]byte
}

type blockState uint8

const (
	stateNone     blockState = iota // the record is unused
	stateFree                       // in the pool's free set
	stateLive                       // on loan
	statePending                    // freed, waiting for other streams
	stateUnmapped                   // no memory behind it: in the pool's unmapped list
)

func (b *block) isSplit() bool { return b.prev != 0 || b.next != 0 }
func (b *block) mapped() bool  { return b.state != stateUnmapped }

// make sets up a record of a block in a pool and, unless expandable is 0, an expandable segment, between two others. The
// state is the caller's. (Field by field: a struct literal would be built aside and copied.)
func (b *block) make(ptr driver.Pointer, size int64, prev, next blockRef, pool uint16, expandable uint32) {
	b.ptr = ptr
	b.size = size
	b.requested = 0
	b.prev = prev
	b.next = next
	b.expandable = expandable
	b.pending = 0
	b.pool = pool
}

const slabChunk = 1 << 10

// A slab holds block records; their addresses never change.
type slab struct {
	chunks []*[slabChunk]block
	unused []blockRef
	n      uint32 // records ever made
}

func (s *slab) at(ref blockRef) *block {
	return &s.chunks[ref/slabChunk][ref%slabChunk]
}

// stateOf is the state of a block, stateNone of no block.
func (s *slab) stateOf(ref blockRef) blockState {
	if ref == 0 {
		return stateNone
	}
	return s.at(ref).state
}

// take returns an unused record: the caller sets it up with its make method.
func (s *slab) take() (blockRef, *block) {
	if n := len(s.unused); n > 0 {
		ref := s.unused[n-1]
		s.unused = s.unused[:n-1]
		return ref, s.at(ref)
	}
	if s.n == 0 {
		s.n = 1 // reference 0 means no block
	}
	if int(s.n/slabChunk) == len(s.chunks) {
		s.chunks = append(s.chunks, new([slabChunk]block))
	}
	ref := blockRef(s.n)
	s.n++
	return ref, s.at(ref)
}

func (s *slab) give(ref blockRef) {
	s.at(ref).state = stateNone
	s.unused = append(s.unused, ref)
}

// A tag is a shard, a generation and a reference: 16, 16 and 32 bits. The reference is never 0, nor is the tag.
func makeTag(shard int, gen uint16, ref blockRef) uint64 {
	return uint64(shard)<<48 | uint64(gen)<<32 | uint64(ref)
}

func splitTag(tag uint64) (shard int, gen uint16, ref blockRef) {
	return int(tag >> 48), uint16(tag >> 32), blockRef(tag)
}
