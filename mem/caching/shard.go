package caching

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A shard is what belongs to one stream. Its lock guards all of it.
type shard struct {
	mu     sync.Mutex
	a      *Allocator
	index  int
	stream driver.Stream
	slab   slab
	pools  []*shardPool // [0] small and [1] large of the default pool, then those of private pools; nil where one is gone
	stats  shardStats
	checks int // how often verify was called

	expandables []*expandable // nil where one has been released
	vacant      []uint16      // where pools is nil
	_           [64]byte      // keep neighbouring shards off one cache line
}

// lookup finds the record of a live block, or nil if there is no such block.
func (sh *shard) lookup(ref blockRef, gen uint16, b mem.Block) *block {
	if uint32(ref) >= sh.slab.n || ref == 0 {
		return nil
	}
	blk := sh.slab.at(ref)
	if blk.state != stateLive || blk.gen != gen || blk.ptr != b.Ptr {
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

// shardOf returns the shard of a stream, and makes it if need be. The caller holds mu and no shard.
func (a *Allocator) shardOf(s driver.Stream) *shard {
	id := int(s.ID())
	shards := *a.shards.Load()
	if id < len(shards) && shards[id] != nil {
		sh := shards[id]
		if sh.stream != s {
			// The driver gave the number of a closed stream to a new one, or the caller has another handle to it.
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
	// Who reads the old slice sees no more of the array than there was.
	grown := append(shards, make([]*shard, max(0, id+1-len(shards)))...)
	if id < len(shards) {
		grown = slices.Clone(shards)
	}
	grown[id] = sh
	a.shards.Store(&grown)
	i, _ := slices.BinarySearchFunc(a.live, id, func(other *shard, id int) int { return cmp.Compare(other.index, id) })
	a.live = slices.Insert(a.live, i, sh)
	if len(a.live) <= 2 { // one alone has no caps
		a.lockShards()
		a.foldPeaks()
		a.unlockShards()
	}
	return sh
}

const maxStreams = 1<<16 - 1

// maxPools is how many pools a shard has room for, small and large counted apart.
const maxPools = 1 << 16

// addPool gives a family a pool in this shard, which has fewer than maxPools.
func (sh *shard) addPool(f *blockPool) *shardPool {
	i := len(sh.pools)
	if n := len(sh.vacant); n > 0 {
		i = int(sh.vacant[n-1])
		sh.vacant = sh.vacant[:n-1]
	} else {
		sh.pools = append(sh.pools, nil)
	}
	p := &shardPool{blockPool: f, sh: sh, index: uint16(i), class: f.class, noSplit: f.noSplit, stats: &sh.stats.class[f.class]}
	sh.pools[i] = p
	return p
}

// dropPool forgets a pool that has no memory and no addresses.
func (sh *shard) dropPool(p *shardPool) {
	sh.pools[p.index] = nil
	sh.vacant = append(sh.vacant, p.index)
}

// lockShards locks every shard but a.locked, which the holder of mu has locked already.
func (a *Allocator) lockShards() { a.lockThese(a.live) }

func (a *Allocator) unlockShards() { a.unlockThese(a.live) }

// lockThese is lockShards of some shards.
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
