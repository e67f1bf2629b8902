package schedule

import "math"

// chainPolicy is the project's own policy. It evicts the storage with the least cost / (size * distance^q), where the
// cost is that of all evicted storages that have to be made first, the chain, and the distance is the guessed time
// until the program reads the storage. It differs from DTR in five ways.
//
//   - Storages that are made from the evicted one hardly count: in a program that computes gradients they are read
//     before it, and it is made then anyway.
//   - The distance counts less than the staleness does there. A result of the forward pass is stale until its gradient
//     is computed, whatever it is: staleness mainly protects what was made just now. In a backward pass the distance is
//     that of the mirror image of the forward pass.
//   - Storages without references are not read by the program. They are dropped at once, unless an evicted storage is
//     made of them, or storages that are larger and cheap as long as they are there: then they may stay, but are far
//     away.
//   - The same holds for storages with references only to bases: values that were read once, to make views of them, all
//     of which are released. They have references because the record of derivatives holds them. They are not dropped,
//     but their cost hardly counts.
//   - An input of a waiting operation is evicted, and made again later, where nothing else can be.
//
// The choice takes the same time for any number of storages. Evictable storages are in lists by the logarithm of their
// cost for each byte, in the order of their last access, and only the first of each list is compared. The costs are
// those known when a storage became evictable or was compared last: the chosen one is computed anew, and moved to the
// list where it belongs if it is not the best any more.
type chainPolicy struct {
	base
	weights
	lists     [buckets]list
	filled    bitmap
	nodes     []chainNode
	walk      walk
	recosting []Storage
	copying   []Storage // that are being copied to the host
	mirror    mirror
}

// weights are the parameters of a chainPolicy.
type weights struct {
	live     float64 // weight of evicted storages that have references: they will be made for the program, too
	later    float64 // weight of evicted storages that are made from this one
	exponent float64 // of the staleness
}

// defaultWeights were chosen on the logs in remat/testdata, and on those of the authors of DTR. The figures are in
// docs/decisions/0039-what-to-evict.md.
var defaultWeights = weights{live: 0.3, later: 0.03, exponent: 0.45}

// A bucket holds the storages whose cost for each byte lies within a factor of 2^(1/perOctave).
const (
	perOctave = 4
	lowest    = -20 // the logarithm of the least cost for each byte, in ns
	buckets   = 60*perOctave + 1
)

const (
	retries   = 100  // storages whose costs are computed anew before one is evicted
	maxPlaces = 64   // storages that are compared to find a place in a list
	saveBytes = 2    // how many times the bytes of a storage without references must be made of it
	saveCost  = 0.3  // how much a byte of them may cost, as a share of the cost of a byte of it
	doubt     = 0.03 // weight of the cost of what has references, but only to bases of views
)

type chainNode struct {
	cost       float64 // of the chain, when it was computed last
	rate       float64 // the logarithm of the cost for each byte
	known      bool    // the cost was computed, and has not become less since
	prev, next Storage
	bucket     int16 // or -1
}

type list struct{ first, last Storage }

func newChain(w weights) *chainPolicy {
	p := &chainPolicy{weights: w}
	for i := range p.lists {
		p.lists[i] = list{None, None}
	}
	return p
}

func (p *chainPolicy) reads(s Storage) { p.mirror.read(p.e.programTime(), &p.e.storages[s]) }

// use changes the weights. Known costs are computed anew when they are compared.
func (p *chainPolicy) use(w weights) { p.weights = w }

// eager keeps a storage if something was evicted that is made of it.
func (p *chainPolicy) eager(s Storage) bool { return p.spent(s) }

func (*chainPolicy) relentless() bool { return true }

func (p *chainPolicy) entered(s Storage) {
	for len(p.nodes) < len(p.e.storages) {
		p.nodes = append(p.nodes, chainNode{bucket: None})
	}
	n := &p.nodes[s]
	if !n.known {
		n.cost, n.known = p.cost(s), true
	}
	p.insert(s, n.cost)
}

func (p *chainPolicy) left(s Storage) { p.remove(s) }

// changed, released and forgotten say that a known cost is wrong.
func (p *chainPolicy) changed(s Storage) {
	p.unknown(s)
	if p.e.storages[s].host.place != hostAbsent {
		p.copying = append(p.copying, s)
	}
}

func (p *chainPolicy) released(s Storage) {
	p.unknown(s)
	if p.e.storages[s].pooled != None {
		p.remove(s)
		p.entered(s)
	}
}

func (p *chainPolicy) forgotten(s Storage) { p.unknown(s) }

func (p *chainPolicy) unknown(s Storage) {
	if int(s) < len(p.nodes) {
		p.nodes[s].known = false
	}
}

// restored computes the costs anew of what is made from a storage: they have become less.
func (p *chainPolicy) restored(s Storage, again bool) {
	if !again {
		return
	}
	p.recosting = p.recosting[:0]
	p.walk.visit(p.e, s, near, p.e.children, func(c Storage, st *storage) bool {
		if st.pooled != None {
			p.recosting = append(p.recosting, c)
		} else {
			p.unknown(c)
		}
		return !st.resident
	})
	for _, c := range p.recosting {
		p.update(c)
	}
	p.e.parents(s, func(parent Storage) {
		if st := &p.e.storages[parent]; st.pooled != None && st.wanted == 0 {
			p.update(parent)
		}
	})
}

// update moves a storage to the list of its present cost, and reports whether that is another.
func (p *chainPolicy) update(s Storage) bool {
	before := p.nodes[s].bucket
	p.nodes[s].known = true
	cost := p.cost(s)
	if cost == p.nodes[s].cost {
		return false
	}
	p.remove(s)
	p.insert(s, cost)
	return p.nodes[s].bucket != before
}

