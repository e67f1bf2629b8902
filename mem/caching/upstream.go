package caching

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// The segments of a pool with an upstream are blocks of the upstream. An upstream is the caller's code, so no lock is
// held while it runs: a request releases the locks as it does under ReleaseLock, and released segments are queued and
// returned afterwards. No request asks the device or an upstream again before the queued segments are returned.

// A returned segment has been released, but not yet returned to its upstream.
type returned struct {
	to    mem.Allocator
	block mem.Block
}

// upstream returns the allocator that the segments of p come from; nil is the device.
func (p *shardPool) upstream() mem.Allocator {
	if pp := p.blockPool.owner; pp != nil {
		return pp.source
	}
	return nil
}

// segmentMemory allocates a segment of a pool from its upstream or the driver.
func (a *Allocator) segmentMemory(p *shardPool, size int64) (ptr driver.Pointer, err error) {
	switch {
	case p.upstream() != nil:
		return a.fromUpstream(p, size)
	case a.cfg.ReleaseLock:
		a.unlocked(p.sh, func() { ptr, err = a.dev.Alloc(size) })
		return ptr, err
	}
	return a.dev.Alloc(size)
}

// fromUpstream allocates a segment from p's upstream. The caller holds mu and p's shard, and has counted the segment
// as reserved, so that the pool outlives the call.
func (a *Allocator) fromUpstream(p *shardPool, size int64) (driver.Pointer, error) {
	var b mem.Block
	var err error
	upstream, s := p.upstream(), p.sh.stream
	a.unlocked(p.sh, func() {
		if b, err = upstream.Alloc(s, size); err == nil && b.Size < size {
			upstream.Free(b)
			err = fmt.Errorf("caching: the upstream of pool %v was asked for %d bytes and returned %d",
				p.blockPool.id, size, b.Size)
		}
	})
	if err != nil {
		return 0, err
	}
	p.blockPool.owner.segments[b.Ptr] = b
	return b.Ptr, nil
}

// growAgain is grow after memory has been released: upstreams get their segments back first.
func (a *Allocator) growAgain(r *request) (bool, error) {
	if len(a.returns)+a.flushing > 0 {
		if a.unlocked(r.pool.sh, a.returnToUpstreams); a.closed {
			return false, ErrClosed
		}
	}
	return a.grow(r)
}

// queueReturn records that p's upstream must get a segment back. The caller holds mu.
func (a *Allocator) queueReturn(p *shardPool, ptr driver.Pointer) {
	pp := p.blockPool.owner
	a.returns = append(a.returns, returned{pp.source, pp.segments[ptr]})
	delete(pp.segments, ptr)
}

// unlockAndReturn unlocks mu, and returns the segments released under it to their upstreams.
func (a *Allocator) unlockAndReturn() {
	give := len(a.returns) > 0
	a.mu.Unlock()
	if give {
		a.returnToUpstreams()
	}
}

// returnToUpstreams returns released segments to their upstreams, after any returns that another goroutine is making
// now. The caller holds no lock.
func (a *Allocator) returnToUpstreams() {
	a.returning.Lock()
	defer a.returning.Unlock()
	a.mu.Lock()
	returns := a.returns
	a.returns, a.flushing = nil, len(returns)
	a.mu.Unlock()
	for _, r := range returns {
		r.to.Free(r.block)
	}
	a.mu.Lock()
	a.flushing = 0
	a.mu.Unlock()
}
