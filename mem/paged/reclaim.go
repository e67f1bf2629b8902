package paged

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// reclaimFor frees the pages of pools without users, for a request that found no room. It reports whether it freed any.
func (a *Allocator) reclaimFor(r *request) bool {
	if r.noWait {
		return false
	}
	before := a.created
	return a.reclaimPools() == nil && a.created < before
}

// reclaimPools frees the idle pages of pools without users, and removes those that are empty.
func (a *Allocator) reclaimPools() error {
	var failures []error
	for _, pp := range a.pools() {
		if pp.useCount == 0 {
			failures = append(failures, a.reclaim(pp))
		}
	}
	return errors.Join(failures...)
}

// emptyPool frees the idle pages of a pool that no graph uses. Launches of graphs that used it may be queued on any
// stream, so it waits for all. It does nothing while a stream captures, which cannot be waited for.
func (a *Allocator) emptyPool(pp *privatePool) error {
	if pp.inGraphs() {
		return nil
	}
	if pp.launched {
		if a.scopes.Capturing() || a.capturing().streams != 0 {
			return nil
		}
		if err := a.sync(); err != nil {
			return err
		}
		pp.launched = false
	}
	return a.dropIdle(&pp.space)
}

// pools returns the private pools, sorted by ID.
func (a *Allocator) pools() []*privatePool {
	all := make([]*privatePool, 0, len(a.private))
	for _, pp := range a.private {
		all = append(all, pp)
	}
	slices.SortFunc(all, func(x, y *privatePool) int { return slices.Compare(x.id[:], y.id[:]) })
	return all
}

// sync waits for the work queued on the default stream and on all streams of requests.
func (a *Allocator) sync() error {
	if err := a.dev.DefaultStream().Sync(context.Background()); err != nil {
		return err
	}
	for s := range a.streams.Registered() {
		err := s.Sync(context.Background())
		if errors.Is(err, driver.ErrClosed) && a.waits.alive() {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reclaim frees the idle pages of a pool without users, and removes the pool if it is empty.
func (a *Allocator) reclaim(pp *privatePool) error {
	if a.keptByPause(&pp.space) {
		return nil
	}
	if err := a.emptyPool(pp); err != nil || pp.space.created > 0 {
		return err
	}
	if err := a.releaseRegions(&pp.space); err != nil {
		return err
	}
	pp.gone = true
	a.overflow = slices.DeleteFunc(a.overflow, func(other *privatePool) bool { return other == pp })
	delete(a.private, pp.id)
	return nil
}

// releaseRegions releases the addresses of a space without pages.
func (a *Allocator) releaseRegions(s *space) error {
	for len(s.regions) > 0 {
		n := s.regions[len(s.regions)-1]
		rg := a.regions[n]
		if err := a.vm.Release(rg.base, rg.size); err != nil {
			return err
		}
		for at := rg.first; at != 0; {
			sp := a.spans.at(at)
			next := sp.next
			if sp.state == hole {
				a.removeHole(rg, sp)
			}
			a.spans.free(at, sp)
			at = next
		}
		a.regions[n] = nil
		s.regions = s.regions[:len(s.regions)-1]
	}
	return nil
}

// dropPools frees the memory of all private pools, for Close.
func (a *Allocator) dropPools() error {
	var failures []error
	for _, pp := range a.pools() {
		pp.useCount, pp.own, pp.closed = 0, 0, true
		failures = append(failures, a.reclaim(pp))
	}
	return errors.Join(failures...)
}
