package paged

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// place makes a block out of a hole. If there is no memory for the one that fits best, or it cannot be waited for what was
// there, others are tried.
func (a *Allocator) place(r *request, units uint32) (ref, error) {
	at := a.fittingHole(units)
	if at == 0 {
		var err error
		if at, err = a.tailFor(r, units); err != nil {
			return 0, err
		}
	}
	may := r.mayCallDriver
	r.mayCallDriver = false
	err := a.allocateSpan(r, at, units)
	if r.mayCallDriver = may; err == errFlushFirst && may {
		at = a.mappedHole(at, units)
		err = a.allocateSpan(r, at, units)
	}
	switch {
	case err == nil:
		return at, nil
	case errors.Is(err, driver.ErrCapturing):
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
	maxHoles = 64 // holes
	maxSlack = 8  // times the size that is wanted, at most
)

// mappedHole returns a hole instead of one where mappings would have to be unmapped, since their pages are in use at other
// addresses: one of those that fit and need nothing, or the same. Work that repeats so finds a place for each block.
func (a *Allocator) mappedHole(at ref, units uint32) ref {
	if _, stale := a.missing(a.granules(a.spans.at(at), units)); stale == 0 {
		return at
	}
	best, looked := at, 0
	a.eachHole(units, func(other ref, sp *span) bool {
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

// placeLeastMemory takes the hole that needs the least memory, if there is as much.
func (a *Allocator) placeLeastMemory(r *request, units uint32, short *shortage) (ref, error) {
	var best ref
	least := short.need
	a.eachHole(units, func(at ref, sp *span) bool {
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

// unused is how many granules that are not in use the first units of a hole touch.
func (a *Allocator) unused(sp *span, units uint32) (n int64) {
	rg, from, to := a.granules(sp, units)
	for g := from; g < to; g++ {
		if a.mappings[rg.mapping(g)].blocks == 0 {
			n++
		}
	}
	return n
}

// missing is in how many of the granules [from, to) of a region there is nothing, or a mapping whose page is in use elsewhere.
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

// allocateSpan makes a block of the first units of a hole.
func (a *Allocator) allocateSpan(r *request, at ref, units uint32) error {
	sp := a.spans.at(at)
	if a.avoids(r.avoid, sp.deps.Users) {
		return errCaptured
	}
	rg, from, to := a.granules(sp, units)
	if !a.shareMappings(r, rg, from, to, sp.deps.Users) {
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
				// The block's stream comes after all that was done here.
				a.mappings[m].deps, a.pages[a.mappings[m].page].deps = reuse.Dependencies{}, reuse.Dependencies{}
			}
			a.mostUsed = max(a.mostUsed, a.used)
		}
		for g := from; g < to; {
			mp := &a.mappings[rg.at[g]]
			mp.blocks++
			g = mp.at + mp.n
		}
	}
	rg.reached = max(rg.reached, to)
	sp.mapping = rg.at[from]
	a.splitHole(at, sp, units)
	sp.deps = reuse.Dependencies{Users: r.own}
	sp.stream = r.id
	sp.state = block
	return nil
}

// shareMappings has a block touch the granules [from, to) of a region, if others touch all their mappings, and no stream but the
// block's own has used them or is among users. Otherwise it does nothing.
func (a *Allocator) shareMappings(r *request, rg *region, from, to uint32, users reuse.Set) bool {
	if int(to) > len(rg.at) {
		return false
	}
	g := from
	for g < to {
		mp := &a.mappings[rg.at[g]]
		if mp.blocks == 0 { // so it is, too, where there is no memory
			break
		}
		mp.blocks++
		users = a.streams.Union(users, mp.pageDeps.Users)
		g = mp.at + mp.n
	}
	if g >= to && a.ordered(r, users) {
		return true
	}
	for g > from {
		mp := &a.mappings[rg.at[g-1]]
		mp.blocks--
		g = mp.at
	}
	return false
}

// ordered reports whether what these streams did comes before what the request's is to do, without a wait.
func (a *Allocator) ordered(r *request, users reuse.Set) bool {
	return r.own != 0 && a.streams.Subset(users, r.own)
}

// follow makes a request's stream wait for a past.
func (a *Allocator) follow(r *request, p reuse.Dependencies) error {
	if a.ordered(r, p.Users) {
		return nil
	}
	return a.streams.Wait(r.stream, p)
}

// splitHole cuts the rest off a hole, which is in no list afterwards.
func (a *Allocator) splitHole(at ref, sp *span, units uint32) {
	isFront := sp.state == tail
	if !isFront {
		a.removeHole(sp)
	}
	if sp.units == units {
		if isFront {
			a.regions[sp.region].tail = 0
		}
		return
	}
	i, rest := a.spans.alloc()
	rest.ptr, rest.units, rest.region = sp.ptr+driver.Pointer(int64(units)*unit), sp.units-units, sp.region
	rest.deps = sp.deps
	rest.prev, rest.next = at, sp.next
	a.spans.at(sp.next).prev = i
	sp.next, sp.units = i, units
	if isFront {
		rest.state = tail
		a.regions[sp.region].tail = i
	} else {
		a.addHole(i, rest)
	}
}

// freeSpan makes a hole of a block, joined with those beside it.
func (a *Allocator) freeSpan(at ref, r *span, deps reuse.Dependencies) {
	rg, _, to := a.granules(r, r.units)
	for m := r.mapping; ; {
		mp := &a.mappings[m]
		mp.deps = a.streams.Merge(mp.deps, deps)
		if mp.blocks--; mp.blocks == 0 {
			mp.freed = a.waits.clock
			p := &a.pages[mp.page]
			p.deps = a.streams.Merge(p.deps, mp.deps)
			a.toIdle(mp.page, false)
		}
		g := mp.at + mp.n
		if g >= to {
			break
		}
		m = rg.at[g]
	}
	r.deps = deps
	next := a.spans.at(r.next)
	isFront := next.state == tail
	if next.state == hole {
		a.removeHole(next)
	}
	if isFront || next.state == hole {
		a.join(at, r, r.next, next)
	}
	if prev := a.spans.at(r.prev); prev.state == hole {
		p := r.prev
		a.removeHole(prev)
		a.join(p, prev, at, r)
		at, r = p, prev
	}
	if isFront {
		r.state = tail
		a.regions[r.region].tail = at
	} else {
		a.addHole(at, r)
	}
}

// join makes one hole of a span and the one after it, neither of which is in a list.
func (a *Allocator) join(at ref, r *span, n ref, next *span) {
	r.units += next.units
	r.deps = a.streams.Merge(r.deps, next.deps)
	r.next = next.next
	a.spans.at(r.next).prev = at
	a.spans.free(n, next)
}
