package arena

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/fit"
	"github.com/ashlar-go/ashlar/internal/invariants"
)

// verify checks the arena under the build tag invariants. The lock is held.
func (a *Arena) verify() {
	if invariants.Enabled {
		invariants.Check(a.check)
	}
}

// Check verifies the arena's data structures, for tests. It returns nil unless there is a bug. Its time grows with the
// number of blocks.
func (a *Arena) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.check()
}

func (a *Arena) check() error {
	type part struct {
		fit.Span
		hole bool
	}
	var parts []part
	var blocks, bytes, asked, inOrder int64
	for i := range a.blocks {
		r := &a.blocks[i]
		if r.state == none {
			continue
		}
		blocks, bytes, asked = blocks+1, bytes+r.size, asked+r.requested
		parts = append(parts, part{fit.Span{At: r.at, Size: r.size}, false})
		switch {
		case r.size%grain != 0 || r.requested > r.size || r.moving:
			return fmt.Errorf("arena: record %+v", *r)
		case r.state == frozen:
		case int(r.orderIndex) >= len(a.order) || a.order[r.orderIndex] != uint32(i):
			return fmt.Errorf("arena: record %d is not in its place %d of the order", i, r.orderIndex)
		default:
			inOrder++
		}
	}
	for s := range a.holes.All() {
		parts = append(parts, part{s, true})
	}
	slices.SortFunc(parts, func(x, y part) int { return cmp.Compare(x.At, y.At) })
	at := a.lo
	for i, p := range parts {
		if p.At != at || p.hole && i > 0 && parts[i-1].hole {
			return fmt.Errorf("arena: %+v after %+v, in [%d,%d)", p, parts[max(0, i-1)], a.lo, a.hi)
		}
		at = p.End()
	}
	n := &a.stats
	switch {
	case at != a.hi:
		return fmt.Errorf("arena: blocks and holes end at %d: want %d", at, a.hi)
	case inOrder != int64(len(a.order)) || blocks != int64(len(a.blocks)-len(a.unused)):
		return fmt.Errorf("arena: %d records in order of %d, %d of %d less %d", inOrder, len(a.order), blocks,
			len(a.blocks), len(a.unused))
	case n.Allocation.All.Current != blocks || n.AllocatedBytes.All.Current != bytes ||
		n.RequestedBytes.All.Current != asked:
		return fmt.Errorf("arena: %d blocks of %d bytes, %d asked for; the statistics are %+v", blocks, bytes, asked,
			*n)
	case a.backed > n.ReservedBytes.All.Current:
		return fmt.Errorf("arena: %d bytes backed, %d reserved", a.backed, n.ReservedBytes.All.Current)
	}
	return nil
}
