package paged

import (
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// Places are addresses that serve AllocAt and slabs alone. They are a region of the default pool whose holes are listed
// by address, apart from the pool's other holes. Its pages are those of the pool. Its blocks bypass the processor
// caches (placeTag), so that the addresses of a block are free once the block is.

// AllocAt places blocks in a row only while less than 1/rowDivisor of the memory is in use, because rows leave holes.
const rowDivisor = 2

// A place is a hole of that region.
type place struct {
	ptr driver.Pointer
	at  ref
}

// Places reserves addresses for AllocAt, on the first call, and returns the first of them and their number. They are
// Config.Addresses in all. They have no memory until blocks are there. The error is the driver's.
func (a *Allocator) Places() (driver.Pointer, int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, 0, closedError("Places")
	}
	if a.places == nil {
		at, err := a.reserve(&a.main, 0)
		if err != nil {
			return 0, 0, err
		}
		sp := a.spans.at(at)
		a.places = a.regions[sp.region]
		a.places.byAddress, a.places.tail = true, 0
		a.main.regions = a.main.regions[:len(a.main.regions)-1]
		a.addHole(a.places, at, sp)
	}
	return a.places.base, a.places.size, nil
}

// AllocAt is AllocWith at an address of Places, if the block's addresses are free and there is memory for them. The
// address must be a multiple of 512. With address 0 the block is behind all other blocks, so that blocks allocated in a
// row are neighbours, while less than half of the memory is in use. If AllocAt cannot place the block there, it places
// it as AllocWith does.
func (a *Allocator) AllocAt(p driver.Pointer, s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("paged: AllocAt", s)
	plain := o.Key == nil && o.RoundUp == 0 && size > 0 && size <= tooLarge
	if plain && p%unit == 0 && (p != 0 || size > slabUnits*unit) {
		if b, ok := a.allocAt(p, s, size, o.NoRetry); ok {
			return b, nil
		}
	}
	return a.AllocWith(s, size, o)
}

func (a *Allocator) allocAt(p driver.Pointer, s driver.Stream, size int64, noWait bool) (b mem.Block, ok bool) {
	pc := a.caches.lock()
	a.shared(pc)
	defer a.mu.Unlock()
	if _, private := a.scopes.Find(s, nil); private || a.closed || a.main.paused != nil {
		return b, false
	}
	r := request{
		stream: s, id: s.ID(), space: &a.main, noWait: noWait, own: a.streams.Register(s),
		requested: size, units: uint32((size + unit - 1) / unit), mayCallDriver: a.caches.mask.Load() == 0,
	}
	at, err := a.placeAt(&r, p, r.units)
	if err == errFlushFirst {
		a.flushCaches()
		if a.closed || a.main.paused != nil { // since flushCaches unlocked mu
			return b, false
		}
		r.mayCallDriver = true
		at, err = a.placeAt(&r, p, r.units)
	}
	if at == 0 || err != nil {
		return b, false
	}
	sp := a.spans.at(at)
	if b = sp.markAllocated(at, size); p != 0 {
		b.Tag |= placeTag
	}
	a.countAlloc(sp)
	a.notify(mem.ActionAlloc, r.space, r.id, b.Ptr, size)
	a.verify()
	return b, true
}

// placeAt makes a block at an address, or at the end of a region. It returns 0 if the addresses are not free.
func (a *Allocator) placeAt(r *request, p driver.Pointer, units uint32) (at ref, err error) {
	if p == 0 {
		if a.used >= a.maxGranules/rowDivisor {
			return 0, nil
		}
		if at, err = a.tailFor(r, units); err != nil {
			return 0, err
		}
		return at, a.allocateSpan(r, at, units)
	}
	if at = a.holeAt(p, units); at == 0 {
		return 0, nil
	}
	front := ref(0)
	if sp := a.spans.at(at); sp.ptr < p {
		front, at = at, a.divideHole(at, sp, p)
	}
	if err = a.allocateSpan(r, at, units); err != nil && front != 0 {
		a.joinHoles(front, at)
	}
	return at, err
}

// placeSlab makes a slab: at the end of the places, if there are any, so that slabs are neighbours there.
func (a *Allocator) placeSlab(r *request) (ref, error) {
	if a.places != nil && r.space == &a.main {
		for i := len(a.places.free) - 1; i >= 0; i-- {
			sp := a.spans.at(a.places.free[i].at)
			if sp.units < slabSize {
				continue
			}
			at, err := a.placeAt(r, sp.end()-slabSize*unit, slabSize)
			if err == nil || err == errFlushFirst {
				return at, err
			}
			break // perhaps there is memory elsewhere
		}
	}
	return a.place(r, slabSize)
}

// holeAt returns the hole among the places that contains some units at an address, or 0.
func (a *Allocator) holeAt(p driver.Pointer, units uint32) ref {
	if a.places == nil {
		return 0
	}
	free := a.places.free
	i := sort.Search(len(free), func(i int) bool { return free[i].ptr > p })
	if i == 0 {
		return 0
	}
	if end := a.spans.at(free[i-1].at).end(); end < p || end-p < driver.Pointer(int64(units)*unit) {
		return 0
	}
	return free[i-1].at
}

// divideHole divides a hole at an address, and returns the second part.
func (a *Allocator) divideHole(at ref, sp *span, p driver.Pointer) ref {
	a.removeHole(a.places, sp)
	i, rest := a.spans.alloc()
	rest.ptr, rest.region, rest.deps = p, sp.region, sp.deps
	rest.units = uint32(int64(sp.end()-p) / unit)
	rest.prev, rest.next = at, sp.next
	a.spans.at(sp.next).prev = i
	sp.next, sp.units = i, sp.units-rest.units
	a.addHole(a.places, at, sp)
	a.addHole(a.places, i, rest)
	return i
}

// joinHoles undoes divideHole.
func (a *Allocator) joinHoles(at, n ref) {
	sp, next := a.spans.at(at), a.spans.at(n)
	a.removeHole(a.places, sp)
	a.removeHole(a.places, next)
	a.join(at, sp, n, next)
	a.addHole(a.places, at, sp)
}

// listPlace adds a hole to those by address.
func (rg *region) listPlace(at ref, sp *span) {
	i := rg.searchPlace(sp)
	rg.free = slices.Insert(rg.free, i, place{sp.ptr, at})
}

// unlistPlace removes a hole from those by address.
func (rg *region) unlistPlace(sp *span) {
	i := rg.searchPlace(sp)
	rg.free = slices.Delete(rg.free, i, i+1)
}

func (rg *region) searchPlace(sp *span) int {
	return sort.Search(len(rg.free), func(i int) bool { return rg.free[i].ptr >= sp.ptr })
}
