package pack

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// search runs the two searches at the same time: the turns of p, and a rebuilder. With a limited number of steps, each
// takes that many and neither depends on the other, so the result is the same each time. Without a limit they exchange
// their best packings, and both stop when one reaches the proved minimum.
func (p *packer) search(o Options) {
	if p.over() {
		return
	}
	ctx := &stoppable{Context: p.ctx}
	p.ctx = ctx
	if o.Steps < 0 {
		p.shared = &exchange{}
	}
	b := newRebuilder(p, rand.New(rand.NewPCG(o.Seed, 1)))
	var both sync.WaitGroup
	both.Go(func() {
		b.rounds()
		p.shared.swap(&b.best)
		if o.Steps < 0 && b.done() {
			ctx.stopped.Store(true)
		}
	})
	p.turns()
	p.shared.swap(&p.best)
	if p.best.Height <= p.best.Least {
		ctx.stopped.Store(true)
	}
	both.Wait()
	p.best.Least = max(p.best.Least, b.best.Least)
	if b.best.Height < p.best.Height {
		p.best.Offsets, p.best.Height = b.best.Offsets, b.best.Height
	}
}

// stoppable is a context that one of the searches may end for both.
type stoppable struct {
	context.Context
	stopped atomic.Bool
}

func (c *stoppable) Err() error {
	if c.stopped.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// An exchange holds the best packing of both searches. A nil exchange holds none.
type exchange struct {
	mu   sync.Mutex
	best Result
}

// swap replaces the worse of two packings by the better one, and the lower of two proved minima by the higher one.
func (x *exchange) swap(r *Result) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	least := max(x.best.Least, r.Least)
	if x.best.Offsets == nil || r.Height < x.best.Height {
		x.best = Result{Offsets: slices.Clone(r.Offsets), Height: r.Height, Bound: r.Bound}
	} else if x.best.Height < r.Height {
		copy(r.Offsets, x.best.Offsets)
		r.Height = x.best.Height
	}
	x.best.Least, r.Least = least, least
}
