// Package waiting lets requests without room wait until memory is freed.
package waiting

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// A Gate is where requests wait. The zero Gate is ready for use. It is safe for concurrent use, and its lock is a leaf.
//
// After each Wake every waiting request tries again: one after another, and first the one that has waited longest, so
// that none waits for ever while later ones find room.
type Gate struct {
	waiting atomic.Int32

	mu    sync.Mutex
	queue []*waiter // in the order in which they came
	wakes uint64
	busy  bool // one of them has the turn
}

// A waiter is a request that waits.
type waiter struct {
	tried uint64        // the number of Wakes that its attempts followed
	turn  chan struct{} // holds a value once it has the turn
}

// Wake makes waiting requests try again. It is called after memory was freed. While no request waits it costs one load.
func (g *Gate) Wake() {
	if g.waiting.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakes++
	g.next()
}

// Wait calls attempt at once, and again after each Wake, until attempt returns true. If ctx ends first, Wait returns
// its cause. A Wake during an attempt is not lost: another attempt follows. Apart from the attempts at once, attempts
// do not overlap.
func (g *Gate) Wait(ctx context.Context, attempt func() bool) error {
	w := g.enter()
	hasTurn := false
	defer func() { g.leave(w, hasTurn) }() // attempt may panic
	for {
		if attempt() {
			return nil
		}
		if hasTurn {
			g.pass()
			hasTurn = false
		}
		select {
		case <-w.turn:
			hasTurn = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *Gate) enter() *waiter {
	g.waiting.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &waiter{tried: g.wakes, turn: make(chan struct{}, 1)}
	g.queue = append(g.queue, w)
	return w
}

func (g *Gate) leave(w *waiter, hasTurn bool) {
	g.waiting.Add(-1)
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	g.queue = slices.Delete(g.queue, i, i+1)
	if hasTurn || len(w.turn) > 0 {
		g.busy = false
		g.next()
	}
}

// pass ends a turn.
func (g *Gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = false
	g.next()
}

// next gives the turn to the first request that has not tried since the last Wake, unless one has it.
func (g *Gate) next() {
	if g.busy {
		return
	}
	for _, w := range g.queue {
		if w.tried < g.wakes {
			w.tried, g.busy = g.wakes, true
			w.turn <- struct{}{}
			return
		}
	}
}
