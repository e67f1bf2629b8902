package engine

import (
	"fmt"
	"log/slog"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// A choice is a scope that chose the current device.
type choice struct {
	call   string // empty: none did
	device int
	at     site
}

func (c *choice) String() string { return fmt.Sprintf("%s(%d) at %v", c.call, c.device, &c.at) }

// Device returns the number of the session's current device.
func (s *Session) Device() int {
	if s.guard.lock("Device") == nil {
		defer s.guard.unlock()
	}
	return int(s.current.Load())
}

// WithDevice calls f with a device as the current one, and makes the one before current again however f ends: with an error,
// which it returns, by a panic or by runtime.Goexit. Events that f began and did not end count as unfinished. It is for whoever
// must know that nobody around chose a device: it panics inside another WithDevice or OnDevice. The error says that the
// session does not have the device.
func (s *Session) WithDevice(i int, f func() error) error {
	if err := s.enter("WithDevice"); err != nil {
		return err
	}
	defer s.guard.leave()
	if s.chosen.call != "" {
		panic(fmt.Sprintf("engine: WithDevice at %v inside %v: OnDevice nests", here(), &s.chosen))
	}
	return s.on("WithDevice", i, f)
}

// OnDevice is WithDevice that nests.
func (s *Session) OnDevice(i int, f func() error) error {
	if err := s.enter("OnDevice"); err != nil {
		return err
	}
	defer s.guard.leave()
	return s.on("OnDevice", i, f)
}

func (s *Session) on(call string, i int, f func() error) error {
	if err := s.has(call, i); err != nil {
		return err
	}
	device, chosen, events := s.current.Load(), s.chosen, s.events.mark()
	defer func() {
		s.current.Store(device)
		s.chosen = chosen
		s.events.dropFrom(events)
	}()
	s.current.Store(int64(i))
	s.chosen = choice{call: call, device: i}
	s.chosen.at.take()
	s.log(DebugDevices, call, slog.Int64("from", device), slog.Int("to", i))
	return f()
}

// WithAllocOptions calls f with options of the memory that the session allocates: at places that Place returns until
// then, and for CopyTo (see tensor.Place.WithAllocOptions). They replace those of a WithAllocOptions around it, which
// hold again however f ends. A place keeps the options that it was returned with. What f queues with no place has none.
func (s *Session) WithAllocOptions(o mem.AllocOptions, f func() error) error {
	if err := s.enter("WithAllocOptions"); err != nil {
		return err
	}
	defer s.guard.leave()
	options, events := s.options, s.events.mark()
	defer func() { s.options = options; s.events.dropFrom(events) }()
	s.options = &o
	return f()
}

// place returns the place of the session on a device of its own or a guest's.
func (s *Session) place(t *seat) *tensor.Place {
	if s.options == nil {
		return t.scope.Place
	}
	return t.scope.WithAllocOptions(*s.options)
}

// has fails unless the session has a device.
func (s *Session) has(call string, i int) error {
	if i < 0 || i >= len(s.seats) || s.seats[i] == nil || s.seats[i].guest {
		return fmt.Errorf("engine: %s device %d: this session has %v", call, i, s.Devices())
	}
	return nil
}
