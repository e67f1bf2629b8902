package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/collective/internal/ring"
	"github.com/ashlar-go/ashlar/tensor"
)

// watch aborts the transport when a rank is lost, and tells the other ranks when the transport fails.
func (c *Communicator) watch() {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-c.member.Lost():
			c.transport.Abort(c.Err())
			return
		case <-poll.C:
			c.checkTransport()
		case <-c.ended:
			return
		}
	}
}

// checkTransport reports whether the transport has failed, and if so tells the other ranks. The end of a link to a rank
// is only a suspicion, since that rank may have stopped because of a third one. So is an error that names no rank: NCCL
// returns one when another rank has died.
func (c *Communicator) checkTransport() bool {
	err := c.transport.Err()
	if err == nil {
		return false
	}
	c.mu.Lock()
	over := c.done
	if c.own == nil && !over {
		c.own = err
	}
	c.mu.Unlock()
	if over {
		return false
	}
	link, differ := (*ring.LinkError)(nil), (*ring.MismatchError)(nil)
	switch {
	case errors.As(err, &link):
		c.member.Suspect(link.Peer, err)
	case errors.As(err, &differ):
		c.member.Fail(differ, mismatch)
	default:
		c.member.Suspect(c.Rank(), err)
	}
	return true
}

// awaitOutcome returns the communicator's error, if any. If the transport has failed, it waits until the ranks agree on
// the cause.
func (c *Communicator) awaitOutcome(ctx context.Context) error {
	if c.member.Err() == nil && c.checkTransport() {
		select {
		case <-c.member.Lost():
		case <-c.member.Left(): // all ranks have left: later errors do not matter
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return c.Err()
}

// Err returns the error that ended the communicator, or nil: a *RankError, an error that matches ErrMismatch, or an
// error of the transport. It does not wait, so it may not know of a failure yet: see Wait. After Close it returns the
// error of Close.
func (c *Communicator) Err() error {
	c.mu.Lock()
	over, final, own := c.closed, c.final, c.own
	c.mu.Unlock()
	if over != nil {
		select {
		case <-over:
			return final
		default:
		}
	}
	err := c.member.Err()
	if lost := (*rendezvous.LostError)(nil); errors.As(err, &lost) && lost.Rank == c.Rank() && own != nil {
		return fmt.Errorf("collective: rank %d failed: %w", c.Rank(), own)
	}
	return publicError(err)
}

// usable returns an error if no operation can be queued.
func (c *Communicator) usable() error {
	c.mu.Lock()
	over := c.closed != nil
	c.mu.Unlock()
	if over {
		return ErrClosed
	}
	return c.Err()
}

// Wait waits until the work on p's stream is done (see Place.Sync), or ctx ends; a nil p is the communicator's own
// place. If a rank was lost, the error is that of Err.
func (c *Communicator) Wait(ctx context.Context, p *tensor.Place) error {
	if p == nil {
		p = c.place
	}
	err := p.Sync(ctx)
	if failed := c.awaitOutcome(ctx); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("collective: Wait: %w", err)
	}
	return nil
}

// Barrier waits until every rank has called it as often as this one, or ctx ends; then this call still counts. It does
// not wait for queued work: Wait does. The error matches ErrClosed if this rank closes before Barrier returns.
func (c *Communicator) Barrier(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := c.member.Barrier(ctx); err != nil {
		if failed := c.usable(); failed != nil { // Close ends a Barrier, too
			return failed
		}
		return fmt.Errorf("collective: Barrier: %w", err)
	}
	return nil
}
