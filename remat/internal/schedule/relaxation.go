package schedule

import (
	"math"
	"slices"
)

// A relaxation looks at one moment of a program: while an operation runs. Of the storages that are read later, some are
// resident then. Each other one is computed again later, with the storages from which it is made, as far as those are
// not resident either. The choice of resident storages with the least such time is a lower bound of what any policy
// adds: all other moments are taken to have room.
//
// With a price for memory the best choice is a cut of least capacity. A storage that is needed is either kept, which
// costs its price, or all operations that make it cost their time, and need their inputs. The price is found at which
// the kept storages fit; the time at that price, less the price of the free memory, is the bound (Lagrange).
type relaxation struct {
	plan   *Plan
	at     int32
	free   int64 // bytes for storages that the operation neither reads nor makes
	locked []bool

	urgency float64 // how much more the memory of a storage costs that is read last, compared with the next one
	net     network
	needed  []int32 // nodes of storages, or None
	evicted []int32
	again   []int32 // nodes of operations, or None
	queue   []int32 // storages with a node
}

const (
	capacities  = 1024 // the capacity for one ns
	leastPrice  = 1e-5 // of a byte, in capacities
	mostPrice   = 1e7
	priceRounds = 22
)

// relax returns the relaxation of a plan at one of its operations.
func relax(p *Plan, at int32, budget int64) *relaxation {
	r := &relaxation{plan: p, at: at, free: budget - p.ops[at].scratch, locked: make([]bool, len(p.uses))}
	for s, maker := range p.makers {
		switch {
		case p.born[s] > at && maker == None:
			r.locked[s] = true
		case maker == None || p.ops[maker].fixed && r.live(int32(s)):
			r.lock(int32(s))
		case p.ops[maker].fixed:
			r.locked[s] = true
		}
	}
	for _, s := range p.ops[at].inputs {
		r.lock(s)
	}
	for _, s := range p.ops[at].outputs {
		r.lock(s)
	}
	return r
}

// live reports whether a storage was made before the moment and is read after it.
func (r *relaxation) live(s int32) bool { return r.plan.makers[s] < r.at && r.plan.lastUse(s) > r.at }

// lock says that a storage is resident in any case.
func (r *relaxation) lock(s int32) {
	if !r.locked[s] {
		r.locked[s] = true
		r.free -= r.plan.sizes[s]
	}
}

// solve returns the storages to keep, or nil if there is no room, and the lower bound in ns.
func (r *relaxation) solve() (keep []bool, bound int64) {
	low, high := leastPrice, float64(mostPrice)
	for range priceRounds {
		price := math.Sqrt(low * high)
		r.build(price)
		capacity := float64(r.net.cut()) - price*float64(r.free)
		bound = max(bound, int64(capacity/capacities))
		if kept, bytes := r.kept(); bytes > r.free {
			low = price
		} else {
			high, keep = price, kept
		}
	}
	return keep, bound
}

// build makes the network for a price.
func (r *relaxation) build(price float64) {
	p := r.plan
	r.net.reset()
	r.queue = r.queue[:0]
	r.needed, r.evicted = nowhere(r.needed, len(p.uses)), nowhere(r.evicted, len(p.uses))
	r.again = nowhere(r.again, len(p.ops))
	for s := range p.uses {
		if !r.locked[s] && r.live(int32(s)) {
			r.net.connect(source, r.need(int32(s)), uncut)
		}
	}
	for i := 0; i < len(r.queue); i++ {
		s := r.queue[i]
		later := max(float64(p.lastUse(s)-r.at)/float64(int32(len(p.ops))-r.at), 0)
		r.evicted[s] = r.net.node()
		r.net.connect(r.needed[s], r.evicted[s], int64(price*float64(p.sizes[s])*(1+r.urgency*later)))
		r.net.connect(r.evicted[s], r.repeat(p.makers[s]), uncut)
	}
}

// nowhere returns n times None.
func nowhere(nodes []int32, n int) []int32 {
	nodes = slices.Grow(nodes[:0], n)[:n]
	for i := range nodes {
		nodes[i] = None
	}
	return nodes
}

// need returns the node of a storage that may be needed.
func (r *relaxation) need(s int32) int32 {
	if r.needed[s] == None {
		r.needed[s] = r.net.node()
		r.queue = append(r.queue, s)
	}
	return r.needed[s]
}

// repeat returns the node of an operation that may be repeated.
func (r *relaxation) repeat(o int32) int32 {
	if r.again[o] != None {
		return r.again[o]
	}
	r.again[o] = r.net.node()
	r.net.connect(r.again[o], sink, capacities*(r.plan.clock[o+1]-r.plan.clock[o]))
	for _, in := range r.plan.ops[o].inputs {
		if !r.locked[in] {
			r.net.connect(r.again[o], r.need(in), uncut)
		}
	}
	return r.again[o]
}

// kept returns the storages that the cut keeps.
func (r *relaxation) kept() (keep []bool, bytes int64) {
	keep = make([]bool, len(r.needed))
	for _, s := range r.queue {
		if r.net.reached(r.needed[s]) && !r.net.reached(r.evicted[s]) {
			keep[s] = true
			bytes += r.plan.sizes[s]
		}
	}
	return keep, bytes
}

// lastUse returns the position of the operation that reads a storage last, or that makes it.
func (p *Plan) lastUse(s int32) int32 {
	if uses := p.uses[s]; len(uses) > 0 {
		return uses[len(uses)-1]
	}
	return p.makers[s]
}

// used returns the bytes in use during each operation with unlimited memory.
func (p *Plan) used() []int64 {
	change := make([]int64, len(p.ops)+2)
	for s, size := range p.sizes {
		change[p.born[s]] += size
		if p.makers[s] != None {
			change[p.lastUse(int32(s))+1] -= size
		}
	}
	used, now := make([]int64, len(p.ops)), int64(0)
	for i := range p.ops {
		now += change[i]
		used[i] = now + p.ops[i].scratch
	}
	return used
}

// peaks returns the operations during which most memory is in use, of each stretch of operations that need more than
// the budget.
func (p *Plan) peaks(budget int64) []int32 {
	var peaks []int32
	most := int64(0)
	for i, now := range p.used() {
		switch {
		case now <= budget:
			most = 0
		case most == 0:
			peaks, most = append(peaks, int32(i)), now
		case now > most:
			peaks[len(peaks)-1], most = int32(i), now
		}
	}
	return peaks
}
