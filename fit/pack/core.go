package pack

import (
	"cmp"
	"slices"
)

// A core is the set of buffers that are alive at the peak. A packing must be tight there and rarely elsewhere. So the
// core is packed by exact search, and the other buffers by first fit.
type core struct {
	indices []int // of its buffers
	buffers []Buffer

	// The search at the lowest capacity that is not ruled out. It continues from turn to turn.
	search *exactSearch
	asked  int64
}

const (
	coreFirst    = 256  // buffers in the smallest core of larger instances
	coreLargest  = 8192 // buffers in the largest core: a node of its search takes about a millisecond
	nodesPerStep = 16   // this many nodes take about as long as placing the same buffers in an order
	probes       = 8    // capacities between the bound and the best height that are searched in a turn
)

// makeCores returns the cores: each has at least twice as many buffers as the one before. The last has all buffers, up
// to coreLargest.
func (p *packer) makeCores() []*core {
	p.sort(byTotal)
	var cores []*core
	add := func(n int) {
		c := &core{indices: slices.Clone(p.order[:n])}
		slices.Sort(c.indices)
		for _, i := range c.indices {
			c.buffers = append(c.buffers, p.buffers[i])
		}
		cores = append(cores, c)
	}
	for n := coreFirst; n <= coreLargest && 2*n <= len(p.order); n *= 2 {
		add(n)
	}
	if len(p.order) <= coreLargest {
		add(len(p.order))
	}
	return cores
}

// atLeast searches for a packing at the lowest capacity that is not ruled out.
func (p *packer) atLeast(c *core, turn int, nodes int64) {
	for nodes > 0 && !p.over() {
		if c.search == nil || c.asked != p.best.Least {
			c.search, c.asked = p.newSearch(c, p.best.Least, turn), p.best.Least
		}
		if c.search == nil {
			return
		}
		before := c.search.nodes
		answer := p.ask(c, c.search, c.asked, nodes)
		nodes -= max(1, c.search.nodes-before)
		if answer != exactSpent {
			c.search = nil
		}
		if answer != exactNone {
			return
		}
	}
}

// between searches for packings lower than the best. It bisects the capacities between the best height and those that
// are ruled out or for which no packing was found within a number of nodes.
func (p *packer) between(c *core, turn int, nodes int64) {
	low := p.best.Least
	for range probes {
		high := p.best.Height - p.unit
		if low > high || p.over() {
			return
		}
		capacity := low + (high-low)/2/p.unit*p.unit
		s := p.newSearch(c, capacity, turn)
		if s == nil {
			return
		}
		if p.ask(c, s, capacity, nodes); p.best.Height > capacity {
			low = max(capacity+p.unit, p.best.Least)
		}
	}
}

// newSearch returns a search of another order of preferences in each turn, or nil if the sizes are too large.
func (p *packer) newSearch(c *core, capacity int64, turn int) *exactSearch {
	s, err := newExactSearch(c.buffers, capacity)
	if err != nil {
		return nil
	}
	s.turn = turn % (2 * len(exactOrders))
	return s
}

// ask searches for a packing of a core, and completes it.
func (p *packer) ask(c *core, s *exactSearch, capacity, nodes int64) exactAnswer {
	if p.steps >= 0 {
		nodes = min(nodes, nodesPerStep*min(nodes, int64(p.steps)))
	}
	before := s.nodes
	answer := s.search(p.ctx, nodes)
	if p.steps >= 0 {
		p.steps = max(0, p.steps-int((s.nodes-before)/nodesPerStep)-1)
	}
	switch answer {
	case exactNone: // so there is none for all the buffers either
		p.best.Least = max(p.best.Least, capacity+p.unit)
	case exactFound:
		p.complete(c, s)
	}
	return answer
}

// complete places the buffers outside of the core around it, in each of the orders.
func (p *packer) complete(c *core, s *exactSearch) {
	rank := make([]int, len(p.buffers)) // 1 for the core
	for i := range s.items {
		at := c.indices[s.items[i].index]
		rank[at] = 1
		p.offsets[at] = s.offset[i]
	}
	for _, before := range orders {
		p.sort(before)
		slices.SortStableFunc(p.order, func(x, y int) int { return cmp.Compare(rank[y], rank[x]) })
		if stopped, _ := p.place(p.occupied.firstFit, len(c.indices), p.ceiling(), 0); stopped == len(p.order) {
			p.keep()
		}
		if p.done() || len(c.indices) == len(p.order) {
			return
		}
	}
}
