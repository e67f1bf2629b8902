package layer

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
)

// A blockTable holds the live blocks of a layer whose blocks differ from those of the allocator below, or that keeps a
// value with each block. An entry is found from the tag of its block, without a map:
//
//	generation of the slot, 32 bits | index of the slot, 29 bits | shard, 3 bits
//
// The shard is the stream's number modulo 8. The locks are leaves. A layer embeds the table for its SlowSizes.
type blockTable[V any] struct {
	name   string // of the layer, for panics
	shards [tableShards]tableShard[V]
}

const tableShards = 8

type tableShard[V any] struct {
	mu      sync.Mutex
	entries slots.Table[blockEntry[V]]
	_       [72]byte // fills two cache lines
}

type blockEntry[V any] struct {
	block     mem.Block     // as the layer returned it
	below     mem.Block     // as the allocator below returned it
	requested int64         // bytes
	moving    bool          // between BeginMove and EndMove
	mover     driver.Stream // of the last move, for layers that access the memory themselves
	value     V
}

// add adds a block, for which below was allocated on a stream. It returns the block with its tag.
func (t *blockTable[V]) add(s driver.StreamID, requested int64, b, below mem.Block, value V) mem.Block {
	number := uint64(s) % tableShards
	shard := &t.shards[number]
	shard.mu.Lock()
	tag, e := shard.entries.Add()
	b.Tag = tag&^(1<<32-1) | tag<<32>>32*tableShards + number
	*e = blockEntry[V]{block: b, below: below, requested: requested, value: value}
	shard.mu.Unlock()
	return b
}

// shard returns the shard of a block's tag, and the tag of its entry there.
func (t *blockTable[V]) shard(tag uint64) (*tableShard[V], uint64) {
	return &t.shards[tag%tableShards], tag&^(1<<32-1) | tag<<32>>32/tableShards
}

// lookup returns the entry of a live block that is not being moved, with its shard locked. It panics if there is none.
func (t *blockTable[V]) lookup(call string, b mem.Block) (*tableShard[V], uint64, *blockEntry[V]) {
	shard, tag := t.shard(b.Tag)
	shard.mu.Lock()
	e := shard.entries.Get(tag)
	if e == nil || e.block != b || e.moving {
		shard.mu.Unlock()
		panic(fmt.Sprintf("layer: %s: %s of a block that is not live (address %#x, %d bytes): it was freed already, "+
			"changed since Alloc, is being moved, or came from elsewhere", t.name, call, uint64(b.Ptr), b.Size))
	}
	return shard, tag, e
}

// remove removes a freed block from the table. It panics without effect if b is not live or a stream in used is nil.
// (The allocator below would also panic, but only after the block has left this table.)
func (t *blockTable[V]) remove(b mem.Block, used []driver.Stream) blockEntry[V] {
	check.Used("layer: "+t.name+": Free", used)
	shard, tag, e := t.lookup("Free", b)
	removed := *e
	shard.entries.Remove(tag)
	shard.mu.Unlock()
	return removed
}

// get returns the entry of a block. It panics if b is not live.
func (t *blockTable[V]) get(call string, b mem.Block) blockEntry[V] {
	shard, _, e := t.lookup(call, b)
	entry := *e
	shard.mu.Unlock()
	return entry
}

// each visits the entries, shard by shard, with the shard locked.
func (t *blockTable[V]) each(visit func(*blockEntry[V])) {
	for i := range t.shards {
		shard := &t.shards[i]
		shard.mu.Lock()
		for _, e := range shard.entries.All() {
			visit(e)
		}
		shard.mu.Unlock()
	}
}

// SlowSizes implements SlowSizer for the layer. It visits all entries.
func (t *blockTable[V]) SlowSizes(p driver.Pointer) (requested, allocated int64, ok bool) {
	t.each(func(e *blockEntry[V]) {
		if e.block.Ptr == p {
			requested, allocated, ok = e.requested, e.block.Size, true
		}
	})
	return requested, allocated, ok
}

// movable is mem.Movable for a block whose entry has its memory from the allocator that from returns.
func (t *blockTable[V]) movable(b mem.Block, h mem.Holder, from func(V) mem.Allocator) bool {
	if b == (mem.Block{}) {
		return false
	}
	e := t.get("Movable", b)
	return mem.Movable(from(e.value), e.below, &entryHolder[V]{t, h, b.Tag, b})
}

// An entryHolder is the holder that the allocator below calls when it moves a block. It updates the entry and calls the
// block's own holder. A block stays as far from the start of the one below as it was.
type entryHolder[V any] struct {
	table  *blockTable[V]
	holder mem.Holder
	tag    uint64
	last   mem.Block // as last passed to the holder
}

// BeginMove implements mem.Holder.
func (k *entryHolder[V]) BeginMove() ([]driver.Stream, bool) {
	used, ok := k.holder.BeginMove()
	if !ok {
		return nil, false
	}
	shard, tag := k.table.shard(k.tag)
	shard.mu.Lock()
	e := shard.entries.Get(tag)
	if e != nil {
		e.moving = true
	}
	shard.mu.Unlock()
	if e == nil { // its Free has begun, so the holder should have refused; report that it was not moved
		k.holder.EndMove(k.last, nil)
		return nil, false
	}
	return used, true
}

// EndMove implements mem.Holder. It updates the entry before it calls the holder, and so before any Free.
func (k *entryHolder[V]) EndMove(b mem.Block, s driver.Stream) {
	shard, tag := k.table.shard(k.tag)
	shard.mu.Lock()
	e := shard.entries.Get(tag)
	e.block.Ptr += b.Ptr - e.below.Ptr // wraps around where the block moves down
	e.below, e.moving = b, false
	if s != nil {
		e.mover = s
	}
	k.last = e.block
	shard.mu.Unlock()
	k.holder.EndMove(k.last, s)
}
