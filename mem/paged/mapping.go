package paged

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// An mref finds a mapping, and a pref a page. Zero is none.
type (
	mref uint32
	pref uint32
)

// maxOrder is the order of the largest page: 1<<maxOrder granules.
const maxOrder = 15

// A region is a reservation of addresses.
type region struct {
	space    *space
	base     driver.Pointer
	size     int64
	granules int64
	at       []mref // by granule, as far as blocks have been; 0 where nothing is mapped
	first    ref    // the span at its start, which never changes
	tail     ref    // the hole at its end; 0 if there is none

	reached uint32 // granules up to the highest that a block has touched

	byAddress bool    // it serves AllocAt alone (places.go)
	free      []place // then: its holes
}

// mapping returns the mapping of a granule, or 0.
func (rg *region) mapping(g uint32) mref {
	if int(g) >= len(rg.at) {
		return 0
	}
	return rg.at[g]
}

// extend makes room for the mappings of the granules before to.
func (rg *region) extend(to uint32) {
	if n := int(to) - len(rg.at); n > 0 {
		rg.at = append(rg.at, make([]mref, n)...)
	}
}

// fresh reports whether no block has reached the granules [from, to) and none is mapped. If so it makes room for their
// mappings.
func (rg *region) fresh(from, to uint32) bool {
	if from < rg.reached || int64(to) > rg.granules {
		return false
	}
	for g := from; g < to; g++ {
		if rg.mapping(g) != 0 {
			return false
		}
	}
	rg.extend(to)
	return true
}

// A mapping is a page behind the granules [at, at+n) of a region. One cache line.
type mapping struct {
	page     pref
	sibling  mref // the page's next mapping
	at, n    uint32
	blocks   uint32 // spans in use that touch it
	region   uint16
	freed    uint64             // the number of frees when the last block that touched it was freed
	deps     reuse.Dependencies // of the blocks that touched it
	pageDeps reuse.Dependencies // of the page when it was mapped here: holes do not include these
}

// covers reports whether a granule of a region has this mapping.
func (m *mapping) covers(region uint16, g uint32) bool { return m.region == region && g-m.at < m.n }

// A page is physical memory.
type page struct {
	handle    driver.Page
	space     *space
	deps      reuse.Dependencies // while idle: streams that may still access it
	order     uint8
	undropped bool // in no mapping and no list: the driver failed to free it
	paused    bool // in use, without memory: see Allocator.Pause
	first     mref // its mappings
	user      mref // the one that blocks touch; 0: the page is idle
	counted   mref // the mapping where its memory is counted: the user, or the last user
	older     pref // in the list of idle pages
	newer     pref
}

func (p *page) granules() int64 { return 1 << p.order }

// givenBack reports whether the page has no memory, because the allocator is paused.
func (p *page) givenBack() bool { return p.paused && p.counted == 0 }

// An idleList holds the idle pages of a space of one order, by their last use.
type idleList struct{ oldest, newest pref }

// toIdle adds a page that no block touches to its list of idle pages, as the oldest or the newest.
func (a *Allocator) toIdle(i pref, oldest bool) {
	p := &a.pages[i]
	l := &p.space.idle[p.order]
	p.user, p.older, p.newer = 0, 0, 0
	a.idled(p.space, p.granules())
	switch {
	case l.oldest == 0:
		l.oldest, l.newest = i, i
	case oldest:
		p.newer, a.pages[l.oldest].older, l.oldest = l.oldest, i, i
	default:
		p.older, a.pages[l.newest].newer, l.newest = l.newest, i, i
	}
}

// fromIdle removes a page from its list for use by a mapping.
func (a *Allocator) fromIdle(i pref, user mref) {
	a.unlist(i)
	p := &a.pages[i]
	p.user = user
	a.idled(p.space, -p.granules())
}

func (a *Allocator) unlist(i pref) {
	p := &a.pages[i]
	l := &p.space.idle[p.order]
	if p.older != 0 {
		a.pages[p.older].newer = p.newer
	} else {
		l.oldest = p.newer
	}
	if p.newer != 0 {
		a.pages[p.newer].older = p.older
	} else {
		l.newest = p.older
	}
	p.older, p.newer = 0, 0
}

