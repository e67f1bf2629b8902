package layer

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// records are the blocks on loan through an adaptor that hands out other blocks than it was given, or has to remember
// something of each. The tag of a block that is lent finds its record without a map:
//
//	the shard, 3 bits | the place in its slab, 29 bits | the record's turns, 32 bits, highest
//
// Turns are odd while the block is on loan and grow with every loan and return, so that a block that was freed is
// known. Streams do not meet, but eight by eight. The locks are leaves.
type blockTable[V any] struct {
	name   string // of the adaptor, for panics
	shards [tableShards]tableShard[V]
}

const tableShards = 8

type tableShard[V any] struct {
	mu     sync.Mutex
	slab   []blockEntry[V]
	unused []uint32 // places in slab
	_      [72]byte // two cache lines a shard
}

type blockEntry[V any] struct {
	block      mem.Block // as the borrower knows it
	below      mem.Block // as the layer below does
	requested  int64     // bytes that the borrower asked for
	generation uint32
	moving     bool          // it is being moved
	mover      driver.Stream // of the last move, for adaptors that touch the memory themselves
	value      V
}

// lend enters a block that was got below for a request of asked bytes on a stream. It returns the block as the borrower
// is to know it: lent with a tag.
func (r *blockTable[V]) add(s driver.StreamID, asked int64, lent, below mem.Block, more V) mem.Block {
	number := uint32(s) % tableShards
	shard := &r.shards[number]
	shard.mu.Lock()
	var at uint32
	if n := len(shard.unused); n > 0 {
		at, shard.unused = shard.unused[n-1], shard.unused[:n-1]
	} else {
		at = uint32(len(shard.slab))
		shard.slab = append(shard.slab, blockEntry[V]{})
	}
	rec := &shard.slab[at]
	rec.generation++
	lent.Tag = uint64(rec.generation)<<32 | uint64(at*tableShards+number)
	rec.block, rec.below, rec.requested, rec.value = lent, below, asked, more
	shard.mu.Unlock()
	return lent
}

// shard returns where the record of a tag is, if there is one.
func (r *blockTable[V]) shard(tag uint64) (shard *tableShard[V], at uint32) {
	return &r.shards[tag%tableShards], uint32(tag) / tableShards
}

// live returns the record of a tag while its block is on loan, else nil. The caller holds the shard's lock.
func (s *tableShard[V]) live(at uint32, tag uint64) *blockEntry[V] {
	if uint64(at) >= uint64(len(s.slab)) {
		return nil
	}
	rec := &s.slab[at]
	if rec.generation%2 == 0 || rec.block.Tag != tag {
		return nil
	}
	return rec
}

// take ends a loan. It panics, and changes nothing, if b is not on loan as it is or a stream of used is nil: the layer
// below would panic over that when nobody knows the block any more.
func (r *blockTable[V]) remove(b mem.Block, used []driver.Stream) blockEntry[V] {
	check.Used("layer: "+r.name+": Free", used)
	shard, at := r.shard(b.Tag)
	shard.mu.Lock()
	rec := shard.live(at, b.Tag)
	if rec == nil || rec.block != b || rec.moving {
		shard.mu.Unlock()
		r.panicNotLive("Free", b)
	}
	taken := *rec
	*rec = blockEntry[V]{generation: rec.generation + 1}
	shard.unused = append(shard.unused, at)
	shard.mu.Unlock()
	return taken
}

// peek returns the record of a block. It panics if b is not on loan as it is.
func (r *blockTable[V]) get(call string, b mem.Block) blockEntry[V] {
	shard, at := r.shard(b.Tag)
	shard.mu.Lock()
	rec := shard.live(at, b.Tag)
	if rec == nil || rec.block != b || rec.moving {
		shard.mu.Unlock()
		r.panicNotLive(call, b)
	}
	seen := *rec
	shard.mu.Unlock()
	return seen
}

func (r *blockTable[V]) panicNotLive(call string, b mem.Block) {
	panic(fmt.Sprintf("layer: %s: %s of a block that is not on loan (address %#x, %d bytes): it was freed already, changed "+
		"since Alloc, is being moved, or came from elsewhere", r.name, call, uint64(b.Ptr), b.Size))
}

// each visits the records of the blocks on loan, a shard after the other, each locked meanwhile.
func (r *blockTable[V]) each(visit func(*blockEntry[V])) {
	for i := range r.shards {
		shard := &r.shards[i]
		shard.mu.Lock()
		for j := range shard.slab {
			if shard.slab[j].generation%2 == 1 {
				visit(&shard.slab[j])
			}
		}
		shard.mu.Unlock()
	}
}

// SlowSizes implements SlowSizer for the adaptor. It looks at all records.
func (r *blockTable[V]) SlowSizes(p driver.Pointer) (requested, allocated int64, ok bool) {
	r.each(func(rec *blockEntry[V]) {
		if rec.block.Ptr == p {
			requested, allocated, ok = rec.requested, rec.block.Size, true
		}
	})
	return requested, allocated, ok
}

// follow returns a holder for the layer below, which keeps the record of b right while h hears of it as it is lent.
func (r *blockTable[V]) holder(b mem.Block, h mem.Holder) mem.Holder {
	return &entryHolder[V]{r, h, b.Tag, b}
}

// A recordHolder stands between the layer below, which moves a block, and its holder. A block stays as far from the
// start of the one below as it was.
type entryHolder[V any] struct {
	records *blockTable[V]
	holder  mem.Holder
	tag     uint64
	was     mem.Block // as it was lent when the holder heard of it last
}

// BeginMove implements mem.Holder.
func (k *entryHolder[V]) BeginMove() ([]driver.Stream, bool) {
	used, ok := k.holder.BeginMove()
	if !ok {
		return nil, false
	}
	shard, at := k.records.shard(k.tag)
	shard.mu.Lock()
	rec := shard.live(at, k.tag)
	if rec != nil {
		rec.moving = true
	}
	shard.mu.Unlock()
	if rec == nil { // its Free has begun: the holder ought to have refused, and hears that nothing moved
		k.holder.EndMove(k.was, nil)
		return nil, false
	}
	return used, true
}

// EndMove implements mem.Holder. The record is right before the holder hears of the move, and so before any Free.
func (k *entryHolder[V]) EndMove(b mem.Block, s driver.Stream) {
	shard, at := k.records.shard(k.tag)
	shard.mu.Lock()
	rec := shard.live(at, k.tag)
	rec.block.Ptr += b.Ptr - rec.below.Ptr // wraps around where the block moves down
	rec.below, rec.moving = b, false
	if s != nil {
		rec.mover = s
	}
	k.was = rec.block
	shard.mu.Unlock()
	k.holder.EndMove(k.was, s)
}
