package paged

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A shortage is the error for a lack of memory.
type shortage struct {
	need  int64 // granules
	busy  bool  // the host would have had to wait for work on existing memory
	cause error // the device's error, or nil
}

func (s *shortage) Unwrap() error { return driver.ErrNoMemory }

func (s *shortage) Error() string { return fmt.Sprintf("paged: no memory for %d granules", s.need) }

// backRange gets memory for the granules [from, to) of a region, and returns the dependencies of memory that came from
// other addresses. It lists the idle pages that it put to use in a.taken, for setCounted on success and releaseTaken
// on failure. If it fails, the pages in use are the same as before.
func (a *Allocator) backRange(
	r *request, rg *region, number uint16, from, to uint32,
) (deps reuse.Dependencies, err error) {
	if !r.mayCallDriver {
		if nothing, stale := a.missing(rg, from, to); nothing+stale > 0 {
			return deps, errFlushFirst // before idle pages lose their mappings
		}
	}
	a.taken = a.taken[:0]
	var need, taken int64
	for g := from; g < to; {
		m := rg.mapping(g)
		if m == 0 {
			need++
			g++
			continue
		}
		mp := &a.mappings[m]
		switch {
		case mp.blocks > 0:
			deps = a.streams.Merge(deps, mp.pageDeps)
		case a.avoids(r.avoid, a.streams.Union(a.depsAt(m).Users, mp.deps.Users)):
			a.releaseTaken()
			return deps, errCaptured
		case a.pages[mp.page].user == 0:
			deps = a.streams.Merge(a.streams.Merge(deps, a.depsAt(m)), mp.deps)
			a.fromIdle(mp.page, m)
			a.taken = append(a.taken, m)
			taken += int64(mp.n)
		default:
			need += int64(min(mp.at+mp.n, to) - g)
		}
		g = mp.at + mp.n
	}
	beyond := need+taken > 0 && a.used+need > a.maxGranules // idle pages may be there beyond a limit that was lowered
	if r.space.owner != nil {
		more := need // than the pool's idle pages
		if !a.idlePagesStay(r.space) {
			more -= r.space.unused
		}
		beyond = more > 0 && a.used+more > a.maxGranules
	}
	switch {
	case need == 0 && !beyond:
		return deps, nil
	case !r.mayCallDriver:
		err = errFlushFirst
	case beyond:
		err = &shortage{need: need + taken}
	default:
		if deps, err = a.fill(r, rg, number, from, to, deps); err == nil {
			return deps, nil
		}
		if short, ok := err.(*shortage); ok {
			short.need = need + taken
		}
	}
	a.releaseTaken()
	return deps, err
}

// depsAt returns the dependencies of a mapping's page that the holes there do not include: its page was used at
// another address since.
func (a *Allocator) depsAt(m mref) reuse.Dependencies {
	if p := &a.pages[a.mappings[m].page]; p.counted != m {
		return p.deps
	}
	return a.mappings[m].pageDeps
}

// releaseTaken makes the pages in a.taken idle again.
func (a *Allocator) releaseTaken() {
	for _, m := range a.taken {
		a.toIdle(a.mappings[m].page, true)
	}
	a.taken = a.taken[:0]
}

// fill maps pages to the granules in [from, to) that have none of their own, with one driver call for each run of
// granules. First it unmaps stale mappings there: until then their addresses cannot be mapped again.
func (a *Allocator) fill(
	r *request, rg *region, number uint16, from, to uint32, deps reuse.Dependencies,
) (reuse.Dependencies, error) {
	rg.extend(to)
	a.waits.mark()
	for g := from; g < to; g++ {
		if m := rg.at[g]; m != 0 && a.mappings[m].blocks == 0 && a.pages[a.mappings[m].page].user != m {
			if r.space.fixed() {
				return deps, errStale
			}
			if err := a.unmap(m, !r.noWait); err != nil {
				return deps, err
			}
			r.stale = true
		}
	}
	for g := from; g < to; {
		if rg.at[g] != 0 {
			g++
			continue
		}
		run := g
		for run < to && rg.at[run] == 0 {
			run++
		}
		var err error
		if deps, err = a.fillRun(r, rg, number, g, run, deps); err != nil {
			return deps, err
		}
		g = run
	}
	return deps, nil
}

