package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// A Session is one goroutine's use of an engine's devices, with a stream of its own on each. Tensors made at its Place
// belong to it: Close releases them, except those that Keep took out. One goroutine uses a session at a time; a call
// while another goroutine is inside one panics, and names both places. A session that lives long, as in a server,
// releases the tensors of each request with a scope of its own: scope := s.Place().Scope(), and scope.Place for the
// request.
type Session struct {
	engine     *Engine
	tenant     *Tenant // nil: none
	name       string  // "session 3", of its events
	guard      guard
	opened     *site
	devices    []*sessionDevice  // by the engine's number; nil where the session has none
	current    atomic.Int64      // the current device's number; changed only inside the guard
	chosen     deviceScope       // the scope that made it current
	options    *mem.AllocOptions // set by WithAllocOptions; nil outside of it
	debug      int
	events     openEvents
	level      atomic.Int64 // events above it are not recorded; read without the guard, so that these cost nothing
	task       bool         // the session of a task of EachDevice
	ended      bool
	userClosed atomic.Bool // Close was called after Engine.Close began, which closes the session
}

// NewSession opens a session on the devices with these numbers, or on all devices if there are none. The first is the
// current one. The caller closes the session. It uses one stream of each device: one that a closed session returned, or
// a new one. An allocator that caches free memory by stream, such as "caching", caches some for each of them.
func (e *Engine) NewSession(devices ...int) (*Session, error) {
	return e.newSession(callsite.Here(), devices, false, nil)
}

// newSession is NewSession. Engine.Close waits for tasks of EachDevice, and so does not refuse the session of a task.
func (e *Engine) newSession(opened *site, devices []int, task bool, tenant *Tenant) (*Session, error) {
	if len(devices) == 0 {
		for i := range e.devices {
			devices = append(devices, i)
		}
	}
	for _, i := range devices {
		e.at("NewSession", i)
	}
	s := &Session{engine: e, tenant: tenant, opened: opened, devices: make([]*sessionDevice, len(e.devices))}
	s.current.Store(int64(devices[0]))
	e.mu.Lock()
	if e.closing && !task || tenant != nil && tenant.closed {
		e.mu.Unlock()
		return nil, ErrClosed
	}
	e.sessions = append(e.sessions, s)
	e.opened++
	s.name = fmt.Sprintf("session %d", e.opened)
	s.level.Store(int64(max(e.config.EventLevel, 0)))
	s.guard.enter("NewSession") // so that Close waits for it
	e.mu.Unlock()
	defer s.guard.leave()

	for _, i := range devices {
		if s.devices[i] != nil {
			continue
		}
		dev, err := e.devices[i].newSessionDevice(tenant)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("engine: session on device %d: %w", i, err), s.close())
		}
		s.devices[i] = dev
	}
	return s, nil
}

// enter begins a call: see guard.
func (s *Session) enter(call string) error { return s.guard.enter(call) }

// currentDevice returns the session's part of its current device.
func (s *Session) currentDevice() *sessionDevice { return s.devices[s.current.Load()] }

// Engine returns the session's engine.
func (s *Session) Engine() *Engine { return s.engine }

// Devices returns the numbers of the session's devices, ascending.
func (s *Session) Devices() []int {
	var out []int
	for i, t := range s.devices {
		if t != nil && !t.copiesOnly {
			out = append(out, i)
		}
	}
	return out
}

// deviceFor returns the session's part of a device. For the session of a task it is made if there is none.
func (s *Session) deviceFor(call string, i int) (*sessionDevice, error) {
	if s.task && i >= 0 && i < len(s.devices) && s.devices[i] == nil {
		t, err := s.engine.devices[i].newSessionDevice(s.tenant)
		if err != nil {
			return nil, fmt.Errorf("engine: %s device %d: %w", call, i, err)
		}
		t.copiesOnly = true
		s.setBlockLog(t)
		s.events.mu.Lock() // other goroutines read devices under it
		s.devices[i] = t
		s.events.mu.Unlock()
	}
	if i >= 0 && i < len(s.devices) && s.devices[i] != nil {
		return s.devices[i], nil
	}
	return nil, s.checkDevice(call, i)
}

// Place returns a place on the current device, with the session's stream and scope: Close releases tensors made there.
// A place may be kept while the session is open, and is used by the goroutine that uses the session. Memory allocated
// on another stream of the place (Place.On) also counts for the session and comes from the cache in use, unless the
// stream is the default one or another session's. After Close all work at the returned place fails with ErrClosed.
func (s *Session) Place() *tensor.Place {
	if s.guard.lock("Place") != nil {
		return s.engine.devices[s.current.Load()].place.On(closedStream{})
	}
	defer s.guard.unlock()
	return s.place(s.currentDevice())
}

