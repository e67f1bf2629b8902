package caching

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/invariants"
)

// verify checks the shard after a call, under the build tag invariants: at every call while it has few blocks, and at
// intervals when it has many. The caller holds the shard's lock.
func (sh *shard) verify() {
	if invariants.Enabled {
		if sh.checks++; sh.slab.n <= 1000 || sh.checks%1000 == 0 {
			invariants.Check(sh.check)
		}
	}
}

// check verifies for all pools of a shard that the free set is in order and holds exactly the free blocks; that the
// unmapped list is in order and holds exactly the unmapped blocks; that neighbours are linked both ways, are adjacent,
// and are not both free or both unmapped; and that the statistics of the shard add up. It takes O(blocks of the shard).
func (sh *shard) check() error {
	var free, unmapped []int
	free = make([]int, len(sh.pools))
	unmapped = make([]int, len(sh.pools))
	var want [numMetrics][numClasses]int64
	for ref := blockRef(1); uint32(ref) < sh.slab.n; ref++ {
		blk := sh.slab.at(ref)
		if blk.state == stateNone {
			continue
		}
		p := sh.pools[blk.pool]
		fail := func(what string) error {
			return fmt.Errorf("caching: stream %d, block %d at %#x (%d bytes, state %d): %s",
				sh.index, ref, blk.ptr, blk.size(), blk.state, what)
		}
		if blk.units == 0 {
			return fail("it is empty")
		}
		if pending := sh.slab.coldAt(ref).pending; pending < 0 || pending > 0 && blk.state != statePending {
			return fail("marks are counted on a block that does not wait")
		}
		if next := blk.next; next != 0 {
			n := sh.slab.at(next)
			switch {
			case n.prev != ref:
				return fail("the next block is not linked back")
			case n.ptr != blk.ptr+driver.Pointer(blk.size()):
				return fail("the next block does not touch it")
			case n.pool != blk.pool || n.expandable != blk.expandable ||
				n.expandable && sh.slab.coldAt(next).segment != sh.slab.coldAt(ref).segment:
				return fail("the next block is of another pool or segment")
			case n.state == blk.state && (n.state == stateFree || n.state == stateUnmapped):
				return fail("it and the next block should be one")
			}
		}
		if prev := blk.prev; prev != 0 && sh.slab.at(prev).next != ref {
			return fail("the previous block is not linked to it")
		}
		count := func(metric int, n int64) {
			want[metric][p.class] += n
			want[metric][classAll] += n
		}
		if blk.mapped() {
			count(reservedBytes, blk.size())
			if !blk.expandable && blk.prev == 0 {
				count(segment, 1)
			}
		}
		switch blk.state {
		case stateFree:
			free[blk.pool]++
			p.free.insertHot()
			c := p.free.lowerBound(blk.size())
			for c.ok() && c.entry().less(uint64(blk.size())/unit, uint64(blk.ptr)) {
				c = p.free.next(c)
			}
			if !c.ok() || c.entry().ref() != ref {
				return fail("it is not in the free set")
			}
			if !blk.expandable && blk.isSplit() {
				count(inactiveSplit, 1)
				count(inactiveSplitBytes, blk.size())
			}
		case stateUnmapped:
			unmapped[blk.pool]++
			if i, ok := p.searchUnmapped(blk.ptr); !ok || p.unmapped[i] != ref {
				return fail("it is not in the unmapped list")
			}
		case stateLive:
			count(allocation, 1)
			count(allocatedBytes, blk.size())
			fallthrough
		case statePending:
			count(active, 1)
			count(activeBytes, blk.size())
			count(requestedBytes, blk.requested())
		}
	}
	for i, p := range sh.pools {
		if p == nil {
			continue
		}
		if p.free.n != free[i] || len(p.unmapped) != unmapped[i] {
			return fmt.Errorf("caching: stream %d, pool %d: %d blocks are free and %d unmapped, but the sets hold "+
				"%d and %d",
				sh.index, i, free[i], unmapped[i], p.free.n, len(p.unmapped))
		}
		if err := p.check(i); err != nil {
			return err
		}
	}
	for metric := range oversizeAllocations {
		for class := range numClasses {
			if got := sh.stats.current(metric, class); got != want[metric][class] {
				return fmt.Errorf("caching: stream %d: metric %d of class %d is %d, but the blocks say %d",
					sh.index, metric, class, got, want[metric][class])
			}
		}
	}
	return nil
}

// check verifies that a shardPool has the right index, and that its private pool, if any, refers to it.
func (p *shardPool) check(i int) error {
	f := p.blockPool
	if int(p.index) != i || p.class != f.class || p.noSplit != f.noSplit {
		return fmt.Errorf("caching: stream %d, pool %d takes itself for pool %d, class %d, never split: %v; its "+
			"family has class %d, %v",
			p.sh.index, i, p.index, p.class, p.noSplit, f.class, f.noSplit)
	}
	if pp := f.owner; pp != nil {
		if h := pp.inShard(p.sh.index); h == nil || h.pools[f.class] != p || pp.blockPools[f.class] != f {
			return fmt.Errorf("caching: stream %d, pool %d is not known to pool %v", p.sh.index, i, pp.id)
		}
	} else if i != f.class || p.sh.a.default_[f.class] != f {
		return fmt.Errorf("caching: stream %d, pool %d is of the default pool", p.sh.index, i)
	}
	return nil
}