// fillRun maps pages to the granules [from, to), which have no mappings. At addresses that no block has reached, the
// last page may extend beyond to: the next block goes there.
func (a *Allocator) fillRun(
	r *request, rg *region, number uint16, from, to uint32, deps reuse.Dependencies,
) (reuse.Dependencies, error) {
	a.chosen, a.pieces = a.chosen[:0], a.pieces[:0]
	for g := from; g < to; {
		order := a.largest(r.space)
		for order > 0 && a.created > a.maxGranules && a.used+1<<order > a.maxGranules {
			order-- // idle pages beyond a limit that was lowered
		}
		if fits := bits.Len32(to-g) - 1; order > fits && !rg.fresh(to, g+1<<order) {
			order = fits
		}
		i, err := a.choose(r, order)
		if err != nil {
			a.unchoose()
			return deps, err
		}
		a.chosen = append(a.chosen, i)
		a.pieces = append(a.pieces, a.pages[i].handle)
		g += uint32(a.pages[i].granules())
	}
	if err := a.vm.Map(rg.base+driver.Pointer(int64(from)*a.granule), a.pieces...); err != nil {
		a.unchoose()
		if errors.Is(err, driver.ErrNoMemory) {
			return deps, &shortage{cause: err}
		}
		return deps, fmt.Errorf("paged: map %d pages: %w", len(a.pieces), err)
	}
	g := from
	for _, i := range a.chosen {
		m := a.addMapping(i, number, g)
		deps = a.streams.Merge(deps, a.depsAt(m))
		a.pages[i].user = m
		if a.pages[i].counted == 0 {
			a.setCounted(m)
		}
		a.taken = append(a.taken, m)
		g += a.mappings[m].n
	}
	a.chosen = a.chosen[:0]
	return deps, nil
}

// chosenUser is the user of a page that is about to be mapped.
const chosenUser = ^mref(0)

// choose returns a page of an order, or of a lower order if there is none. It prefers the least recently used idle
// page; then a new page, if no more memory is then in use than before; then a new page in place of an idle page of
// another order, which is dropped. A request that met a stale mapping may use Config.Spare for a new page first, so
// that two addresses do not take one page from each other again and again. Private pools have no spare memory, and
// idle pages of the default pool are dropped for theirs.
func (a *Allocator) choose(r *request, order int) (pref, error) {
	a.retryDrops()
	private := r.space.owner != nil
	for {
		n := int64(1) << order
		spare := !private && r.stale && a.created+n <= min(a.maxGranules, a.mostUsed+a.cfg.Spare>>a.shift)
		if !spare {
			if i, err := a.takeIdle(r, order); i != 0 || err != nil {
				return i, err
			}
		}
		victim := pref(0)
		switch {
		case r.noWait:
		case private:
			victim = a.oldestIdle(&a.main, a.victims(r))
		default:
			victim = a.oldestIdle(r.space, r.avoid)
		}
		var cause error
		if a.created+n <= a.maxGranules && (victim == 0 || spare || a.created+n <= max(a.mostUsed, a.used+n)) {
			i, err := a.create(r.space, order)
			if err == nil || !errors.Is(err, driver.ErrNoMemory) {
				return i, err
			}
			cause = err
			r.stale = false // the device has no spare memory
		}
		switch {
		case victim != 0:
			if _, err := a.drop(victim, true); err != nil {
				return 0, err
			}
		case order > 0:
			order--
		default:
			return 0, &shortage{cause: cause}
		}
	}
}

// takeIdle puts the least recently used idle page of an order to use, for a mapping that is to be made, and returns
// it, or 0.
func (a *Allocator) takeIdle(r *request, order int) (pref, error) {
	i := a.oldestOf(r.space, order, r.avoid)
	switch {
	case i == 0, a.cfg.NoAliases && r.noWait, a.idlePagesStay(r.space):
		return 0, nil
	case a.cfg.NoAliases:
		if _, err := a.unmapAll(i, true); err != nil {
			return 0, err
		}
	}
	a.fromIdle(i, chosenUser)
	return i, nil
}

// unchoose returns the pages that were chosen but not mapped.
func (a *Allocator) unchoose() {
	for _, i := range a.chosen {
		if p := &a.pages[i]; p.first != 0 {
			a.toIdle(i, true)
		} else {
			a.used -= p.granules()
			a.discard(i)
		}
	}
	a.chosen = a.chosen[:0]
}

// largest returns the order of the largest page to make now. Under a limit, pages have one granule, unless the limit
// is thousands of granules. Without a limit they grow with the memory in use, so that the waste inside pages stays
// small; those of a private pool with the memory of the pool.
func (a *Allocator) largest(s *space) int {
	most := a.cfg.Page / a.granule
	if most == 0 {
		most = max(1, min(defaultPage, a.created/192), a.created/768)
		if a.limited() {
			most = min(most, max(1, a.limit/8192))
		}
	}
	if s.owner != nil {
		most = min(most, max(1, s.created/768))
	}
	return min(bits.Len64(uint64(most))-1, maxOrder)
}
