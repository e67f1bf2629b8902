package pack

import (
	"math"
	"slices"
)

// patience is how many steps without success end a round. On the instances of testdata 500 is worse, 10,000 no better.
const patience = 2000

// improve looks for better orders, by a walk and a climb of so many steps at the most. They begin at the best packing and
// at one of the greedy orders by turns: what is near the best is soon known.
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

// step says whether there is another step, and takes it.
func (p *packer) step() bool {
	if p.left--; p.left < 0 || p.over() {
		return false
	}
	p.steps = max(p.steps-1, -1)
	return true
}

// walk moves whichever buffer finds no room first to an earlier place.
func (p *packer) walk() {
	kept := 0 // what stands before the moved buffer keeps its offset
	for tries := 0; tries < patience && p.step(); tries++ {
		stopped, _ := p.place(p.shelf.firstFit, kept, p.ceiling(), 0)
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

// climb moves a buffer that finds no room, and now and then another, to an earlier place, and takes back what leaves out more
// than before.
func (p *packer) climb() {
	var out []int // what the order leaves out; nothing before the first look at it
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
		stopped, missing := p.place(p.shelf.firstFit, 0, p.ceiling(), least)
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

// move takes the buffer at one place of the order to another; those between make way.
func (p *packer) move(from, to int) {
	i := p.order[from]
	if to < from {
		copy(p.order[to+1:from+1], p.order[to:from])
	} else {
		copy(p.order[from:to], p.order[from+1:to+1])
	}
	p.order[to] = i
}
