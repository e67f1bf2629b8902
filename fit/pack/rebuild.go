package pack

import (
	"context"
	"math/rand/v2"
	"slices"
)

// A rebuilder searches beside the turns of a packer. It makes packings anew along their skylines, each for a lower
// ceiling, and repairs those that reach above it. For a few hundred buffers it also searches upwards for a packing at
// the proved minimum.
type rebuilder struct {
	ctx      context.Context
	buffers  []Buffer
	unit     int64
	best     Result
	shared   *exchange
	steps    int // remaining steps; negative for no limit
	skyline  *skyline
	repairer *repairer

	exact *exactSearch // at the capacity asked; nil if there is none
	asked int64
	hard  bool // the last packing missed its ceiling
}

// upwardsMost is the maximum number of buffers of a search upwards: more take too long for a node.
const upwardsMost = 1024

func newRebuilder(p *packer, rng *rand.Rand) *rebuilder {
	b := &rebuilder{ctx: p.ctx, buffers: p.buffers, unit: p.unit, best: p.best, shared: p.shared, steps: p.steps}
	b.best.Offsets = slices.Clone(p.best.Offsets)
	if b.skyline = newSkyline(p.buffers, p.items); b.skyline != nil {
		b.repairer = newRepairer(p.buffers, rng)
	}
	return b
}

// done reports whether the best packing is optimal or ctx has ended.
func (b *rebuilder) done() bool { return b.best.Height <= b.best.Least || b.ctx.Err() != nil }

// over reports whether the search is over.
func (b *rebuilder) over() bool { return b.steps == 0 || b.done() }

// spend takes steps.
func (b *rebuilder) spend(steps int) {
	if b.steps > 0 {
		b.steps = max(0, b.steps-steps)
	}
}

// rounds searches in rounds, each longer than the last.
func (b *rebuilder) rounds() {
	upwards := len(b.buffers) <= upwardsMost
	if b.skyline == nil && !upwards {
		return
	}
	share := 256 // in steps
	for round := 0; !b.over(); round++ {
		b.shared.swap(&b.best)
		if upwards {
			b.atLeast(share)
		}
		if b.skyline != nil {
			b.rebuild(round, share)
		}
		if share < 1<<30 {
			share += share / 2
		}
	}
}

// atLeast searches upwards for a packing at the proved minimum.
func (b *rebuilder) atLeast(steps int) {
	if b.over() {
		return
	}
	if b.exact == nil || b.asked != b.best.Least {
		b.asked = b.best.Least
		b.exact, _ = newExactSearch(b.buffers, b.asked)
		if b.exact == nil {
			return // the sizes are too large
		}
		b.exact.upwards()
	}
	if b.exact.floors != nil {
		return // lifetimes are long: a node takes too much time
	}
	if b.steps >= 0 {
		steps = min(steps, b.steps)
	}
	before := b.exact.nodes
	answer := b.exact.search(b.ctx, nodesPerStep*int64(steps))
	b.spend(int((b.exact.nodes-before)/nodesPerStep) + 1)
	switch answer {
	case exactNone:
		b.best.Least += b.unit
	case exactFound:
		for i, it := range b.exact.items {
			b.best.Offsets[it.index] = b.exact.offset[i]
		}
		b.best.Height = b.asked
	}
}

// rebuildOrders are the orders of the packings along the skyline, the most successful first.
var rebuildOrders = []order{orders[2], orders[1], orders[4], orders[5], orders[0]}

const (
	repairMoves  = 2000 // moves of a repair; those that succeed take fewer
	movesPerStep = 64   // this many moves take about as long as placing the buffers in an order
	repairMost   = 0.05 // the largest share of the buffers that a repair takes out at first
)

// rebuild makes a packing for a ceiling, and repairs it and the best one.
func (b *rebuilder) rebuild(round, share int) {
	ceiling := b.ceiling(round)
	rule := choice((round/len(rebuildOrders) + int(byLeastSlack)) % int(choices))
	if b.over() || !b.skyline.build(b.ctx, ceiling, rebuildOrders[round%len(rebuildOrders)], rule) {
		return
	}
	b.spend(1)
	b.keep(b.skyline.offsets)
	b.hard = b.best.Height > ceiling
	for _, offsets := range [][]int64{b.skyline.offsets, b.best.Offsets} {
		if b.best.Height <= ceiling || b.over() {
			return
		}
		if b.repairer.begin(offsets, ceiling) > repairMost {
			continue
		}
		if b.repairer.repair(b.ctx, max(repairMoves, share)) {
			b.keep(b.repairer.offsets)
		}
		b.spend(b.repairer.moves/movesPerStep + 1)
	}
}

// ceiling returns the ceiling of a round: between the proved minimum and the best height, but not far above.
func (b *rebuilder) ceiling(round int) int64 {
	least := b.best.Least
	gap := min(b.best.Height-b.unit-least, least/64)
	if !b.hard {
		return least + gap/4
	}
	return least + gap/8*[]int64{4, 6, 2, 7, 5, 3, 1}[round%7]
}

// keep makes the offsets the best packing if they are lower.
func (b *rebuilder) keep(offsets []int64) {
	var height int64
	for i, x := range b.buffers {
		height = max(height, offsets[i]+x.Size)
	}
	if height < b.best.Height {
		copy(b.best.Offsets, offsets)
		b.best.Height = height
	}
}
