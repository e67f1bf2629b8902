// Package waiting lets requests without room wait until memory is freed.
package waiting

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Gate is where requests wait. The zero Gate is ready for use. It is safe for concurrent use, and its lock is a leaf.
type Gate struct {
	waiting atomic.Int32

	mu   sync.Mutex
	back chan struct{} // closed when memory is freed; nil while no request waits
}

// Wake makes waiting requests try again. It is called after memory was freed. While no request waits it costs one load.
func (g *Gate) Wake() {
	if g.waiting.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.back != nil {
		close(g.back)
		g.back = nil
	}
}

// Wait calls attempt at once, and again after each Wake, until attempt returns true. If ctx ends first, Wait returns
// its cause. A Wake during an attempt is not lost: another attempt follows.
func (g *Gate) Wait(ctx context.Context, attempt func() bool) error {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	for {
		back := g.next()
		if attempt() {
			return nil
		}
		select {
		case <-back:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// next returns a channel that the next Wake closes.
func (g *Gate) next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.back == nil {
		g.back = make(chan struct{})
	}
	return g.back
}
