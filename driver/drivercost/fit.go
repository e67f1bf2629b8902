package drivercost

import "math"

// A sample is a cost at a size, both in any unit.
type sample struct{ size, cost float64 }

// fitLine returns the fixed cost and the cost per unit of size that fit the samples best. It minimizes the sum of the
// squares of the relative errors, so that small sizes count as much as large ones. Neither result is negative. If all
// samples have one size, the whole cost is fixed. Costs of 0 are ignored.
func fitLine(samples []sample) (fixed, per float64) {
	var w, wx, wy, wxx, wxy float64
	for _, s := range samples {
		if s.cost <= 0 {
			continue
		}
		weight := 1 / (s.cost * s.cost)
		w += weight
		wx += weight * s.size
		wy += weight * s.cost
		wxx += weight * s.size * s.size
		wxy += weight * s.size * s.cost
	}
	if w == 0 {
		return 0, 0
	}
	if spread := w*wxx - wx*wx; spread > 1e-12*w*wxx { // otherwise all sizes are equal, except for rounding
		per = (w*wxy - wx*wy) / spread
	}
	switch fixed = (wy - per*wx) / w; {
	case per < 0:
		return wy / w, 0
	case fixed < 0:
		return 0, wxy / wxx
	}
	return fixed, per
}

// ascending makes costs ascend with the least change: it replaces descending neighbours by their mean, repeatedly (pool
// adjacent violators). It changes costs in place.
func ascending(costs []float64) {
	type pool struct {
		sum float64
		n   int
	}
	mean := func(p pool) float64 { return p.sum / float64(p.n) }
	var pools []pool
	for _, c := range costs {
		p := pool{c, 1}
		for len(pools) > 0 && mean(pools[len(pools)-1]) > mean(p) {
			last := pools[len(pools)-1]
			p.sum += last.sum
			p.n += last.n
			pools = pools[:len(pools)-1]
		}
		pools = append(pools, p)
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			costs[i] = math.Round(mean(p))
			i++
		}
	}
}
