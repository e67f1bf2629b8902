package caching

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// AllocAt takes the first size bytes of the free block at ptr, of a private pool on stream s, whatever the policy would
// choose. It is how a pool is put back into an earlier state, block by block, as PyTorch does before it captures a graph
// that follows another. Size is a multiple of 512 bytes. It returns false if no free block of at least so many bytes
// begins there. It panics if the size is none.
func (a *Allocator) AllocAt(s driver.Stream, id mem.PoolID, ptr driver.Pointer, size int64) (mem.Block, bool) {
	if size <= 0 || size%minBlockSize != 0 {
		panic("caching: AllocAt: the size is not a multiple of 512 bytes")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pp := a.private[id]
	if a.closed || pp == nil {
		return mem.Block{}, false
	}
	sh := a.shardOf(s)
	a.lock(sh)
	defer a.unlock(sh)
	for _, p := range sh.pools {
		if p == nil || p.family != pp.families[0] && p.family != pp.families[1] {
			continue
		}
		p.free.settle()
		for c := p.free.lowerBound(size); c.ok(); c = p.free.next(c) {
			ref := c.entry().ref()
			blk := sh.slab.at(ref)
			if blk.ptr != ptr {
				continue
			}
			p.free.remove(blk.size(), uint64(blk.ptr))
			b := p.hand(ref, blk, size, size, blk.size() > size)
			a.foldFor(sh)
			sh.verify()
			return b, true
		}
	}
	return mem.Block{}, false
}
