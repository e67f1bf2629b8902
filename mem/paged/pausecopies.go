package paged

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A run is paused pages, or pages to pause, at consecutive addresses of a region, whose contents are together in host
// memory too.
type run struct {
	at     driver.Pointer
	size   int64
	host   int64 // offset of the contents in the host memory
	pages  []pref
	region uint16
	mapped bool
}

const (
	maxRun   = 32 // granules: a run of more than one page is at most as large
	inFlight = 32 // runs whose copies are queued before the first of them is unmapped
)

// runs returns the pages that live blocks touch, in the order of their addresses: those of a pause if there are any,
// else all, each with a place in the host memory.
func (a *Allocator) runs(ps *pause) (all []run) {
	var next int64
	for _, n := range a.regionOrder() {
		if a.regions[n].space.paused != ps {
			continue
		}
		for m := range a.mappingsOf(a.regions[n]) {
			mp := &a.mappings[m]
			p := &a.pages[mp.page]
			if p.user != m {
				continue
			}
			host, paused := ps.at[mp.page]
			switch {
			case paused != (len(ps.at) > 0):
				continue // it was not given back when Pause failed
			case !paused:
				host, next = next, next+int64(mp.n)*a.granule
			}
			all = a.appendPage(all, mp.page, run{
				at: a.address(mp), size: int64(mp.n) * a.granule, host: host, region: mp.region,
				mapped: p.counted != 0,
			})
		}
	}
	return all
}

// appendPage adds a page to the last run if it continues it, or else to a new one.
func (a *Allocator) appendPage(all []run, i pref, one run) []run {
	if n := len(all); n > 0 {
		last := &all[n-1]
		if last.at+driver.Pointer(last.size) == one.at && last.host+last.size == one.host &&
			last.region == one.region && last.mapped == one.mapped && last.size+one.size <= maxRun*a.granule {
			last.size += one.size
			last.pages = append(last.pages, i)
			return all
		}
	}
	one.pages = []pref{i}
	return append(all, one)
}

// sizeOf returns the bytes of runs.
func (a *Allocator) sizeOf(all []run) (n int64) {
	for i := range all {
		n += all[i].size
	}
	return n
}

// mappingsOf visits the mappings of a region in the order of their addresses.
func (a *Allocator) mappingsOf(rg *region) func(yield func(mref) bool) {
	return func(yield func(mref) bool) {
		for g := uint32(0); int(g) < len(rg.at); {
			m := rg.at[g]
			if m == 0 {
				g++
				continue
			}
			g = a.mappings[m].at + a.mappings[m].n
			if !yield(m) {
				return
			}
		}
	}
}

// giveBack copies the contents of all pages in use to the host memory, and gives each run's memory back as soon as its
// copy is done, while the next runs are being copied. If it fails, the pages in ps.at have been given back.
func (a *Allocator) giveBack(ps *pause) error {
	if err := a.waits.openCopier(); err != nil {
		return err
	}
	all := a.runs(ps)
	marks := make([]driver.Mark, len(all))
	queued := 0
	for i := range all {
		for ; !ps.discard && queued < len(all) && queued < i+inFlight; queued++ {
			var err error
			if marks[queued], err = a.copyOut(ps, &all[queued]); err != nil {
				return errors.Join(err, a.syncCopies())
			}
		}
		err := error(nil)
		if !ps.discard {
			err = a.waits.waitFor(a.waits.copier, marks[i])
		}
		if err == nil {
			err = a.releaseRun(ps, &all[i])
		}
		if err != nil {
			return errors.Join(err, a.syncCopies())
		}
	}
	return nil
}

// copyOut queues the copy of a run's contents to the host memory, and returns the point after it.
func (a *Allocator) copyOut(ps *pause, r *run) (driver.Mark, error) {
	at := r.at
	err := ps.host.parts(r.host, r.size, func(part []byte) error {
		err := a.dev.Pinned().CopyOutAsync(a.waits.copier, part, at)
		at += driver.Pointer(len(part))
		return err
	})
	if err != nil {
		return driver.Mark{}, fmt.Errorf("copy contents to the host: %w", err)
	}
	return a.waits.copier.Mark()
}

// copyIn queues the copy of a run's contents from the host memory.
func (a *Allocator) copyIn(ps *pause, r *run) error {
	at := r.at
	err := ps.host.parts(r.host, r.size, func(part []byte) error {
		err := a.dev.Pinned().CopyInAsync(a.waits.copier, at, part)
		at += driver.Pointer(len(part))
		return err
	})
	if err != nil {
		return fmt.Errorf("copy contents from the host: %w", err)
	}
	return nil
}

