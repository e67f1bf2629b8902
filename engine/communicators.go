package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/collective"
)

// communicators are those of an engine's devices: the one of Config.Distribution, or one for each device, made at the
// first request.
type communicators struct {
	mu     sync.Mutex
	list   []*collective.Communicator // by the device's number
	closed bool                       // none is made or returned any more
	done   chan struct{}              // closed when all are closed; nil before Close, and if there are none
	err    error                      // of closing them; readable then
}

// join connects to the other ranks of a distribution.
func (e *Engine) join(ctx context.Context, c collective.Config) error {
	made, err := collective.Join(ctx, e.devices[0].place, c)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.communicators.list = []*collective.Communicator{made}
	return nil
}

// Communicator returns a device's communicator: with the other ranks of Config.Distribution or, without one, with the
// other devices of this engine, whose numbers are the ranks. One goroutine at a time uses it, that of the device (see
// EachDevice). Pass the place of a session to its operations. The engine closes it. A rank that fails must call Abort,
// or the others may wait for it. EachDevice calls Abort for a task that panics, but not for one that returns an error;
// the other ranks' operations end with a context only in Communicator.Wait.
func (e *Engine) Communicator(i int) (*collective.Communicator, error) {
	e.at("Communicator", i)
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	return e.communicator(i)
}

func (e *Engine) communicator(i int) (*collective.Communicator, error) {
	e.communicators.mu.Lock()
	defer e.communicators.mu.Unlock()
	if e.communicators.closed {
		return nil, ErrClosed
	}
	if e.communicators.list == nil {
		made, err := collective.Config{Libraries: e.config.NCCL}.Local(e.places()...)
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		e.communicators.list = made
	}
	return e.communicators.list[i], nil
}

// Communicator is Engine.Communicator of the current device. Inside a scope it also works while Engine.Close waits for
// the scope, since other ranks may wait for this one.
func (s *Session) Communicator() (*collective.Communicator, error) {
	if err := s.enter("Communicator"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	return s.engine.communicator(int(s.current.Load()))
}

// abort aborts the communicator of a device whose task panicked, so that other ranks stop waiting for it.
func (r *communicators) abort(device int, cause error) {
	r.mu.Lock()
	made := r.list
	r.mu.Unlock()
	if made != nil {
		made[device].Abort(cause)
	}
}

// close closes all communicators at the same time, since they wait for each other and for other ranks. The error says
// that ctx ended first; then close may be called again.
func (r *communicators) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	if r.list == nil {
		r.mu.Unlock()
		return nil
	}
	if r.done == nil {
		r.done = make(chan struct{})
		go r.closeAll()
	}
	r.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine: Close: the communicators wait for other ranks: %w", context.Cause(ctx))
	}
}

func (r *communicators) closeAll() {
	defer close(r.done)
	errs := make([]error, len(r.list))
	var all sync.WaitGroup
	for i, c := range r.list {
		all.Go(func() { errs[i] = c.Close() })
	}
	all.Wait()
	r.err = errors.Join(errs...)
}