// cost returns the cost to make a storage again.
func (p *chainPolicy) cost(s Storage) float64 {
	st := &p.e.storages[s]
	if st.refs == 0 && p.spent(s) {
		return 0
	}
	cost := p.without(st)
	p.walk.visit(p.e, s, maxWalk, p.e.parents, func(_ Storage, st *storage) bool {
		if st.resident {
			return false
		}
		weight := 1.0
		if st.wanted > 0 {
			weight = p.live
		}
		cost += weight * p.without(st)
		return st.host.place == hostAbsent
	})
	if p.later > 0 {
		p.walk.visit(p.e, s, maxWalk, p.e.children, func(_ Storage, st *storage) bool {
			if !st.resident {
				cost += p.later * p.without(st)
			}
			return !st.resident
		})
	}
	if st.wanted == 0 && st.refs > 0 {
		cost *= doubt
	}
	return float64(p.e.copyCost(int64(cost), st))
}

// without returns the cost of a storage alone: to compute it, or to copy it back.
func (p *chainPolicy) without(st *storage) float64 { return float64(p.e.copyCost(st.cost, st)) }

// saves reports whether a storage without references is worth its memory: several times as much is made of it, for much
// less than it takes to make it. As long as it is there, that can be evicted instead. Without a budget nothing may have
// to be evicted.
func (p *chainPolicy) saves(s Storage) bool {
	if p.e.budget == 0 {
		return false
	}
	st := &p.e.storages[s]
	rate, bytes := float64(st.cost)/float64(max(st.size, 1)), int64(0)
	p.walk.visit(p.e, s, 1, p.e.children, func(_ Storage, child *storage) bool {
		if child.resident && child.wanted > 0 && float64(child.cost) < saveCost*rate*float64(child.size) {
			bytes += child.size
		}
		return false
	})
	return bytes > saveBytes*st.size
}

// spent reports whether a storage without references saves nothing, and no evicted storage that the program may read is
// made of it, directly or through others that are evicted.
func (p *chainPolicy) spent(s Storage) bool {
	spent := !p.saves(s)
	p.walk.visit(p.e, s, maxWalk, p.e.children, func(_ Storage, st *storage) bool {
		if !st.resident && st.wanted > 0 {
			spent = false
		}
		return !st.resident && spent
	})
	return spent
}

func (p *chainPolicy) victim(int64) Storage {
	p.copied()
	for range retries {
		s := p.best()
		if s == None || !p.update(s) {
			return s
		}
	}
	return p.best()
}

// copied computes the costs anew of storages whose copy to the host is complete.
func (p *chainPolicy) copied() {
	rest := p.copying[:0]
	for _, s := range p.copying {
		st := &p.e.storages[s]
		switch {
		case st.host.place == hostAbsent:
		case st.host.copied > p.e.now:
			rest = append(rest, s)
		case st.pooled != None:
			p.update(s)
		}
	}
	p.copying = rest
}

// best returns the storage with the least score among the first of all lists.
func (p *chainPolicy) best() Storage {
	least, found := math.Inf(1), Storage(None)
	now := p.e.programTime()
	for b := range p.filled.all {
		s := p.lists[b].first
		if b == 0 {
			return s
		}
		st := &p.e.storages[s]
		score := p.nodes[s].rate - p.exponent*math.Log2(p.mirror.distance(now, st))
		if found == None || score < least {
			least, found = score, s
		}
	}
	return found
}

// bucketOf returns the list for a cost and its logarithm for each byte. The first is for what costs nothing.
func bucketOf(cost, rate float64) int {
	if cost <= 0 {
		return 0
	}
	return min(max(1+int(perOctave*(rate-lowest)), 1), buckets-1)
}

func (p *chainPolicy) insert(s Storage, cost float64) {
	rate := math.Log2(cost / float64(p.e.storages[s].size))
	b := bucketOf(cost, rate)
	l := &p.lists[b]
	p.nodes[s] = chainNode{cost: cost, rate: rate, known: p.nodes[s].known, prev: l.last, next: None, bucket: int16(b)}
	p.place(s, l)
	p.link(s, l)
	p.filled.set(b)
}

// place finds the neighbours of a storage in a list, from its end, or for what is first from its beginning. It looks at
// few of them: the order may be wrong for storages that were made again.
func (p *chainPolicy) place(s Storage, l *list) {
	n, at := &p.nodes[s], p.order(s)
	if l.first == None || at <= p.order(l.first) {
		n.prev, n.next = None, l.first
		return
	}
	for range maxPlaces {
		if n.prev == None || p.order(n.prev) <= at {
			return
		}
		n.prev, n.next = p.nodes[n.prev].prev, n.prev
	}
}

// order returns the place of a storage in its list: those that are not read again are first.
func (p *chainPolicy) order(s Storage) int64 {
	if st := &p.e.storages[s]; st.wanted > 0 {
		return st.used
	}
	return -1
}

// link makes the neighbours of a storage in a list point to it.
func (p *chainPolicy) link(s Storage, l *list) {
	n := &p.nodes[s]
	if n.prev == None {
		l.first = s
	} else {
		p.nodes[n.prev].next = s
	}
	if n.next == None {
		l.last = s
	} else {
		p.nodes[n.next].prev = s
	}
}

func (p *chainPolicy) remove(s Storage) {
	n := &p.nodes[s]
	l := &p.lists[n.bucket]
	if n.prev == None {
		l.first = n.next
	} else {
		p.nodes[n.prev].next = n.next
	}
	if n.next == None {
		l.last = n.prev
	} else {
		p.nodes[n.next].prev = n.prev
	}
	if l.first == None {
		p.filled.clear(int(n.bucket))
	}
	n.bucket = None
}
