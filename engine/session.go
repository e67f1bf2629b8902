package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// A Session is one line of work on devices of an engine: see the package. Tensors that are made at its Place belong to
// it, and are released by its Close, but for those that Keep took out. It is used by one goroutine at a time. One that
// lives long, as that of a server does, gives back what a request made by a scope of tensors within it: scope :=
// s.Place().Scope(), and scope.Place for that request.
type Session struct {
	engine  *Engine
	name    string // "session 3", of its events
	guard   guard
	opened  *site
	seats   []*seat           // by the engine's number; nil where the session has none
	current atomic.Int64      // the device; changed by whoever is inside the guard
	chosen  choice            // what made it so
	options *mem.AllocOptions // that WithAllocOptions set; nil outside of it
	debug   int
	events  openEvents
	level   atomic.Int64 // of the events that are recorded; read without the guard, so that those that are not cost nothing
	task    bool         // of EachDevice
	ended   bool
	left    atomic.Bool // its user closed it when Engine.Close had begun, which does it
}

// NewSession opens a session on the devices of these numbers, or on all. The first is its current one. The caller
// closes it. It takes a stream of each device, of the 16 that the engine keeps of those that sessions gave back, or a
// new one: many more sessions at a time are better kept than opened for each request. An allocator that keeps free
// memory for each stream, as "caching" does, keeps some for each of them.
func (e *Engine) NewSession(devices ...int) (*Session, error) {
	return e.newSession(here(), devices, false)
}

// newSession is NewSession, also for a task of EachDevice: Close waits for that, and so does not refuse its session.
func (e *Engine) newSession(opened *site, devices []int, task bool) (*Session, error) {
	if len(devices) == 0 {
		for i := range e.devices {
			devices = append(devices, i)
		}
	}
	for _, i := range devices {
		e.at("NewSession", i)
	}
	s := &Session{engine: e, opened: opened, seats: make([]*seat, len(e.devices))}
	s.current.Store(int64(devices[0]))
	e.mu.Lock()
	if e.closing && !task {
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
		if s.seats[i] != nil {
			continue
		}
		seat, err := e.devices[i].seat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("engine: session on device %d: %w", i, err), s.close())
		}
		s.seats[i] = seat
	}
	return s, nil
}

// enter begins a call: see guard.
func (s *Session) enter(call string) error { return s.guard.enter(call) }

// seat returns what the session has on its current device.
func (s *Session) seat() *seat { return s.seats[s.current.Load()] }

// Engine returns the session's engine.
func (s *Session) Engine() *Engine { return s.engine }

// Devices returns the numbers of the session's devices, ascending.
func (s *Session) Devices() []int {
	var out []int
	for i, t := range s.seats {
		if t != nil && !t.guest {
			out = append(out, i)
		}
	}
	return out
}

// reach returns what the session has on a device. To a task it gives that, if it has nothing there.
func (s *Session) reach(call string, i int) (*seat, error) {
	if s.task && i >= 0 && i < len(s.seats) && s.seats[i] == nil {
		t, err := s.engine.devices[i].seat()
		if err != nil {
			return nil, fmt.Errorf("engine: %s device %d: %w", call, i, err)
		}
		t.guest = true
		s.watch(t)
		s.events.mu.Lock() // held where other goroutines look at seats
		s.seats[i] = t
		s.events.mu.Unlock()
	}
	if i >= 0 && i < len(s.seats) && s.seats[i] != nil {
		return s.seats[i], nil
	}
	return nil, s.has(call, i)
}

// Place returns the current device with the session's stream and scope: what is made there is released by Close. A
// place may be kept while the session is open, but is used by the goroutine that uses the session. On another stream
// (Place.On), unless that is the default one or another session's, its memory is the session's too, counted and served
// by the cache in use. After Close the place that is returned refuses all work with ErrClosed.
func (s *Session) Place() *tensor.Place {
	if s.guard.lock("Place") != nil {
		return s.engine.devices[s.current.Load()].place.On(endedStream{})
	}
	defer s.guard.unlock()
	return s.place(s.seat())
}

