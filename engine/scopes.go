package engine

import (
	"fmt"
	"log/slog"

	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// A deviceScope is the scope, WithDevice or OnDevice, that chose the current device.
type deviceScope struct {
	call   string // empty: none did
	device int
	at     site
}

func (c *deviceScope) String() string { return fmt.Sprintf("%s(%d) at %v", c.call, c.device, &c.at) }

// Device returns the number of the session's current device.
func (s *Session) Device() int {
	if s.guard.lock("Device") == nil {
		defer s.guard.unlock()
	}
	return int(s.current.Load())
}

// WithDevice calls f with a device as the current one, and restores the previous one when f returns, panics or ends its
// goroutine. Events that f began and did not end count as unfinished. It panics inside another WithDevice or OnDevice:
// use OnDevice to nest. The error is f's, or says that the session does not have the device.
func (s *Session) WithDevice(i int, f func() error) error {
	if err := s.enter("WithDevice"); err != nil {
		return err
	}
	defer s.guard.leave()
	if s.chosen.call != "" {
		panic(fmt.Sprintf("engine: WithDevice at %v inside %v: OnDevice nests", callsite.Here(), &s.chosen))
	}
	return s.onDevice("WithDevice", i, f)
}

// OnDevice is like WithDevice, and may be nested.
func (s *Session) OnDevice(i int, f func() error) error {
	if err := s.enter("OnDevice"); err != nil {
		return err
	}
	defer s.guard.leave()
	return s.onDevice("OnDevice", i, f)
}

func (s *Session) onDevice(call string, i int, f func() error) error {
	if err := s.checkDevice(call, i); err != nil {
		return err
	}
	device, chosen, events := s.current.Load(), s.chosen, s.events.mark()
	defer func() {
		s.current.Store(device)
		s.chosen = chosen
		s.events.dropFrom(events)
	}()
	s.current.Store(int64(i))
	s.chosen = deviceScope{call: call, device: i}
	s.chosen.at.Record(1, 8)
	s.log(DebugDevices, call, slog.Int64("from", device), slog.Int("to", i))
	return f()
}

// WithAllocOptions calls f with options for the session's allocations: at places that Place returns inside f, and in
// CopyTo (see tensor.Place.WithAllocOptions). They replace the options of an enclosing WithAllocOptions, which are
// restored when f ends. A place keeps the options it was returned with. Operations without a place have no options.
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

// place returns the session's place on a device.
func (s *Session) place(t *sessionDevice) *tensor.Place {
	if s.options == nil {
		return t.scope.Place
	}
	return t.scope.WithAllocOptions(*s.options)
}

// checkDevice returns an error unless the session has a device.
func (s *Session) checkDevice(call string, i int) error {
	if i < 0 || i >= len(s.devices) || s.devices[i] == nil || s.devices[i].copiesOnly {
		return fmt.Errorf("engine: %s device %d: this session has %v", call, i, s.Devices())
	}
	return nil
}