// releaseRun gives the memory of a run back to the driver. Its pages are paused from then on, also if the driver fails
// to take some of them.
func (a *Allocator) releaseRun(ps *pause, r *run) error {
	if err := a.vm.Unmap(r.at, r.size); err != nil {
		return fmt.Errorf("unmap pages: %w", err)
	}
	host := r.host
	for _, i := range r.pages {
		p := &a.pages[i]
		a.countMemory(&a.mappings[p.counted], -1)
		p.counted, p.paused = 0, true
		ps.at[i] = host
		a.used -= p.granules()
		host += p.granules() * a.granule
	}
	r.mapped = false
	return a.dropPages(r)
}

// dropPages frees the pages of a run, which are not mapped.
func (a *Allocator) dropPages(r *run) (err error) {
	for _, i := range r.pages {
		p := &a.pages[i]
		if p.handle == (driver.Page{}) {
			continue
		}
		if failed := a.vm.Drop(p.handle); failed != nil {
			err = fmt.Errorf("free a page: %w", failed)
			continue
		}
		p.handle = driver.Page{}
		a.created -= p.granules()
		p.space.created -= p.granules()
	}
	return err
}

// takeBack gets memory for all paused pages, and copies their contents back. While one run is copied, the next ones are
// mapped: those of large pages first, whose mapping takes less time than the copy, so that copies queue up and the link
// is busy while the others are mapped. If it fails, the pages are still paused.
func (a *Allocator) takeBack(ps *pause) error {
	if len(ps.at) == 0 {
		return nil
	}
	all := a.runs(ps)
	slices.SortStableFunc(all, func(x, y run) int {
		return cmp.Compare(int64(len(x.pages))*y.size, int64(len(y.pages))*x.size)
	})
	var err error
	done := 0
	for ; err == nil && done < len(all); done++ {
		if err = a.mapRun(ps, &all[done]); err == nil && !ps.discard {
			err = a.copyIn(ps, &all[done])
		}
	}
	if failed := a.syncCopies(); failed != nil {
		err = errors.Join(err, failed)
		if a.syncCopies() != nil {
			return err // the pages stay mapped: copies may be under way
		}
	}
	if err != nil {
		for i := range all[:done] {
			if r := &all[i]; r.mapped {
				err = errors.Join(err, a.releaseRun(ps, r))
			}
		}
		return err
	}
	for i := range ps.at {
		a.pages[i].paused = false
	}
	clear(ps.at)
	return nil
}

// mapRun gets memory for the pages of a run, unless they have it.
func (a *Allocator) mapRun(ps *pause, r *run) error {
	if r.mapped {
		return nil
	}
	a.pieces = a.pieces[:0]
	for _, i := range r.pages {
		if err := a.recreate(ps, i); err != nil {
			return errors.Join(err, a.dropPages(r))
		}
		a.pieces = append(a.pieces, a.pages[i].handle)
	}
	if err := a.vm.Map(r.at, a.pieces...); err != nil {
		if errors.Is(err, driver.ErrNoMemory) {
			err = &shortage{need: a.missingFor(ps), cause: err}
		}
		return errors.Join(fmt.Errorf("map %d pages: %w", len(r.pages), err), a.dropPages(r))
	}
	for _, i := range r.pages {
		p := &a.pages[i]
		a.setCounted(p.user)
		a.used += p.granules()
	}
	a.mostUsed = max(a.mostUsed, a.used)
	r.mapped = true
	return nil
}

// recreate gets memory for a paused page. If there is none, it drops idle pages.
func (a *Allocator) recreate(ps *pause, i pref) error {
	p := &a.pages[i]
	if p.handle != (driver.Page{}) {
		return nil // the driver failed to free it
	}
	var cause error
	for {
		if a.created+p.granules() <= a.maxGranules {
			handle, err := a.vm.Create(p.granules() * a.granule)
			if err == nil {
				p.handle = handle
				a.created += p.granules()
				p.space.created += p.granules()
				return nil
			}
			if !errors.Is(err, driver.ErrNoMemory) {
				return fmt.Errorf("create a page: %w", err)
			}
			cause = err
		}
		victim := a.oldestIdle(&a.main, a.capturing())
		if victim == 0 {
			return &shortage{need: a.missingFor(ps), cause: cause}
		}
		if _, err := a.drop(victim, true); err != nil {
			return err
		}
	}
}
