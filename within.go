package ashlar

import (
	"fmt"
	"log/slog"
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
		panic(fmt.Sprintf("ashlar: WithDevice at %v inside %v: OnDevice nests", here(), &s.chosen))
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

// has fails unless the session has a device.
func (s *Session) has(call string, i int) error {
	if i < 0 || i >= len(s.seats) || s.seats[i] == nil || s.seats[i].guest {
		return fmt.Errorf("ashlar: %s device %d: this session has %v", call, i, s.Devices())
	}
	return nil
}
