package collective

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// Close waits for queued work and closes the communicator. All ranks must call it. Each waits for the others, at most
// for Config.Timeout; after that, the first rank that has not called Close counts as lost on all ranks. Ranks of one
// process do not wait for each other, so that one goroutine may close them in turn: close all of them before any of
// their places. The error is that of Err. Closing twice is not an error.
func (c *Communicator) Close() error {
	c.mu.Lock()
	first := c.closed == nil
	if first {
		c.closed = make(chan struct{})
	}
	closed := c.closed
	c.mu.Unlock()
	if !first {
		<-closed
		return c.final
	}
	final := c.shutDown()
	c.mu.Lock()
	c.final = final
	c.mu.Unlock()
	close(closed)
	return final
}

func (c *Communicator) shutDown() error {
	late := fmt.Errorf("rank %d closed, and not all others had after %v", c.Rank(), c.config.Timeout)
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.config.Timeout, late)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.member.Overdue(late) })() // aborts the work that this waits for
	c.member.Closing()
	c.mu.Lock()
	streams := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	var broken error
	for _, s := range streams {
		if err := s.Sync(ctx); !errors.Is(err, driver.ErrClosed) { // a closed stream has completed its work
			broken = errors.Join(broken, err)
		}
	}
	if ctx.Err() != nil {
		c.member.Overdue(late) // do not leave with unfinished work
	}
	if c.local {
		c.markDone()
		c.member.Depart()
	} else if c.awaitOutcome(ctx) == nil && c.member.Leave(ctx) == nil { // otherwise the error is that of the member
		c.markDone()
	} else if ctx.Err() != nil {
		c.member.Overdue(late)
	}
	err := c.Err()
	broken = errors.Join(broken, c.transport.Close())
	if err == nil && broken != nil {
		err = fmt.Errorf("collective: Close: %w", broken)
	}
	c.member.Close()
	close(c.ended)
	c.tasks.Wait()
	return err
}

// markDone records that this rank no longer needs the others.
func (c *Communicator) markDone() {
	c.mu.Lock()
	c.done = true
	c.mu.Unlock()
}
