// Package waiting has requests that found no room wait until memory comes back.
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
	back chan struct{} // closed when memory comes back; nil while nobody waits
}

// Wake has those who wait ask again. It is called after memory came back. While nobody waits it costs one load.
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
