package caching

import "slices"

// borrow searches the pools that may be borrowed from, by ID, for a free block for a request to the default pool: on
// the same stream, and not in an expandable segment. It is PyTorch's try_mempool_fallback, except that it skips pools
// that graphs use: a graph's launch would write to the borrowed block. The block still belongs to its pool. The caller
// holds mu and r's shard.
func (a *Allocator) borrow(r *request) bool {
	if r.pool.blockPool.owner != nil {
		return false
	}
	own, expandable := r.pool, r.expandable
	for _, pp := range a.overflow {
		h := pp.inShard(own.sh.index)
		if h == nil || h.pools[own.class] == nil || pp.inGraphs() && !a.cfg.PyTorchExact {
			continue
		}
		r.pool, r.expandable = h.pools[own.class], false
		if a.search(r) {
			return true
		}
	}
	r.pool, r.expandable = own, expandable
	return false
}

// addBorrowed records that the default pool has borrowed a block of p. The caller holds the shard.
func (p *shardPool) addBorrowed(tag uint64) {
	if len(p.borrowedTags) == cap(p.borrowedTags) {
		p.forgetReturned()
		// doubles, so that forgetReturned is called rarely
		p.borrowedTags = slices.Grow(p.borrowedTags, len(p.borrowedTags)+1)
	}
	p.borrowedTags = append(p.borrowedTags, tag)
}

// firstBorrowed returns a block of p that the default pool has borrowed, or nil. The caller holds the shard.
func (p *shardPool) firstBorrowed() *block {
	p.forgetReturned()
	if len(p.borrowedTags) == 0 {
		return nil
	}
	_, _, ref := splitTag(p.borrowedTags[0])
	return p.sh.slab.at(ref)
}

func (p *shardPool) forgetReturned() {
	p.borrowedTags = slices.DeleteFunc(p.borrowedTags, func(tag uint64) bool {
		_, generation, ref := splitTag(tag)
		blk := p.sh.slab.at(ref)
		return blk.state != stateLive || blk.generation != generation
	})
}
