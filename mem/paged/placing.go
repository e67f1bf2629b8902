package paged

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// place allocates a block from a hole. It tries the best fit first. If there is no memory for that hole, or its memory
// cannot be waited for, it tries others.
func (a *Allocator) place(r *request, units uint32) (ref, error) {
	if r.space.owner != nil {
		return a.placePrivate(r, units)
	}
	at := a.fittingHole(r.space, units)
	if at == 0 {
		var err error
		if at, err = a.tailFor(r, units); err != nil {
			return 0, err
		}
	}
	may := r.mayCallDriver // first without the driver: perhaps another hole needs no driver call
	r.mayCallDriver = false
	err := a.allocateSpan(r, at, units)
	if r.mayCallDriver = may; err == nil {
		return at, nil
	}
	return a.placeWithDriver(r, at, units, err)
}

// placeWithDriver continues place after an error: it calls the driver for the hole if it may, and tries other holes.
func (a *Allocator) placeWithDriver(r *request, at ref, units uint32, err error) (ref, error) {
	if err == errFlushFirst && r.mayCallDriver {
		at = a.mappedHole(r.space, at, units)
		if err = a.allocateSpan(r, at, units); err == nil {
			return at, nil
		}
	}
	if errors.Is(err, driver.ErrCapturing) {
		return a.placeAvoiding(r, units, err)
	}
	var short *shortage
	if !errors.As(err, &short) {
		return 0, err
	}
	if short.busy {
		if at, err := a.placeFresh(r, units); err == nil {
			return at, nil
		}
	}
	return a.placeLeastMemory(r, units, short)
}

const (
	maxHoles = 64 // holes examined
	maxSlack = 8  // largest hole examined, as a multiple of the request
)

// mappedHole returns a hole to use in place of one whose granules have stale mappings: mappings that would have to be
// unmapped because their pages are in use at other addresses. It prefers a fitting hole whose granules are all mapped
// and not stale, and returns the same hole if it finds none. Work that repeats then finds an address for each block
// that needs no remapping.
func (a *Allocator) mappedHole(s *space, at ref, units uint32) ref {
	if _, stale := a.missing(a.granules(a.spans.at(at), units)); stale == 0 {
		return at
	}
	best, looked := at, 0
	a.eachHole(s, units, func(other ref, sp *span) bool {
		if sp.units/maxSlack > units {
			return false
		}
		if nothing, stale := a.missing(a.granules(sp, units)); nothing+stale == 0 {
			best = other
			return false
		}
		looked++
		return looked < maxHoles
	})
	return best
}

// placeLeastMemory takes the hole that needs the fewest unused granules, if it needs fewer than the shortage.
func (a *Allocator) placeLeastMemory(r *request, units uint32, short *shortage) (ref, error) {
	var best ref
	least := short.need
	a.eachHole(r.space, units, func(at ref, sp *span) bool {
		if need := a.unused(sp, units); need < least {
			best, least = at, need
		}
		return least > 0
	})
	if best == 0 {
		return 0, short
	}
	err := a.allocateSpan(r, best, units)
	if errors.Is(err, driver.ErrCapturing) {
		return a.placeAvoiding(r, units, err)
	}
	return best, err
}

// unused returns how many granules that are not in use the first units of a hole touch.
func (a *Allocator) unused(sp *span, units uint32) (n int64) {
	rg, from, to := a.granules(sp, units)
	for g := from; g < to; g++ {
		if a.mappings[rg.mapping(g)].blocks == 0 {
			n++
		}
	}
	return n
}

// missing counts the granules in [from, to) of a region that have no mapping, and those whose mapping is stale: its
// page is in use elsewhere.
func (a *Allocator) missing(rg *region, from, to uint32) (nothing, stale int64) {
	for g := from; g < to; g++ {
		m := rg.mapping(g)
		if m == 0 {
			nothing++
		} else if user := a.pages[a.mappings[m].page].user; user != 0 && user != m {
			stale++
		}
	}
	return nothing, stale
}

// allocateSpan makes a block of the first units of a hole: it backs them with memory, makes the stream wait for the
// memory's users, and only then changes the hole. If it fails, nothing has changed.
func (a *Allocator) allocateSpan(r *request, at ref, units uint32) error {
	sp := a.spans.at(at)
	if sp.state == hole && r.space.noMerge() {
		units = sp.units
	}
	if r.avoid != (avoidance{}) && a.avoids(r.avoid, sp.deps.Users) {
		return errCaptured
	}
	rg, from, to := a.granules(sp, units)
	if !a.shareMappings(r, rg, sp, from, to) {
		deps, err := a.backRange(r, rg, sp.region, from, to)
		if err != nil {
			return err
		}
		if err := a.follow(r, a.streams.Merge(deps, sp.deps)); err != nil {
			a.releaseTaken()
			return err
		}
		if len(a.taken) > 0 {
			for _, m := range a.taken {
				a.setCounted(m)

				// The stream now follows all earlier users of this memory, and the block's own dependencies include
				// it.
				a.mappings[m].deps, a.pages[a.mappings[m].page].deps = reuse.Dependencies{}, reuse.Dependencies{}
			}
			a.mostUsed = max(a.mostUsed, a.used)
		}
		for g := from; g < to; {
			mp := &a.mappings[rg.at[g]]
			mp.blocks++
			g = mp.at + mp.n
		}
		sp.mapping = rg.at[from]
	}
	rg.reached = max(rg.reached, to)
	a.splitHole(rg, at, sp, units)
	sp.deps = reuse.Dependencies{Users: r.own}
	sp.stream = r.id
	sp.state = block
	return nil
}

