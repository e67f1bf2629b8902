package paged

import "github.com/ashlar-go/ashlar/mem"

// A space is the addresses and pages that serve the requests of one pool. A region belongs to one space, and so does a
// page: it is mapped in regions of its space alone.
type space struct {
	owner   *privatePool // nil: the default pool
	regions []uint16     // indices of its regions
	holes   holes
	slabs   []*slabLists           // by stream number
	idle    [maxOrder + 1]idleList // by order
	paused  *pause                 // nil: it is not
	unused  int64                  // granules of idle pages
	created int64                  // granules of pages
}

// spaceOf returns the space of a span.
func (a *Allocator) spaceOf(r *span) *space { return a.regions[r.region].space }

// id returns the ID of the space's pool.
func (s *space) id() mem.PoolID {
	if s.owner == nil {
		return mem.PoolID{}
	}
	return s.owner.id
}

// fixed reports whether graphs may access addresses of the space: then its mappings stay, and so do its pages.
func (s *space) fixed() bool { return s.owner != nil && s.owner.launched }

// noMerge reports whether blocks keep their boundaries when they are free.
func (s *space) noMerge() bool { return s.owner != nil && s.owner.noSplit }

// idlePagesStay reports whether the space's idle pages must stay at the addresses that they have, and at no others.
func (a *Allocator) idlePagesStay(s *space) bool { return s.noMerge() || a.cfg.NoAliases && s.fixed() }

// eachSpace visits the default space and those of the private pools.
func (a *Allocator) eachSpace(yield func(*space) bool) {
	if !yield(&a.main) {
		return
	}
	for _, pp := range a.private {
		if !yield(&pp.space) {
			return
		}
	}
}

// reusable returns the granules of idle pages that only requests of this space can use: none of the default pool,
// since idle pages of that do not count as used.
func (s *space) reusable() int64 {
	if s.owner == nil {
		return 0
	}
	return s.unused
}

// idled counts n granules of a page that became idle, or -n granules of one that is idle no longer. The pages of a
// private pool count as used while they exist: no other request can have them.
func (a *Allocator) idled(s *space, n int64) {
	s.unused += n
	if s.owner == nil {
		a.used -= n
	}
}
