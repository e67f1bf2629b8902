package pack

import (
	"math"
	"slices"
)

// patience is the number of steps without success that end a round. On the instances of testdata, 500 is worse and
// 10,000 is no better.
const patience = 2000

// improve searches for better orders by a walk and a climb, each with a maximum number of steps. They begin alternately
// at the best packing and at a greedy order, because the neighborhood of the best packing is soon exhausted.
func (p *packer) improve(turn, steps int) {
	begin := p.recall
	if turn%2 == 1 {
		begin = func() { p.sort(orders[p.rng.IntN(len(orders))]) }
	}
	for _, search := range []func(){p.walk, p.climb} {
		p.left = steps
		begin()
		search()
	}
}

// step reports whether another step is left, and counts it.
func (p *packer) step() bool {
	if p.left--; p.left < 0 || p.over() {
		return false
	}
	p.steps = max(p.steps-1, -1)
	return true
}

// walk repeatedly moves the first buffer without room to an earlier place.
func (p *packer) walk() {
	kept := 0 // the buffers before the moved one keep their offsets
	for tries := 0; tries < patience && p.step(); tries++ {
		stopped, _ := p.place(p.occupied.firstFit, kept, p.ceiling(), 0)
		if stopped == len(p.order) {
			p.keep()
			p.recall()
			kept, tries = 0, 0
			continue
		}
		if p.ctx.Err() != nil {
			return
		}
		kept = p.rng.IntN(stopped) // the first in the order always has room
		p.move(stopped, kept)
	}
}

// climb moves a buffer without room, and occasionally another one, to an earlier place. It reverts a move that leaves
// out more than before.
func (p *packer) climb() {
	var out []int // the buffers that the order leaves out; empty before its first placement
	least := int64(math.MaxInt64)
	for tries := 0; tries < patience/2 && p.step(); tries++ {
		from, to := 0, 0
		if len(out) > 0 {
			from = slices.Index(p.order, out[p.rng.IntN(len(out))])
			if p.rng.IntN(4) == 0 {
				from = p.rng.IntN(len(p.order))
			}
			to = p.rng.IntN(from + 1)
		}
		p.move(from, to)
		stopped, missing := p.place(p.occupied.firstFit, 0, p.ceiling(), least)
		if stopped < len(p.order) {
			p.move(to, from)
			continue
		}
		if missing == 0 {
			p.keep()
			p.recall()
			out, least, tries = out[:0], math.MaxInt64, 0
			continue
		}
		if missing < least {
			tries = 0
		}
		out, least = append(out[:0], p.out...), missing
	}
}

// move moves a buffer to another place of the order and shifts those between.
func (p *packer) move(from, to int) {
	i := p.order[from]
	if to < from {
		copy(p.order[to+1:from+1], p.order[to:from])
	} else {
		copy(p.order[from:to], p.order[from+1:to+1])
	}
	p.order[to] = i
}
