package caching

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A shard holds the memory of one stream. Its lock guards all of it.
type shard struct {
	mu     shardLock
	a      *Allocator
	index  int
	stream driver.Stream
	slab   slab
	pools  []*shardPool // [0] small and [1] large of the default pool, then those of private pools; nil: removed
	stats  shardStats
	checks int // number of calls of verify

	expandables []*expandable // nil: released
	vacant      []uint16      // indexes of nil pools
	_           [64]byte      // keep neighbouring shards off one cache line
}

// lookup returns a live block, or nil if b is not live.
func (sh *shard) lookup(ref blockRef, generation uint16, b mem.Block) *block {
	if uint32(ref) >= sh.slab.n || ref == 0 {
		return nil
	}
	blk := sh.slab.at(ref)
	if blk.state != stateLive || blk.generation != generation || blk.ptr != b.Ptr {
		return nil
	}
	return blk
}

func (sh *shard) defaultPool(rounded int64) *shardPool {
	if rounded <= smallSize {
		return sh.pools[0]
	}
	return sh.pools[1]
}

// shardOf returns the shard of a stream, and makes it if it does not exist. The caller holds mu and no shard.
func (a *Allocator) shardOf(s driver.Stream) *shard {
	id := int(s.ID())
	shards := *a.shards.Load()
	if id < len(shards) && shards[id] != nil {
		sh := shards[id]
		if sh.stream != s {
			// The stream is new and has the number of a closed one, or the caller has another handle to the same
			// stream.
			sh.mu.Lock()
			sh.stream = s
			sh.mu.Unlock()
		}
		return sh
	}
	sh := &shard{a: a, index: id, stream: s}
	sh.stats.init(sh)
	sh.addPool(a.default_[0])
	sh.addPool(a.default_[1])
	// Readers of the old slice never index beyond its length, so appending to the same array is safe.
	grown := append(shards, make([]*shard, max(0, id+1-len(shards)))...)
	if id < len(shards) {
		grown = slices.Clone(shards)
	}
	grown[id] = sh
	a.shards.Store(&grown)
	i, _ := slices.BinarySearchFunc(a.live, id, func(other *shard, id int) int { return cmp.Compare(other.index, id) })
	a.live = slices.Insert(a.live, i, sh)
	if len(a.live) <= 2 { // a single shard has no caps
		a.lockShards()
		a.foldPeaks()
		a.unlockShards()
	}
	return sh
}

const maxStreams = 1<<16 - 1

// maxPools is the number of pools that a shard has room for, counting small and large ones separately.
const maxPools = 1 << 16

// addPool adds a pool of a blockPool to this shard, which has fewer than maxPools.
func (sh *shard) addPool(f *blockPool) *shardPool {
	i := len(sh.pools)
	if n := len(sh.vacant); n > 0 {
		i = int(sh.vacant[n-1])
		sh.vacant = sh.vacant[:n-1]
	} else {
		sh.pools = append(sh.pools, nil)
	}
	p := &shardPool{
		blockPool: f, sh: sh, index: uint16(i), class: f.class, noSplit: f.noSplit,
		stats: &sh.stats.class[f.class],
	}
	sh.pools[i] = p
	return p
}

// dropPool removes a pool that has no memory and no addresses.
func (sh *shard) dropPool(p *shardPool) {
	sh.pools[p.index] = nil
	sh.vacant = append(sh.vacant, p.index)
}

// lockShards locks every shard except a.locked, which the holder of mu has locked already. The order is that of stream
// IDs, but no order is needed: only the holder of mu locks two shards.
func (a *Allocator) lockShards() { a.lockThese(a.live) }

func (a *Allocator) unlockShards() { a.unlockThese(a.live) }

// lockThese is lockShards for some shards.
func (a *Allocator) lockThese(shards []*shard) {
	for _, sh := range shards {
		if sh != a.locked {
			sh.mu.Lock()
		}
	}
}

func (a *Allocator) unlockThese(shards []*shard) {
	for _, sh := range shards {
		if sh != a.locked {
			sh.mu.Unlock()
		}
	}
}
