package schedule

import "math"

// The policies of dynamic tensor rematerialization (Kirisame et al., ICLR 2021) evict the storage with the least
// cost / (size * staleness). They differ in the cost: of the storage alone, of its evicted neighbourhood, or of the
// equivalence classes of evicted storages next to it.

// stale returns a cost per byte and per time since the last access.
func (b *base) stale(cost int64, s *storage) float64 {
	cost = b.e.copyCost(cost, s)
	staleness := b.e.now - s.accessed
	if staleness <= 0 {
		return math.Inf(1)
	}
	return float64(cost) / (float64(s.size) * float64(staleness))
}

// dtrLocal is h_DTR local.
type dtrLocal struct{ base }

func (p *dtrLocal) victim(int64) Storage {
	return p.least(func(_ Storage, s *storage) float64 { return p.stale(s.cost, s) })
}

// dtrClasses is h_DTR with equivalence classes.
type dtrClasses struct {
	base
	classes classes
	seen    []int32
}

func (p *dtrClasses) attach(e *Engine) { p.e, p.classes.e = e, e }

func (p *dtrClasses) evicted(s Storage) { p.classes.insert(s) }

func (p *dtrClasses) restored(s Storage, _ bool) { p.classes.remove(s) }

func (p *dtrClasses) forgotten(s Storage) { p.classes.remove(s) }

func (p *dtrClasses) victim(int64) Storage {
	return p.least(func(id Storage, s *storage) float64 {
		var cost int64
		cost, p.seen = p.classes.around(id, p.seen)
		return p.stale(s.cost+cost, s)
	})
}

// dtrExact is h_DTR with exact neighbourhoods: the evicted storages from which a storage is made and those that are
// made from it, through evicted storages only.
type dtrExact struct {
	base
	known []int64 // the cost of the neighbourhood, or None
	mark  []int64 // the search that visited a storage last
	count int64
	queue []Storage
}

func (p *dtrExact) grow() {
	for len(p.known) < len(p.e.storages) {
		p.known = append(p.known, None)
		p.mark = append(p.mark, 0)
	}
}

// search visits the evicted storages around one in one direction, and the resident ones next to them.
func (p *dtrExact) search(from Storage, next func(Storage, func(Storage)), visit func(Storage, *storage)) {
	p.count++
	p.mark[from] = p.count
	p.queue = append(p.queue[:0], from)
	for len(p.queue) > 0 {
		s := p.queue[len(p.queue)-1]
		p.queue = p.queue[:len(p.queue)-1]
		next(s, func(n Storage) {
			if p.mark[n] == p.count {
				return
			}
			p.mark[n] = p.count
			st := &p.e.storages[n]
			visit(n, st)
			if !st.resident {
				p.queue = append(p.queue, n)
			}
		})
	}
}

// forgetAround forgets the costs of neighbourhoods that contain a storage.
func (p *dtrExact) forgetAround(s Storage) {
	p.grow()
	p.known[s] = None
	unknown := func(n Storage, _ *storage) { p.known[n] = None }
	p.search(s, p.e.parents, unknown)
	p.search(s, p.e.children, unknown)
}

func (p *dtrExact) evicted(s Storage)          { p.forgetAround(s) }
func (p *dtrExact) restored(s Storage, _ bool) { p.forgetAround(s) }
func (p *dtrExact) changed(s Storage)          { p.forgetAround(s) }
func (p *dtrExact) forgotten(s Storage)        { p.forgetAround(s) }

func (p *dtrExact) victim(int64) Storage {
	p.grow()
	return p.least(func(id Storage, s *storage) float64 {
		if p.known[id] == None {
			p.known[id] = 0
			add := func(_ Storage, st *storage) {
				if !st.resident {
					p.known[id] += st.cost
				}
			}
			p.search(id, p.e.parents, add)
			p.search(id, p.e.children, add)
		}
		return p.stale(s.cost+p.known[id], s)
	})
}
