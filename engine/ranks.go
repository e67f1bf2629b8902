package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/collective"
)

// ranks are the communicators of an engine's devices: that of Config.Distribution, or, made when the first is asked for, one
// for each device, among themselves.
type ranks struct {
	mu     sync.Mutex
	made   []*collective.Communicator // by the device's number
	closed bool                       // none is made or handed out any more
	gone   chan struct{}              // closed when all are closed; nil before Close, and if there are none
	err    error                      // of closing them; readable then
}

// join meets the other ranks.
func (e *Engine) join(ctx context.Context, c collective.Config) error {
	made, err := collective.Join(ctx, e.devices[0].place, c)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.ranks.made = []*collective.Communicator{made}
	return nil
}

// Communicator returns what lets a device work together with others: with the other ranks, if Config.Distribution was given,
// or else with the other devices of this engine, whose numbers are the ranks. It is used by one goroutine at a time, that of the
// device (see EachDevice); its operations take the place of a session. The engine closes it. A rank that cannot go on calls
// its Abort, or the others may wait for it: a task of EachDevice that panics has it called, one that returns an error does
// not, and what the others wait for ends with their context only in Communicator.Wait.
func (e *Engine) Communicator(i int) (*collective.Communicator, error) {
	e.at("Communicator", i)
	if err := e.open(); err != nil {
		return nil, err
	}
	return e.communicator(i)
}

func (e *Engine) communicator(i int) (*collective.Communicator, error) {
	e.ranks.mu.Lock()
	defer e.ranks.mu.Unlock()
	if e.ranks.closed {
		return nil, ErrClosed
	}
	if e.ranks.made == nil {
		made, err := collective.Config{Libraries: e.config.NCCL}.Local(e.places()...)
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		e.ranks.made = made
	}
	return e.ranks.made[i], nil
}

// Communicator is Engine.Communicator of the current device. Inside a scope it is there while Close is under way, too: other
// ranks may count on this one.
func (s *Session) Communicator() (*collective.Communicator, error) {
	if err := s.enter("Communicator"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	return s.engine.communicator(int(s.current.Load()))
}

// abort ends what other ranks wait for from a device whose task panicked.
func (r *ranks) abort(device int, cause error) {
	r.mu.Lock()
	made := r.made
	r.mu.Unlock()
	if made != nil {
		made[device].Abort(cause)
	}
}

// close closes the communicators, all at once, since they wait for each other and for other ranks. The error says that ctx
// ended first; close may be called again then.
func (r *ranks) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	if r.made == nil {
		r.mu.Unlock()
		return nil
	}
	if r.gone == nil {
		r.gone = make(chan struct{})
		go r.closeAll()
	}
	r.mu.Unlock()
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine: Close: the communicators wait for other ranks: %w", context.Cause(ctx))
	}
}

func (r *ranks) closeAll() {
	defer close(r.gone)
	errs := make([]error, len(r.made))
	var all sync.WaitGroup
	for i, c := range r.made {
		all.Go(func() { errs[i] = c.Close() })
	}
	all.Wait()
	r.err = errors.Join(errs...)
}
