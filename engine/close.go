package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/tensor"
)

// An AliveError is what Close found alive. It matches ErrAlive, and tensor.ErrLeaked if there are tensors.
type AliveError struct {
	Sessions []string      // where those were opened that nobody closed, "main.go:12"
	Events   []string      // that had not ended, of sessions that Engine.Close closed: "attention of the session opened at main.go:12"
	Tensors  []DeviceLeaks // what was made and not released, on the devices that have such
}

// DeviceLeaks are the tensors of a device that were alive at Close.
type DeviceLeaks struct {
	Device int
	Leaks  tensor.Leaks // with the places that made them, if Config.Compute.Sites
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

// Close ends the engine, in this order: what is new is refused with ErrClosed, and so are calls of EachDevice of which no task
// has begun; it waits for the other tasks, for the sessions that are inside a scope, for the communicators to close (which give
// up what waits for a rank that does not come, after collective.Config.Timeout), and for the work queued on the devices; then
// everything is closed. Sessions that are still open are closed, too, and reported with the tensors that nobody released in an
// *AliveError; all else is closed all the same. Nobody waits for a session that is between two calls: whoever uses one, or a
// place, while another closes the engine, does so inside a scope, or finds it closed in the middle of what it does.
//
// If ctx ends while Close waits, nothing more is closed: the error says what it waited for, and Close may be called again to go
// on. So it takes a context of its own, not the one whose end made the program stop. Inside a scope of one of its sessions it
// panics: it would wait for itself. Closing a closed engine is nothing.
func (e *Engine) Close(ctx context.Context) error {
	for _, s := range e.sessionsOpen() {
		if s.guard.inside() {
			panic(fmt.Sprintf("engine: Engine.Close at %v inside %s", here(), s.guard.text()))
		}
	}
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	select {
	case e.turn <- struct{}{}: // at once if it is free, whatever ctx says
	default:
		select {
		case e.turn <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("engine: Close: another is under way: %w", context.Cause(ctx))
		}
	}
	defer func() { <-e.turn }()
	if e.closed {
		return nil
	}
	if err := e.workers.stop(ctx); err != nil {
		return err
	}
	for _, s := range e.sessionsOpen() {
		if err := s.vacate(ctx); err != nil {
			return err
		}
	}
	if err := e.ranks.close(ctx); err != nil { // first: queued work may wait for a rank that was refused, until this ends it
		return err
	}
	if err := e.drain(ctx); err != nil {
		return err
	}
	return errors.Join(errors.Join(e.found...), e.ranks.err, e.close())
}

// sessionsOpen returns the sessions that are open.
func (e *Engine) sessionsOpen() []*Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.sessions)
}

// vacate lets nobody enter the session any more, and waits until nobody is inside, or ctx ends.
func (s *Session) vacate(ctx context.Context) error {
	empty := s.guard.close()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine: Close: the session opened at %v is still inside %s: %w", s.opened, s.guard.text(), context.Cause(ctx))
	}
}

// drain waits for the work on all streams that sessions have had and on the default ones, or until ctx ends, which is the
// error. What the devices found wrong, and tell once, is noted for the Close that comes to the end.
func (e *Engine) drain(ctx context.Context) error {
	for _, d := range e.devices {
		d.mu.Lock()
		streams := append([]driver.Stream{d.place.Stream()}, d.seated...)
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
				e.found = append(e.found, fmt.Errorf("engine: Close: device %d: %w", d.index, err))
			}
		}
	}
	return nil
}

// close closes everything, whatever fails. Nobody uses the engine any more, or Open has not returned it.
func (e *Engine) close() error {
	alive := &AliveError{}
	var errs []error
	for _, s := range e.sessionsOpen() {
		if !s.left.Load() {
			alive.Sessions = append(alive.Sessions, s.opened.String())
		}
		for _, event := range s.events.close() {
			alive.Events = append(alive.Events, fmt.Sprintf("%s of the session opened at %v", event, s.opened))
		}
		errs = append(errs, s.close())
	}
	for _, d := range e.devices {
		d.lanes.shut()
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

// close closes a device and all that was made of it, when its lanes are shut.
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
