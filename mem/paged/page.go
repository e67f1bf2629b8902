package paged

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/slots"
)

// create makes a page of a space, chosen to be mapped.
func (a *Allocator) create(s *space, order int) (pref, error) {
	handle, err := a.vm.Create(a.granule << order)
	if err != nil {
		return 0, fmt.Errorf("paged: create a page: %w", err)
	}
	i := slots.Unused(&a.pages, &a.unusedPages)
	a.pages[i] = page{handle: handle, space: s, order: uint8(order), user: chosenUser}
	a.created += 1 << order
	s.created += 1 << order
	a.used += 1 << order
	return i, nil
}

// unmap removes a mapping that no block touches, after the queued work on it is done. If that work is not done and
// wait is false, it returns a shortage.
func (a *Allocator) unmap(m mref, wait bool) error {
	mp := &a.mappings[m]
	done, stalled, err := a.waits.done(mp.deps.Users, mp.freed, wait)
	if stalled {
		a.stalls++
	}
	if err != nil {
		return fmt.Errorf("paged: wait for work on a page: %w", err)
	}
	if !done {
		return &shortage{busy: true}
	}
	if err := a.vm.Unmap(a.address(mp), int64(mp.n)*a.granule); err != nil {
		return fmt.Errorf("paged: unmap a page: %w", err)
	}
	a.removeMapping(m)
	return nil
}

// unmapAll removes all mappings of an idle page, the counted one last. Without wait it stops at a mapping that queued
// work may still use; then all is false.
func (a *Allocator) unmapAll(i pref, wait bool) (all bool, err error) {
	for {
		p := &a.pages[i]
		m := p.first
		if m == 0 {
			return true, nil
		}
		if m == p.counted && a.mappings[m].sibling != 0 {
			m = a.mappings[m].sibling
		}
		if err := a.unmap(m, wait); err != nil {
			var short *shortage
			if !wait && errors.As(err, &short) {
				return false, nil
			}
			return false, err
		}
	}
}

