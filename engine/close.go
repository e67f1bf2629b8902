package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/tensor"
)

// An AliveError lists what was still open or unreleased at Close. It matches ErrAlive, and tensor.ErrLeaked if there
// are tensors.
type AliveError struct {
	Sessions []string      // where unclosed sessions were opened: "main.go:12"
	Events   []string      // unended events of these sessions: "attention of the session opened at main.go:12"
	Tensors  []DeviceLeaks // unreleased tensors, by device
}

// DeviceLeaks are the tensors of a device that were alive at Close.
type DeviceLeaks struct {
	Device int
	Leaks  tensor.Leaks // with the call sites that made them, if Config.Compute.Sites is set
}

func (e *AliveError) Error() string {
	var b strings.Builder
	b.WriteString(ErrAlive.Error())
	for _, at := range e.Sessions {
		fmt.Fprintf(&b, "\n  the session opened at %s", at)
	}
	for _, event := range e.Events {
		fmt.Fprintf(&b, "\n  the event %s", event)
	}
	for _, d := range e.Tensors {
		fmt.Fprintf(&b, "\n  tensors on device %d: %v", d.Device, d.Leaks)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrAlive) true.
func (e *AliveError) Is(target error) bool {
	return target == ErrAlive || (target == tensor.ErrLeaked && len(e.Tensors) > 0)
}

// Close closes the engine, in this order:
//
//   - New calls fail with ErrClosed, and so do calls of EachDevice of which no task has begun.
//   - Close waits for the other tasks, for sessions inside a scope, for the communicators, which stop waiting for a
//     missing rank after collective.Config.Timeout, and for the work queued on the devices.
//   - Everything is closed, open sessions too. Open sessions and unreleased tensors are reported in an *AliveError.
//
// Close does not wait for a session between two calls. A goroutine that uses a session or a place while another closes
// the engine should do so inside a scope; otherwise its next call may fail with ErrClosed.
//
// If ctx ends while Close waits, nothing more is closed: the error says what it waited for, and Close may be called
// again to continue. So pass a context of its own, not the one whose end stopped the program. Close panics inside a
// scope of one of the engine's sessions, since it would wait for itself. Closing a closed engine is a no-op.
func (e *Engine) Close(ctx context.Context) error {
	for _, s := range e.sessionsOpen() {
		if s.guard.inside() {
			panic(fmt.Sprintf("engine: Engine.Close at %v inside %s", callsite.Here(), s.guard.text()))
		}
	}
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	select {
	case e.closeToken <- struct{}{}: // if it is free, even when ctx has ended
	default:
		select {
		case e.closeToken <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("engine: Close: another is under way: %w", context.Cause(ctx))
		}
	}
	defer func() { <-e.closeToken }()
	if e.closed {
		return nil
	}
	if err := e.workers.stop(ctx); err != nil {
		return err
	}
	for _, s := range e.sessionsOpen() {
		if err := s.waitIdle(ctx); err != nil {
			return err
		}
	}
	if err := e.communicators.close(ctx); err != nil {
		// before drain: it ends queued work that waits for a missing rank
		return err
	}
	if err := e.drain(ctx); err != nil {
		return err
	}
	return errors.Join(errors.Join(e.closeErrs...), e.communicators.err, e.close())
}

// sessionsOpen returns the sessions that are open.
func (e *Engine) sessionsOpen() []*Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.sessions)
}

// waitIdle closes the session's guard, and waits until no goroutine is inside, or ctx ends.
func (s *Session) waitIdle(ctx context.Context) error {
	empty := s.guard.close()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine: Close: the session opened at %v is still inside %s: %w", s.opened, s.guard.text(),
			context.Cause(ctx))
	}
}

// drain waits for the work on the default streams and on all streams that sessions have used, or until ctx ends, which
// is the error. Devices report an error of queued work once: closeErrs keeps it for the Close that completes.
func (e *Engine) drain(ctx context.Context) error {
	for _, d := range e.devices {
		d.mu.Lock()
		streams := append([]driver.Stream{d.place.Stream()}, d.usedStreams...)
		d.mu.Unlock()
		for _, s := range streams {
			if s == nil {
				continue
			}
			err := s.Sync(ctx)
			switch {
			case err == nil, errors.Is(err, driver.ErrClosed):
			case ctx.Err() != nil && errors.Is(err, ctx.Err()):
				return fmt.Errorf("engine: Close: work on device %d is not done: %w", d.index, context.Cause(ctx))
			default:
				e.closeErrs = append(e.closeErrs, fmt.Errorf("engine: Close: device %d: %w", d.index, err))
			}
		}
	}
	return nil
}

// close closes everything, and continues after errors. The engine is not in use any more, or Open has not returned it.
func (e *Engine) close() error {
	alive := &AliveError{}
	var errs []error
	for _, s := range e.sessionsOpen() {
		if !s.userClosed.Load() {
			alive.Sessions = append(alive.Sessions, s.opened.String())
		}
		for _, event := range s.events.close() {
			alive.Events = append(alive.Events, fmt.Sprintf("%s of the session opened at %v", event, s.opened))
		}
		errs = append(errs, s.close())
	}
	for _, d := range e.devices {
		d.allocator.close()
		if leaks := d.place.Leaks(); leaks.Count > 0 {
			alive.Tensors = append(alive.Tensors, DeviceLeaks{d.index, leaks})
		}
		errs = append(errs, d.close())
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	if len(alive.Sessions)+len(alive.Events)+len(alive.Tensors) > 0 {
		errs = append([]error{alive}, errs...)
	}
	return errors.Join(errs...)
}

// close closes a device, whose allocator is closed, and everything made on it.
func (d *device) close() error {
	var errs []error
	for _, k := range d.caches.all() {
		if err := d.caches.release(k); err != nil {
			errs = append(errs, fmt.Errorf("engine: Close: device %d: %w", d.index, err))
		}
	}
	for _, err := range []error{d.recorder.Close(), d.streams.Close(), d.inner.Close(), d.device.Close()} {
		if err != nil {
			errs = append(errs, fmt.Errorf("engine: Close: device %d: %w", d.index, err))
		}
	}
	return errors.Join(errs...)
}
