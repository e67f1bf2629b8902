package paged

// A space is the addresses and pages that serve the requests of one pool. A region belongs to one space, and so does a
// page: it is mapped in regions of its space alone.
type space struct {
	regions []uint16 // indices of its regions
	holes   holes
	slabs   []*slabLists       // by stream number
	idle    [maxOrder + 1]list // idle pages
	paused  *pause             // nil: it is not
}

// spaceOf returns the space of a span.
func (a *Allocator) spaceOf(r *span) *space { return a.regions[r.region].space }