// unmapAliases unmaps the pages of the selected spaces, after the work queued on them, from all their addresses but
// one: the address in use or, of an idle page, the last that was in use.
func (a *Allocator) unmapAliases(selected func(*space) bool) error {
	a.waits.mark()
	for i := range a.pages {
		p := &a.pages[i]
		if p.first == 0 || !selected(p.space) {
			continue
		}
		kept := p.user
		if kept == 0 {
			kept = p.counted
		}
		for m := p.first; m != 0; {
			alias := m
			m = a.mappings[m].sibling
			if alias == kept {
				continue
			}
			if err := a.unmap(alias, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop frees an idle page. Without wait it does so only if no queued work uses the page.
func (a *Allocator) drop(i pref, wait bool) (dropped bool, err error) {
	if all, err := a.unmapAll(i, wait); !all {
		return false, err
	}
	p := &a.pages[i]
	a.unlist(i)
	p.space.unused -= p.granules()
	if p.space.owner != nil { // see idled
		a.used -= p.granules()
	}
	a.discard(i)
	return true, nil
}

// discard frees a page that has no mapping and is in no list. If the driver fails, retryDrops tries again.
func (a *Allocator) discard(i pref) {
	p := &a.pages[i]
	if err := a.vm.Drop(p.handle); err != nil {
		p.undropped, p.user = true, 0
		a.undropped++
		return
	}
	a.created -= p.granules()
	p.space.created -= p.granules()
	*p = page{}
	a.unusedPages = append(a.unusedPages, i)
}

// retryDrops tries again to free the pages that the driver did not free before.
func (a *Allocator) retryDrops() {
	if a.undropped == 0 {
		return
	}
	for i := range a.pages {
		if a.pages[i].undropped {
			a.undropped--
			a.pages[i].undropped = false
			a.discard(pref(i))
		}
	}
}

// excess reports whether there is more memory than the limit, or more idle memory than Config.Keep.
func (a *Allocator) excess() bool {
	return a.created > a.maxGranules || a.cfg.Keep != KeepAll && a.created-a.used > a.cfg.Keep/a.granule
}

// trimIdle frees idle memory while there is too much of it, the least recently used first. It stops at memory that
// queued work may still use.
func (a *Allocator) trimIdle() {
	marked := false
	for a.excess() {
		i := a.oldestIdle(&a.main, avoidance{})
		if i == 0 {
			return
		}
		if !marked {
			a.waits.mark()
			marked = true
		}
		if dropped, err := a.drop(i, false); err != nil || !dropped {
			return // tried again at the next free
		}
	}
}

// EmptyCache implements mem.Trimmer: it waits for the work queued on idle memory and frees all idle memory, except that
// of private pools that have users. The error is the driver's; memory that was not freed stays idle.
func (a *Allocator) EmptyCache() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCaches()
	defer a.verify()
	return a.emptyCache()
}

func (a *Allocator) emptyCache() error {
	a.retryDrops()
	if err := errors.Join(a.dropIdle(&a.main), a.reclaimPools()); err != nil {
		return err
	}
	if a.undropped > 0 {
		return a.undroppedError()
	}
	return nil
}

func (a *Allocator) undroppedError() error {
	return &driver.Error{
		Call: "VirtualMemory.Drop", Code: driver.ErrInvalid,
		Detail: fmt.Sprintf("the device failed to free %d pages", a.undropped),
	}
}

// dropIdle frees a space's idle pages, after the work queued on them.
func (a *Allocator) dropIdle(s *space) error {
	for i := a.oldestIdle(s, avoidance{}); i != 0; i = a.oldestIdle(s, avoidance{}) {
		if _, err := a.drop(i, true); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes a region of a space with room for a span of this many units, and returns the hole that it consists of.
func (a *Allocator) reserve(s *space, units uint32) (ref, error) {
	number := slices.Index(a.regions, nil)
	if number < 0 {
		number = len(a.regions)
	}
	if number == maxRegions {
		return 0, &driver.Error{Call: "VirtualMemory.Reserve", Code: driver.ErrNoMemory, Detail: "too many regions"}
	}
	size := a.cfg.Addresses
	if s.owner != nil {
		size /= privateAddresses
	}
	size = max(size, int64(units)*unit)
	size = (size + a.granule - 1) / a.granule * a.granule
	base, err := a.vm.Reserve(size)
	if err != nil {
		return 0, fmt.Errorf("paged: reserve addresses: %w", err)
	}
	at, r := a.spans.alloc()
	r.ptr, r.units, r.region, r.state = base, uint32(size/unit), uint16(number), tail
	r.prev, r.next = 0, 0
	rg := &region{space: s, base: base, size: size, granules: size / a.granule, first: at, tail: at}
	s.regions = append(s.regions, uint16(number))
	if number == len(a.regions) {
		a.regions = append(a.regions, rg)
	} else {
		a.regions[number] = rg
	}
	return at, nil
}

// tailFor returns the hole at the end of a region of the request's space with room for a span, and makes a region if
// there is none.
func (a *Allocator) tailFor(r *request, units uint32) (ref, error) {
	for i := len(r.space.regions) - 1; i >= 0; i-- {
		if at := a.regions[r.space.regions[i]].tail; at != 0 && a.spans.at(at).units >= units {
			return at, nil
		}
	}
	return a.newRegion(r, units)
}

// newRegion reserves addresses for a span, if there is memory for it. Addresses are released by Close only.
func (a *Allocator) newRegion(r *request, units uint32) (ref, error) {
	if !r.mayCallDriver {
		return 0, errFlushFirst
	}
	if need := (int64(units)*unit + a.granule - 1) / a.granule; need > a.maxGranules-a.used+r.space.reusable() {
		return 0, &shortage{need: need}
	}
	return a.reserve(r.space, units)
}

const (
	maxRegions       = 1 << 16
	privateAddresses = 16 // Config.Addresses is this many times the addresses that a private pool reserves at once
)

// Close waits for the streams that used the memory and frees everything. Live blocks are an error that gives their
// number; then nothing has changed. If the device fails, the next Close frees the rest, and every Alloc fails. Closing
// a closed allocator is a no-op.
func (a *Allocator) Close() error {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCaches()
	if on := a.live(); on.N > 0 {
		return fmt.Errorf("paged: Close with %d live blocks, of %d bytes in all; layer.NewLeakTracker shows where "+
			"they were allocated", on.N, on.Bytes)
	}
	a.closed = true
	for sp := range a.eachSpace {
		if sp.paused != nil {
			a.forgetPause(sp.paused)
		}
	}
	if err := errors.Join(a.emptyCache(), a.dropPools()); err != nil {
		return fmt.Errorf("paged: Close: %w", err)
	}
	for n := len(a.regions) - 1; n >= 0; n-- {
		if rg := a.regions[n]; rg != nil {
			if err := a.vm.Release(rg.base, rg.size); err != nil {
				return fmt.Errorf("paged: Close: %w", err)
			}
		}
		a.regions = a.regions[:n]
	}
	a.mu.Unlock()
	err := a.freeHostMemory()
	a.mu.Lock()
	if err = errors.Join(err, a.waits.close()); err != nil {
		return fmt.Errorf("paged: Close: %w", err)
	}
	return nil
}
