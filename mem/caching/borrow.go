package caching

import "slices"

// borrow looks for a free block in the pools that lend, in the order of their IDs, for a request to the default pool: on
// the same stream, and not of an expandable segment. It is PyTorch's try_mempool_fallback, but for pools that graphs use:
// those would write to what is lent. The block stays its pool's. The caller holds mu and r's shard.
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

// addBorrowed notes that the default pool has a block of p. The caller holds the shard.
func (p *shardPool) addBorrowed(tag uint64) {
	if len(p.borrowedTags) == cap(p.borrowedTags) {
		p.forgetReturned()
		p.borrowedTags = slices.Grow(p.borrowedTags, len(p.borrowedTags)+1) // so that a look at all of them is rare
	}
	p.borrowedTags = append(p.borrowedTags, tag)
}

// firstBorrowed is a block of p that the default pool has, or nil. The caller holds the shard.
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
		_, gen, ref := splitTag(tag)
		blk := p.sh.slab.at(ref)
		return blk.state != stateLive || blk.gen != gen
	})
}