// check verifies that a private pool's users add up, and that its segments are those of its upstream, if it has one.
// The caller holds every lock.
func (pp *privatePool) check(a *Allocator) error {
	switch {
	case pp.own < 0 || pp.own > pp.useCount || pp.requests < 0:
		return fmt.Errorf("caching: pool %v has %d users, %d of them its own, and %d requests", pp.id, pp.useCount,
			pp.own, pp.requests)
	case pp.blockPools[classSmall].owner != pp || pp.blockPools[classLarge].owner != pp:
		return fmt.Errorf("caching: the families of pool %v are not its own", pp.id)
	case pp.closed && slices.Contains(a.overflow, pp):
		return fmt.Errorf("caching: pool %v was closed, and lends", pp.id)
	}
	n := 0
	for _, sh := range a.live {
		h := pp.inShard(sh.index)
		if h == nil {
			continue
		}
		for class, p := range h.pools {
			if p != nil && (h.sh != sh || sh.pools[p.index] != p || p.class != class ||
				p.blockPool != pp.blockPools[class]) {
				return fmt.Errorf("caching: pool %v has a pool on stream %d that the stream does not have", pp.id,
					sh.index)
			}
		}
		if pp.source == nil {
			continue
		}
		for ref := range blockRef(sh.slab.n) {
			blk := sh.slab.at(ref)
			if blk.state == stateNone || blk.prev != 0 || sh.pools[blk.pool].blockPool.owner != pp {
				continue
			}
			n++
			if b, ok := pp.segments[blk.ptr]; !ok || blk.expandable || b.Size < sh.segmentAt(ref).TotalSize {
				return fmt.Errorf("caching: the segment at %#x of pool %v is not one of its upstream (%d bytes there)",
					blk.ptr, pp.id, b.Size)
			}
		}
	}
	if n != len(pp.segments) {
		return fmt.Errorf("caching: pool %v has %d segments, and %d blocks of its upstream", pp.id, n, len(pp.segments))
	}
	return nil
}

// Check verifies every invariant of the allocator, and returns the first that does not hold. It is for tests: it takes
// all locks and examines every block.
func (a *Allocator) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	return a.checkLocked()
}

func (a *Allocator) checkLocked() error {
	var reserved, familyReserved int64
	for _, sh := range a.live {
		if err := sh.check(); err != nil {
			return err
		}
		reserved += sh.stats.current(reservedBytes, classAll)
	}
	for _, f := range a.default_ {
		familyReserved += f.reserved
	}
	for id, pp := range a.private {
		n := pp.blockPools[0].reserved + pp.blockPools[1].reserved
		familyReserved += n
		if got := pp.reserved.All.Current; a.inFlight == 0 && got != n ||
			got != pp.reserved.SmallPool.Current+pp.reserved.LargePool.Current {
			return fmt.Errorf("caching: pool %v has %d bytes reserved, and counts %+v", id, n, pp.reserved)
		}
		if err := pp.check(a); err != nil {
			return err
		}
	}
	if a.reserved-a.inFlight != reserved || a.reserved != familyReserved {
		return fmt.Errorf("caching: %d bytes are reserved, but the streams count %d and the pools %d", a.reserved,
			reserved, familyReserved)
	}
	for metric := range numMetrics {
		for class := range numClasses {
			if cur, _ := a.sum(metric, class); cur < 0 {
				return fmt.Errorf("caching: metric %d of class %d is negative: %d", metric, class, cur)
			}
			if err := a.checkSlack(metric, class); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSlack verifies the invariants on which folding relies. The caller holds every lock.
func (a *Allocator) checkSlack(metric, class int) error {
	t := &a.totals
	var seen, slack int64
	for _, sh := range a.live {
		s := &sh.stats
		seen += s.seen[metric][class]
		slack += s.slack[metric][class]
		if cur := s.current(metric, class); !s.changed && cur != s.seen[metric][class] {
			return fmt.Errorf("caching: metric %d of class %d of stream %d is %d, and was seen as %d", metric, class,
				sh.index, cur, s.seen[metric][class])
		}
	}
	if sum, dealt := t.sum[metric][class], t.slack[metric][class]; sum != seen || dealt != slack ||
		dealt > max(0, t.peak[metric][class]-sum) {
		return fmt.Errorf("caching: metric %d of class %d adds up to %d and %d of slack, and not to %d and %d, under "+
			"a peak of %d",
			metric, class, seen, slack, sum, dealt, t.peak[metric][class])
	}
	return nil
}
