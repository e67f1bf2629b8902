package bfc

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
)

// await returns a channel that is closed when memory comes back. The lock is held, so nothing comes back between an attempt
// and this.
func (a *Allocator) await() <-chan struct{} {
	if a.returned == nil {
		a.returned = make(chan struct{})
	}
	return a.returned
}

// wake has those who wait look again. The lock is held.
func (a *Allocator) wake() {
	if a.returned != nil {
		close(a.returned)
		a.returned = nil
	}
}

// persist asks again whenever memory came back, and a last time when the context ends.
func (a *Allocator) persist(w *want, freedBefore func() uint64, patience func() (context.Context, context.CancelFunc), freed <-chan struct{}) (b mem.Block, err error) {
	ctx, cancel := patience()
	defer cancel()
	for freed != nil {
		select {
		case <-freed:
			b, freed, err = a.attempt(w, freedBefore, false)
		case <-ctx.Done():
			if b, _, err = a.attempt(w, freedBefore, true); err != nil {
				err = fmt.Errorf("bfc: waited for memory: %w: %w", context.Cause(ctx), err)
			}
			return b, err
		}
	}
	return b, err
}