// Keep returns a tensor that shares t's memory and outlives the session: the caller releases it. It is at the engine's
// place of the device, and so needs no stream of the session. t itself still belongs to the session. Keep panics if t
// is released, or is on no device of the session.
func (s *Session) Keep(t *tensor.Tensor) *tensor.Tensor {
	if s.guard.lock("Keep") == nil {
		s.guard.unlock() // the code below uses no state of the session that changes
	}
	for _, dev := range s.devices {
		if dev != nil && t.Place().SameDevice(dev.device.place) {
			return tensor.Must(t.To(dev.device.place))
		}
	}
	panic(fmt.Sprintf("engine: Keep of %s on %v, which is no device of this session", t.Brief(), t.Place()))
}

// UsedMemory returns the bytes of the session's live blocks on the current device, as requested, before the allocator
// rounds. Scratch memory of computations counts; free memory of a reserved cache does not.
func (s *Session) UsedMemory() int64 {
	if s.guard.lock("UsedMemory") != nil {
		return 0
	}
	defer s.guard.unlock()
	return s.currentDevice().usage.used.Load()
}

// PeakMemory returns the maximum that UsedMemory has been.
func (s *Session) PeakMemory() int64 {
	if s.guard.lock("PeakMemory") != nil {
		return 0
	}
	defer s.guard.unlock()
	return s.currentDevice().usage.peak.Load()
}

// Collect returns as much memory of the current device as it can: it frees the memory of tensors that were dropped
// without Release, compacts the session's caches and an allocator that moves blocks (mem.Compactor), and returns cached
// memory to the device (mem.Trimmer). It waits for the session's own work on the device, or until ctx ends; returning
// memory to the device may also wait for work of others.
func (s *Session) Collect(ctx context.Context) error {
	if err := s.enter("Collect"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.currentDevice()
	err := t.sync(ctx)
	if ctx.Err() != nil {
		return cmp.Or(err, context.Cause(ctx))
	}
	t.scope.Reclaim()
	errs := []error{err}
	if c, ok := mem.Find[mem.Compactor](t.device.allocator); ok {
		errs = append(errs, c.Compact(t.stream))
	}
	for _, k := range t.caches {
		errs = append(errs, k.Compact(t.stream))
	}
	if c, ok := mem.Find[mem.Trimmer](t.device.allocator); ok {
		errs = append(errs, c.EmptyCache())
	}
	s.logMemory("used memory after Collect")
	return errors.Join(errs...)
}

// Sync waits until the work that the session queued on all its devices is done, or ctx ends. It returns errors of that
// work, as tensor.Place.Sync does.
func (s *Session) Sync(ctx context.Context) error {
	if err := s.enter("Sync"); err != nil {
		return err
	}
	defer s.guard.leave()
	var errs []error
	for _, t := range s.devices {
		if t != nil {
			errs = append(errs, t.sync(ctx))
		}
	}
	return errors.Join(errs...)
}

// Close releases the session's tensors and copies, frees its caches, and returns its streams without waiting for their
// work. The allocator "direct:session=on" returns freed memory, of this session and others, to the device. Close waits
// only for streams that the engine does not keep, and for a device to take memory back. A cache with live blocks, of
// tensors that Keep took out, is freed with the last of them. The error names events that have not ended. Close panics
// inside a scope. Closing twice is a no-op. Once Engine.Close has begun, Close does nothing: Engine.Close closes the
// session, and does not report it.
func (s *Session) Close() error {
	if s.enter("Close") != nil {
		s.userClosed.Store(true)
		return nil
	}
	defer s.guard.leave()
	s.guard.mustBeOutside("Session.Close", 1)
	open := s.events.close()
	err := s.close()
	if len(open) > 0 {
		err = errors.Join(fmt.Errorf("engine: Session.Close: events have not ended: %s", strings.Join(open, ", ")), err)
	}
	return err
}

// close is Close, for a caller that has entered the guard or is alone.
func (s *Session) close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.guard.close()
	s.events.close()
	s.engine.copies.dropSession(s)
	var errs []error
	for _, t := range s.devices {
		if t != nil {
			t.scope.Close()
			errs = append(errs, t.close()...)
		}
	}
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions = slices.DeleteFunc(e.sessions, func(other *Session) bool { return other == s })
	return errors.Join(errs...)
}
