package pinned

import (
	"fmt"
	"iter"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
)

// check checks the invariants of pinned.go's design comment. The caller holds mu.
func (a *Allocator) check() error {
	var blocks, active, activeBytes int64
	listed := map[*piece]bool{}
	pieces := map[*pool]int{}
	for p := range a.pools() {
		for n, list := range p.buckets {
			for i, r := range list {
				if r.state != cached || r.pool != p || bucket(r.size()) != n || listed[r] {
					return fmt.Errorf("%d bytes in state %d in bucket %d of pool %v (twice: %t)", r.size(), r.state, n,
						p.id, listed[r])
				}
				if i > 0 && list[i-1].size() > r.size() {
					return fmt.Errorf("bucket %d of pool %v is not in order at %d", n, p.id, i)
				}
				listed[r] = true
			}
		}
	}
	parts := 0
	for i, r := range a.byAddress {
		if i > 0 && address(a.byAddress[i-1].mem)+uintptr(len(a.byAddress[i-1].mem)) > address(r.mem) {
			return fmt.Errorf("blocks %d and %d overlap or are not in order", i-1, i)
		}
		if a.byStart[address(r.mem)] != r {
			return fmt.Errorf("block %d is not found by its address", i)
		}
		blocks++
		pieces[r.pool]++
		switch r.state {
		case live, pending, captured:
			active++
			activeBytes += r.size()
			if a.pieceOf(r.block()) != r {
				return fmt.Errorf("block %d is not found by its tag", i)
			}
		case cached:
			if !listed[r] {
				return fmt.Errorf("a cached block of %d bytes is in no bucket", r.size())
			}
			delete(listed, r)
		default:
			return fmt.Errorf("a block in state %d has an address", r.state)
		}
		if r.source == reserved {
			parts++
		}
	}
	if len(listed) > 0 {
		return fmt.Errorf("%d blocks in buckets have no address", len(listed))
	}
	for p := range a.pools() {
		if p.blocks < pieces[p] || p.own > p.useCount { // returning ones have no address
			return fmt.Errorf("pool %v counts %d blocks of %d, and %d users, %d of them its own", p.id, p.blocks,
				pieces[p], p.useCount, p.own)
		}
		delete(pieces, p)
	}
	if len(pieces) > 0 {
		return fmt.Errorf("%d pools with blocks are forgotten", len(pieces))
	}
	s := &a.stats
	if active != s.ActiveRequests.Current || activeBytes != s.ActiveBytes.Current || blocks > s.Allocations.Current {
		return fmt.Errorf("%d blocks, %d active of %d bytes, and the statistics are %+v", blocks, active, activeBytes,
			*s)
	}
	if len(a.byStart) != len(a.byAddress) {
		return fmt.Errorf("%d blocks by address, %d by their starts", len(a.byAddress), len(a.byStart))
	}
	if parts > a.reserve.parts || a.reserve.used > int64(len(a.reserve.mem)) {
		return fmt.Errorf("%d parts of the reserved segment, and it counts %d in %d of %d bytes",
			parts, a.reserve.parts, a.reserve.used, len(a.reserve.mem))
	}
	if slices.ContainsFunc(s.all(), func(st *mem.Stat) bool { return st.Peak < st.Current }) {
		return fmt.Errorf("a peak is below the present: %+v", *s)
	}
	return nil
}

// pools visits all pools. The caller holds mu.
func (a *Allocator) pools() iter.Seq[*pool] {
	return func(yield func(*pool) bool) {
		if !yield(&a.defaultPool) {
			return
		}
		for _, p := range a.private {
			if !yield(p) {
				return
			}
		}
	}
}