// Keep takes a tensor out of the session: what it returns shares t's memory, lives until its Release, which is the
// caller's, and is at the engine's place of the device, so that it needs no stream of the session. t itself stays the
// session's. It panics if t is released, or on no device of the session.
func (s *Session) Keep(t *tensor.Tensor) *tensor.Tensor {
	if s.guard.lock("Keep") == nil {
		s.guard.unlock() // what follows is not the session's
	}
	for _, seat := range s.seats {
		if seat != nil && t.Place().SameDevice(seat.device.place) {
			return tensor.Must(t.To(seat.device.place))
		}
	}
	panic(fmt.Sprintf("engine: Keep of %s on %v, which is no device of this session", t.Brief(), t.Place()))
}

// UsedMemory returns the bytes that the session has on loan on the current device: those asked for, before the
// allocator rounds. Scratch memory of computations counts; what a reserved cache has free does not.
func (s *Session) UsedMemory() int64 {
	if s.guard.lock("UsedMemory") != nil {
		return 0
	}
	defer s.guard.unlock()
	return s.seat().usage.used.Load()
}

// PeakMemory returns the most that UsedMemory has been.
func (s *Session) PeakMemory() int64 {
	if s.guard.lock("PeakMemory") != nil {
		return 0
	}
	defer s.guard.unlock()
	return s.seat().usage.peak.Load()
}

// Collect gives back what it can on the current device: the memory of tensors that were dropped without a release is
// taken back, blocks are brought together if the allocator moves them (mem.Compactor), and in the session's caches
// there, and cached memory goes to the device (mem.Trimmer). It waits for the session's own work there, or until ctx
// ends; an allocator that returns memory to the device may then wait for that of others, as the device does.
func (s *Session) Collect(ctx context.Context) error {
	if err := s.enter("Collect"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.seat()
	err := t.sync(ctx)
	if ctx.Err() != nil {
		return cmp.Or(err, context.Cause(ctx))
	}
	t.scope.Queue().Scratch.Alloc(&sweep{Stream: t.stream}, 1)
	errs := []error{err}
	if c, ok := mem.Find[mem.Compactor](t.device.lanes); ok {
		errs = append(errs, c.Compact(t.stream))
	}
	for _, k := range t.caches {
		errs = append(errs, k.Compact(t.stream))
	}
	if c, ok := mem.Find[mem.Trimmer](t.device.lanes); ok {
		errs = append(errs, c.EmptyCache())
	}
	s.logMemory("used memory after Collect")
	return errors.Join(errs...)
}

// Sync waits until the work that the session queued is done on all its devices, or ctx ends, and returns what was found
// wrong (see tensor.Place.Sync).
func (s *Session) Sync(ctx context.Context) error {
	if err := s.enter("Sync"); err != nil {
		return err
	}
	defer s.guard.leave()
	var errs []error
	for _, t := range s.seats {
		if t != nil {
			errs = append(errs, t.sync(ctx))
		}
	}
	return errors.Join(errs...)
}

// Close ends the session: copies and tensors that are still its own are released, caches given back, streams returned
// with the work that is queued on them, and "direct:session=on" gives the device what was freed, by this session or
// another. It waits for nothing but, perhaps, for streams that are not kept, and for a device to take memory back. A
// cache that has memory on loan, to tensors that were kept, goes with the last of that. The error names events that
// have not ended. It panics inside a scope. Closing twice is nothing, and so is closing when Engine.Close has begun:
// that closes it then, and does not report it.
func (s *Session) Close() error {
	if s.enter("Close") != nil {
		s.left.Store(true)
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

// close is Close, by whoever is inside.
func (s *Session) close() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.guard.close()
	s.events.close()
	s.engine.copies.dropSession(s)
	var errs []error
	for _, t := range s.seats {
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