// shareMappings is the fast path of allocateSpan: it adds a block at the start of a hole to the mappings of the
// granules [from, to) if other blocks touch all of them already, and if no stream except the block's own has used them
// or the hole. Otherwise it changes no count and returns false.
func (a *Allocator) shareMappings(r *request, rg *region, sp *span, from, to uint32) bool {
	if int(to) > len(rg.at) {
		return false
	}
	if !a.mappings[sp.mapping].covers(sp.region, from) {
		sp.mapping = rg.at[from]
	}
	users := sp.deps.Users
	m, g := sp.mapping, from
	for {
		mp := &a.mappings[m]
		if mp.blocks == 0 { // also the case of mapping 0: no memory
			break
		}
		mp.blocks++
		users = a.streams.Union(users, mp.pageDeps.Users)
		if g = mp.at + mp.n; g >= to {
			if a.ordered(r, users) {
				return true
			}
			break
		}
		m = rg.at[g]
	}
	for g > from {
		mp := &a.mappings[rg.at[g-1]]
		mp.blocks--
		g = mp.at
	}
	return false
}

// ordered reports whether the work of these streams precedes the request's work without a wait.
func (a *Allocator) ordered(r *request, users reuse.Set) bool {
	return r.own != 0 && a.streams.Subset(users, r.own)
}

// follow makes the request's stream wait, on the device, for dependencies.
func (a *Allocator) follow(r *request, p reuse.Dependencies) error {
	if a.ordered(r, p.Users) {
		return nil
	}
	return a.streams.Wait(r.stream, p)
}

// splitHole takes the first units of a hole: it removes the hole from its list, and makes a hole of the rest.
func (a *Allocator) splitHole(rg *region, at ref, sp *span, units uint32) {
	isTail := sp.state == tail
	if !isTail {
		a.removeHole(rg, sp)
	}
	if sp.units == units {
		if isTail {
			rg.tail = 0
		}
		return
	}
	i, rest := a.spans.alloc()
	rest.ptr, rest.units, rest.region = sp.ptr+driver.Pointer(int64(units)*unit), sp.units-units, sp.region
	rest.deps, rest.mapping = sp.deps, sp.mapping
	rest.prev, rest.next = at, sp.next
	a.spans.at(sp.next).prev = i
	sp.next, sp.units = i, units
	if isTail {
		rest.state = tail
		rg.tail = i
	} else {
		a.addHole(rg, i, rest)
	}
}

// freeSpan makes a block a hole, and joins it with the holes beside it.
func (a *Allocator) freeSpan(at ref, r *span, deps reuse.Dependencies) {
	rg, _, to := a.granules(r, r.units)
	next, prev := a.spans.at(r.next), a.spans.at(r.prev)
	after, before := next.state, prev.state // read early: these reads often miss the CPU's cache
	for m := r.mapping; ; {
		mp := &a.mappings[m]
		mp.deps = a.streams.Merge(mp.deps, deps)
		g := mp.at + mp.n
		if mp.blocks--; mp.blocks == 0 {
			mp.freed = a.streams.Frees()
			p := &a.pages[mp.page]
			p.deps = a.streams.Merge(p.deps, mp.deps)
			if p.paused {
				a.freePaused(mp.page)
			} else {
				a.toIdle(mp.page, false)
			}
		}
		if g >= to {
			break
		}
		m = rg.at[g]
	}
	r.deps = deps
	if rg.space.noMerge() {
		a.addHole(rg, at, r)
		return
	}
	isTail := after == tail
	if after == hole {
		a.removeHole(rg, next)
	}
	if isTail || after == hole {
		a.join(at, r, r.next, next)
	}
	if before == hole {
		p := r.prev
		a.removeHole(rg, prev)
		a.join(p, prev, at, r)
		at, r = p, prev
	}
	if isTail {
		r.state = tail
		rg.tail = at
	} else {
		a.addHole(rg, at, r)
	}
}

// join makes one hole of a span and the one after it. Neither is in a list.
func (a *Allocator) join(at ref, r *span, n ref, next *span) {
	r.units += next.units
	r.deps = a.streams.Merge(r.deps, next.deps)
	r.next = next.next
	a.spans.at(r.next).prev = at
	a.spans.free(n, next)
}
