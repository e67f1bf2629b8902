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

// watch aborts the transport when a rank is lost, and tells the others when the transport finds that it cannot go on.
func (c *Communicator) watch() {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-c.member.Lost():
			c.transport.Abort(c.Err())
			return
		case <-poll.C:
			c.look()
		case <-c.ended:
			return
		}
	}
}

// look asks the transport whether something went wrong, tells the others if so, and reports it. That a link to a rank ended
// is a suspicion, since that rank may have given up because of a third, and so is an error without a rank: NCCL gives one
// when another rank has died.
func (c *Communicator) look() bool {
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

// settle returns what is wrong with the communicator, nil if nothing is. If the transport has found something it waits for
// what the ranks agree on.
func (c *Communicator) settle(ctx context.Context) error {
	if c.member.Err() == nil && c.look() {
		select {
		case <-c.member.Lost():
		case <-c.member.Left(): // what happens then harms nobody
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return c.Err()
}

// Err returns what ended the communicator, or nil: a *RankError, or what this rank itself found (an error that matches
// ErrMismatch, or the transport's). It does not wait, and may be behind what has happened: see Wait. After Close it is what
// Close returned.
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
		return fmt.Errorf("collective: rank %d can go on no more: %w", c.Rank(), own)
	}
	return public(err)
}

// usable returns why nothing can be queued, or nil.
func (c *Communicator) usable() error {
	c.mu.Lock()
	over := c.closed != nil
	c.mu.Unlock()
	if over {
		return ErrClosed
	}
	return c.Err()
}

// Wait waits until the work on p's stream is done (see Place.Sync), or ctx ends; nil is the communicator's own place. If a
// rank was lost, meanwhile or before, the error is what Err returns.
func (c *Communicator) Wait(ctx context.Context, p *tensor.Place) error {
	if p == nil {
		p = c.place
	}
	err := p.Sync(ctx)
	if failed := c.settle(ctx); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("collective: Wait: %w", err)
	}
	return nil
}

// Barrier waits until every rank has called it as often as this one, or ctx ends; this rank has come all the same then. It
// does not wait for queued work: Wait does. The error matches ErrClosed if this rank closes meanwhile.
func (c *Communicator) Barrier(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := c.member.Barrier(ctx); err != nil {
		if failed := c.usable(); failed != nil { // Close ends a Barrier too
			return failed
		}
		return fmt.Errorf("collective: Barrier: %w", err)
	}
	return nil
}
