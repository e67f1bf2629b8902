package caching

import "github.com/ashlar-go/ashlar/driver"

// A blockRef is the index of a block in its shard's slab. Zero is no block.
type blockRef uint32

// A block is a span of a segment. It is live, pending, free or, in an expandable segment, unmapped: addresses without
// memory. The blocks of a segment are linked in address order and cover it.
//
// With a million blocks, the cost of an operation is its cache misses. So a block takes 32 bytes, fields that only
// slow paths read are in coldBlock, and blocks hold no Go pointers. Blocks are reused, never freed to Go.
type block struct {
	ptr           driver.Pointer
	units         uint32 // size, in units of 512 bytes
	requestedLow  uint32 // low bits of the last user's requested bytes, kept while free, as in PyTorch
	prev, next    blockRef
	requestedHigh uint16 // the bits of requested above 32
	// number of times the block was allocated, part of the tag: detects stale blocks, up to 65,536 allocations later
	generation uint16
	pool       uint16 // index into shard.pools
	state      blockState
	expandable bool // in an expandable segment
}

// A coldBlock holds the fields of a block that only slow paths use.
type coldBlock struct {
	gcBase  int64  // blockPool.searches when the block last became free
	segment uint32 // of an expandable block: index into shard.expandables
	pending int32  // number of marks on other streams for which its free still waits
}

// maxBlockSize is larger than any block.
const maxBlockSize = unit << 32

type blockState uint8

const (
	stateNone     blockState = iota // unused entry of the slab
	stateFree                       // in the pool's free set
	stateLive                       // allocated
	statePending                    // freed, waiting for other streams
	stateUnmapped                   // no memory behind it: in the pool's unmapped list
)

func (b *block) isSplit() bool { return b.prev != 0 || b.next != 0 }
func (b *block) mapped() bool  { return b.state != stateUnmapped }

func (b *block) size() int64          { return int64(b.units) * unit }
func (b *block) setSize(size int64)   { b.units = uint32(size / unit) }
func (b *block) requested() int64     { return int64(b.requestedHigh)<<32 | int64(b.requestedLow) }
func (b *block) setRequested(n int64) { b.requestedLow, b.requestedHigh = uint32(n), uint16(n>>32) }

// init sets up a block between two others, except for its state. It assigns field by field: the compiler would build a
// struct literal aside and copy it.
func (b *block) init(ptr driver.Pointer, size int64, prev, next blockRef, pool uint16) {
	b.ptr = ptr
	b.setSize(size)
	b.setRequested(0)
	b.prev = prev
	b.next = next
	b.pool = pool
	b.expandable = false
}

// slabChunk is the number of blocks allocated at a time. It is small since each stream has a slab. A slab of more than
// manyChunks takes its chunks from extents: blocks are read at random, and with pages of 2 MiB the processor finds them
// sooner. The system backs an extent with memory as it is used.
const (
	slabChunk  = 1 << 9
	manyChunks = 1 << 7  // 2 MiB
	extent     = 1 << 18 // blocks: 8 MiB
)

// A slab holds the blocks of a shard. Their addresses never change.
type slab struct {
	chunks []*[slabChunk]block
	cold   []*[slabChunk]coldBlock
	extent []block // the unused rest of the last extent
	unused []blockRef
	n      uint32 // number of blocks ever made
}

// at returns a block. Once the slab has any block, blockRef 0 has the state stateNone.
func (s *slab) at(ref blockRef) *block {
	return &s.chunks[ref/slabChunk][ref%slabChunk]
}

func (s *slab) coldAt(ref blockRef) *coldBlock {
	return &s.cold[ref/slabChunk][ref%slabChunk]
}

// inSegment records that a block is in an expandable segment, given by its index in shard.expandables.
func (s *slab) inSegment(ref blockRef, segment uint32) {
	s.at(ref).expandable = true
	s.coldAt(ref).segment = segment
}

// newBlock returns an unused block, which the caller sets up with init.
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
		s.chunks = append(s.chunks, s.newChunk())
		s.cold = append(s.cold, new([slabChunk]coldBlock))
	}
	ref := blockRef(s.n)
	s.n++
	return ref, s.at(ref)
}

// newChunk returns room for slabChunk blocks.
func (s *slab) newChunk() *[slabChunk]block {
	if len(s.chunks) < manyChunks {
		return new([slabChunk]block)
	}
	if len(s.extent) == 0 {
		s.extent = make([]block, extent)
		preferLargePages(s.extent)
	}
	chunk := (*[slabChunk]block)(s.extent)
	s.extent = s.extent[slabChunk:]
	return chunk
}

func (s *slab) freeBlock(ref blockRef) {
	s.at(ref).state = stateNone
	s.unused = append(s.unused, ref)
}

// A tag is a shard, a generation and a reference: 16, 16 and 32 bits. The reference is never 0, nor is the tag.
func makeTag(shard int, generation uint16, ref blockRef) uint64 {
	return uint64(shard)<<48 | uint64(generation)<<32 | uint64(ref)
}

func splitTag(tag uint64) (shard int, generation uint16, ref blockRef) {
	return int(tag >> 48), uint16(tag >> 32), blockRef(tag)
}
