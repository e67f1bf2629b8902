package caching

import "github.com/ashlar-go/ashlar/driver"

// A blockRef finds a block's record in its shard's slab. Zero is no block.
type blockRef uint32

// A block is a span of a segment: live, waiting for other streams, free, or, in an expandable segment, a span of
// addresses without memory. The blocks of a segment are linked in the order of their addresses and tile it.
//
// With a million blocks, what an operation costs is the cache lines that it misses, so a record is small: 32 bytes, and
// what only slow paths look at is kept apart (coldBlock). Records are recycled, never given up, and hold no pointers.
type block struct {
	ptr           driver.Pointer
	units         uint32 // size, in units of 512 bytes
	requestedLow  uint32 // what the last user asked for, in bytes: kept while free, as PyTorch does
	prev, next    blockRef
	requestedHigh uint16 // the bits of askedLow above 32
	gen           uint16 // how often the record has been allocated: part of the tag, so that a stale one is noticed (but not 65,536 uses later)
	pool          uint16 // index into shard.pools
	state         blockState
	expandable    bool // in an expandable segment
}

// A coldBlock is the rest of a block's record.
type coldBlock struct {
	gcBase  int64  // family.calls when the block was last put into the free set
	segment uint32 // of an expandable block: index into shard.expandables
	pending int32  // marks on other streams that its free still waits for
}

// maxBlockSize is more than any block has.
const maxBlockSize = unit << 32

type blockState uint8

const (
	stateNone     blockState = iota // the record is unused
	stateFree                       // in the pool's free set
	stateLive                       // live
	statePending                    // freed, waiting for other streams
	stateUnmapped                   // no memory behind it: in the pool's unmapped list
)

func (b *block) isSplit() bool { return b.prev != 0 || b.next != 0 }
func (b *block) mapped() bool  { return b.state != stateUnmapped }

func (b *block) size() int64          { return int64(b.units) * unit }
func (b *block) setSize(size int64)   { b.units = uint32(size / unit) }
func (b *block) requested() int64     { return int64(b.requestedHigh)<<32 | int64(b.requestedLow) }
func (b *block) setRequested(n int64) { b.requestedLow, b.requestedHigh = uint32(n), uint16(n>>32) }

// init sets up a record of a block between two others. The state is the caller's. (Field by field: a struct literal
// would be built aside and copied.)
func (b *block) init(ptr driver.Pointer, size int64, prev, next blockRef, pool uint16) {
	b.ptr = ptr
	b.setSize(size)
	b.setRequested(0)
	b.prev = prev
	b.next = next
	b.pool = pool
	b.expandable = false
}

// slabChunk is how many records are made at a time: few, for each stream has a slab.
const slabChunk = 1 << 9

// A slab holds block records; their addresses never change.
type slab struct {
	chunks []*[slabChunk]block
	cold   []*[slabChunk]coldBlock
	unused []blockRef
	n      uint32 // records ever made
}

// at is a block's record. That of no block, once there are records, has the state stateNone.
func (s *slab) at(ref blockRef) *block {
	return &s.chunks[ref/slabChunk][ref%slabChunk]
}

func (s *slab) coldAt(ref blockRef) *coldBlock {
	return &s.cold[ref/slabChunk][ref%slabChunk]
}

// inSegment puts a block into an expandable segment, given by its index in shard.expandables.
func (s *slab) inSegment(ref blockRef, segment uint32) {
	s.at(ref).expandable = true
	s.coldAt(ref).segment = segment
}

// newBlock returns an unused record: the caller sets it up with its make method.
func (s *slab) newBlock() (blockRef, *block) {
	if n := len(s.unused); n > 0 {
		ref := s.unused[n-1]
		s.unused = s.unused[:n-1]
		return ref, s.at(ref)
	}
	if s.n == 0 {
		s.n = 1                            // reference 0 means no block
		s.unused = make([]blockRef, 0, 64) // cache lines of its own: a short array would share one with another slab's
	}
	if int(s.n/slabChunk) == len(s.chunks) {
		s.chunks = append(s.chunks, new([slabChunk]block))
		s.cold = append(s.cold, new([slabChunk]coldBlock))
	}
	ref := blockRef(s.n)
	s.n++
	return ref, s.at(ref)
}

func (s *slab) freeBlock(ref blockRef) {
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