// oldestOf returns the least recently used idle page of a space and an order, except those to avoid, or 0.
func (a *Allocator) oldestOf(s *space, order int, avoid avoidance) pref {
	i := s.idle[order].oldest
	for i != 0 && a.avoids(avoid, a.pages[i].deps.Users) {
		i = a.pages[i].newer
	}
	return i
}

// oldestIdle returns the least recently used idle page of a space, or 0.
func (a *Allocator) oldestIdle(s *space, avoid avoidance) (oldest pref) {
	for order := range s.idle {
		if i := a.oldestOf(s, order, avoid); i != 0 && (oldest == 0 || a.lastUse(i) < a.lastUse(oldest)) {
			oldest = i
		}
	}
	return oldest
}

func (a *Allocator) lastUse(i pref) uint64 { return a.mappings[a.pages[i].counted].freed }

// granules returns the granules of its region that the first units of a span touch.
func (a *Allocator) granules(r *span, units uint32) (rg *region, from, to uint32) {
	rg = a.regions[r.region]
	offset := uint64(r.ptr - rg.base)
	return rg, uint32(offset >> (a.shift & 63)), uint32((offset+uint64(units)*unit-1)>>(a.shift&63)) + 1
}

func (a *Allocator) address(m *mapping) driver.Pointer {
	return a.regions[m.region].base + driver.Pointer(int64(m.at)*a.granule)
}

// addMapping records that a page was mapped.
func (a *Allocator) addMapping(i pref, rg uint16, at uint32) mref {
	m := slots.Unused(&a.mappings, &a.unusedMappings)
	p := &a.pages[i]
	n := uint32(p.granules())
	a.mappings[m] = mapping{page: i, region: rg, at: at, n: n, sibling: p.first}
	p.first = m
	r := a.regions[rg]
	for g := at; g < at+n; g++ {
		r.at[g] = m
	}
	return m
}

// removeMapping records that a mapping was removed.
func (a *Allocator) removeMapping(m mref) {
	mp := a.mappings[m]
	p := &a.pages[mp.page]
	if p.first == m {
		p.first = mp.sibling
	} else {
		for o := p.first; ; o = a.mappings[o].sibling {
			if a.mappings[o].sibling == m {
				a.mappings[o].sibling = mp.sibling
				break
			}
		}
	}
	r := a.regions[mp.region]
	for g := mp.at; g < mp.at+mp.n; g++ {
		r.at[g] = 0
	}
	if p.counted == m {
		p.counted = 0
		a.countMemory(&mp, -1)
		switch {
		case p.first == 0:
		case p.user != 0 && p.user != chosenUser:
			a.setCounted(p.user)
		default:
			a.setCounted(p.first)
		}
	}
	a.mappings[m] = mapping{}
	a.unusedMappings = append(a.unusedMappings, m)
}

// setCounted counts a page's memory at this mapping.
func (a *Allocator) setCounted(m mref) {
	p := &a.pages[a.mappings[m].page]
	if p.counted == m {
		return
	}
	if p.counted != 0 {
		a.countMemory(&a.mappings[p.counted], -1)
	}
	p.counted = m
	a.mappings[m].pageDeps = p.deps
	a.countMemory(&a.mappings[m], 1)
}

// countMemory counts memory mapped at an address (n is 1), or unmapped (n is -1).
func (a *Allocator) countMemory(m *mapping, n int64) {
	size, s := int64(m.n)*a.granule, a.regions[m.region].space
	action := mem.ActionSegmentMap
	if n > 0 {
		a.stats.NumDeviceAlloc++
		a.stats.ReservedBytes.All.Increase(size)
	} else {
		a.stats.NumDeviceFree++
		a.stats.ReservedBytes.All.Decrease(size)
		action = mem.ActionSegmentUnmap
	}
	if s.owner != nil {
		s.owner.countReserved(n * size)
	}
	a.notify(action, s, 0, a.address(m), size)
}
