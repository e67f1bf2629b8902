package paged

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// verify checks the allocator under the build tag invariants: at every call while there are few spans. The caller holds
// mu.
func (a *Allocator) verify() {
	if !invariants.Enabled {
		return
	}
	if n := a.live().N; a.checks.Add(1)%uint64(1+n/16) == 0 {
		invariants.Check(a.check)
	}
}

// Check verifies the data structures, for tests. It returns nil unless there is a bug. Its time grows with the number
// of blocks.
func (a *Allocator) Check() error {
	a.lockAll()
	defer a.unlockAll()
	if err := a.check(); err != nil {
		return err
	}
	var reserved, live int64
	for _, seg := range a.snapshot() {
		if !seg.Paused {
			reserved += seg.TotalSize
		}
		live += seg.AllocatedSize
	}
	var held stats.Sums
	a.caches.each(func(at ref) { held.Add(a.spans.at(at).sums()) })
	if reserved != a.stats.ReservedBytes.All.Current || live != a.live().Bytes-held.Bytes {
		return fmt.Errorf("paged: segments add up to %d bytes, %d live; counted %d, and %d, of which %d held",
			reserved, live, a.stats.ReservedBytes.All.Current, a.live().Bytes, held.Bytes)
	}
	return nil
}

func (a *Allocator) check() error {
	blocks := make([]uint32, len(a.mappings)) // spans in use that touch each mapping
	listed := map[*space]int{}
	for n, rg := range a.regions {
		if rg == nil {
			continue
		}
		nHoles := 0
		if err := a.checkRegion(n, rg, blocks, &nHoles); err != nil {
			return err
		}
		if !rg.byAddress {
			listed[rg.space] += nHoles
		} else if nHoles != len(rg.free) {
			return fmt.Errorf("paged: %d holes among the places, %d listed", nHoles, len(rg.free))
		}
	}
	for s := range a.eachSpace {
		if listed[s] != s.holes.n {
			return fmt.Errorf("paged: pool %v has %d holes in regions, %d counted", s.id(), listed[s], s.holes.n)
		}
	}
	for m := range a.mappings {
		mp := &a.mappings[m]
		if mp.n == 0 {
			continue
		}
		p := &a.pages[mp.page]
		switch {
		case mp.blocks != blocks[m]:
			return fmt.Errorf("paged: mapping %d counts %d blocks, %d touch it", m, mp.blocks, blocks[m])
		case mp.blocks > 0 != (p.user == mref(m)):
			return fmt.Errorf("paged: mapping %d has %d blocks; its page's user is %d", m, mp.blocks, p.user)
		case int64(mp.n) != p.granules():
			return fmt.Errorf("paged: mapping %d of %d granules, page of %d", m, mp.n, p.granules())
		}
		for g := mp.at; g < mp.at+mp.n; g++ {
			if a.regions[mp.region].at[g] != mref(m) {
				return fmt.Errorf("paged: granule %d has mapping %d, want %d", g, a.regions[mp.region].at[g], m)
			}
		}
	}
	return a.checkPages()
}

func (a *Allocator) checkRegion(n int, rg *region, blocks []uint32, nHoles *int) error {
	end, before := rg.base, none
	var last ref
	for at := rg.first; at != 0; {
		r := a.spans.at(at)
		if r.ptr != end || r.units == 0 || r.prev != last || int(r.region) != n {
			return fmt.Errorf("paged: span %d of %d units at %#x after %d, which ends at %#x", at, r.units,
				uint64(r.ptr), last, uint64(end))
		}
		switch r.state {
		case hole, tail:
			if (before == hole || before == tail) && !rg.space.noMerge() || (r.state == tail) != (rg.tail == at) {
				return fmt.Errorf("paged: hole %d after one, or at the end: %d", at, rg.tail)
			}
			if r.state == hole && rg.byAddress && !slices.Contains(rg.free, place{r.ptr, at}) {
				return fmt.Errorf("paged: hole %d is not among the places", at)
			}
			if r.state == hole {
				*nHoles++
			}
		case block, slabSpan:
			if r.mapping != a.mappingAt(r) {
				return fmt.Errorf("paged: span %d begins at mapping %d, its field says %d", at, a.mappingAt(r),
					r.mapping)
			}
			for m := range a.touched(r) {
				blocks[m]++
			}
		default:
			return fmt.Errorf("paged: span %d has state %d", at, r.state)
		}
		end, before, last, at = r.end(), r.state, at, r.next
	}
	if int64(end-rg.base) != rg.size {
		return fmt.Errorf("paged: region %d ends at %#x, its spans at %#x", n, uint64(rg.base)+uint64(rg.size),
			uint64(end))
	}
	return nil
}

// checkPages checks the sums over pages, that each is counted at one mapping unless the driver failed to free it, and
// that it has one with NoAliases.
func (a *Allocator) checkPages() error {
	var created, used, counted int64
	for i := 1; i < len(a.pages); i++ {
		p := &a.pages[i]
		if p.handle == (page{}).handle {
			continue
		}
		created += p.granules()
		if p.givenBack() {
			continue // the driver failed to free it
		}
		if p.user != 0 || p.space.owner != nil && !p.undropped {
			used += p.granules()
		}
		if p.counted != 0 {
			counted += p.granules()
		}
		if p.undropped != (p.counted == 0) || p.user != 0 && p.user != p.counted {
			return fmt.Errorf("paged: page %d has user %d, counted at %d, undropped %v", i, p.user, p.counted,
				p.undropped)
		}
		if a.cfg.NoAliases && p.first != 0 && a.mappings[p.first].sibling != 0 {
			return fmt.Errorf("paged: page %d of pool %v has two addresses, with NoAliases", i, p.space.id())
		}
		for m := p.first; m != 0; m = a.mappings[m].sibling {
			if a.regions[a.mappings[m].region].space != p.space {
				return fmt.Errorf("paged: page %d of pool %v is mapped in another pool", i, p.space.id())
			}
		}
	}
	for s := range a.eachSpace {
		if err := a.checkIdle(s); err != nil {
			return err
		}
	}
	reserved := a.stats.ReservedBytes.All.Current
	switch {
	case created != a.created || used != a.used || counted*a.granule != reserved || used+a.main.unused != counted:
		return fmt.Errorf("paged: %d granules created, %d used, %d counted at a mapping, %d idle; "+
			"the totals are %d, %d, and %d bytes",
			created, used, counted, a.main.unused, a.created, a.used, reserved)
	case created > a.maxGranules+a.surplus:
		return fmt.Errorf("paged: %d granules, the limit is %d, and there were %d more", created, a.maxGranules,
			a.surplus)
	}
	return nil
}

// checkIdle checks the idle pages of a space.
func (a *Allocator) checkIdle(s *space) error {
	var idle int64
	for order := range s.idle {
		for i := s.idle[order].oldest; i != 0; i = a.pages[i].newer {
			if p := &a.pages[i]; p.user != 0 || int(p.order) != order || p.space != s {
				return fmt.Errorf("paged: page %d is in the list of idle ones of order %d of pool %v", i, order, s.id())
			}
			idle += a.pages[i].granules()
		}
	}
	if idle != s.unused {
		return fmt.Errorf("paged: pool %v has %d idle granules, counted %d", s.id(), idle, s.unused)
	}
	return nil
}
