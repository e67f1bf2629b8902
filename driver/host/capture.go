package host

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A capture is a list of what was asked of its streams, in the order of the calls.
//
// Every step takes a tick of its stream, as queued work does, and so do Begin and the WaitFor that draws a stream in:
// ticks from stream.entered on are the capture's, those before are queued work's. They count as done when the capture
// has ended and the work queued before it is done: a stream that has such work queues, on leaving, one piece that does
// nothing and counts for all of them. So a mark is a tick here too, and is not reached while the capture lasts.
//
// The order of the calls is one in which the work may be done: a stream can wait only for a mark that was taken before.
// Walked backwards from the first stream's end, the steps tell what that end comes after: all the rest is unjoined.
type capture struct {
	origin *stream // which began it

	mu      sync.Mutex // taken with a stream's held
	over    bool
	streams []*stream
	steps   []step
}

// A step is one tick of a stream in a capture: a task, or a wait for a tick of another.
type step struct {
	on   *stream
	tick uint64
	task *task

	after *stream // without a task: what is waited for
	until uint64
	joins bool // it drew the stream into the capture
}

// A task is work to do at each launch.
type task struct {
	call string
	do   func() error
	uses []span // the memory that it touches; a kernel's accesses are looked up as they are made
}

// capturing reports whether s is part of a capture, and takes it out of one that is over. s.mu is held.
func (s *stream) capturing() bool {
	if s.capture == nil {
		return false
	}
	s.capture.mu.Lock()
	over := s.capture.over
	s.capture.mu.Unlock()
	if over {
		s.leave()
	}
	return !over
}

// captureOf returns the capture that a mark was taken in, if it goes on.
func (s *stream) captureOf(tick uint64) *capture {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capturing() && tick >= s.entered {
		return s.capture
	}
	return nil
}

// enter makes s part of c. s.mu is held.
func (s *stream) enter(c *capture) {
	s.capture, s.entered = c, s.queued+1
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
}

// record adds a step of s to its capture, and returns its tick. s.mu is held.
func (s *stream) record(e step) uint64 {
	s.queued++
	e.on, e.tick = s, s.queued
	s.capture.mu.Lock()
	defer s.capture.mu.Unlock()
	s.capture.steps = append(s.capture.steps, e)
	return e.tick
}

// leave makes s an ordinary stream again, whose captured ticks are done once all before them are. s.mu is held.
func (s *stream) leave() {
	ticks := s.queued - s.entered + 1
	s.capture = nil
	if s.done.Load() == s.entered-1 {
		s.done.Add(ticks)
		s.moved.Broadcast()
		return
	}
	s.queue = append(s.queue, work{"Graphs.End", func() error { return nil }, ticks})
	s.filled.Signal()
}

// join makes s wait, inside c, for a tick of o that c has.
func (s *stream) join(c *capture, o *stream, tick uint64) error {
	const call = "Stream.WaitFor"
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return s.closedError(call)
	case s.closing:
		return &driver.Error{
			Call: call, Code: driver.ErrCapturing,
			Detail: fmt.Sprintf("stream %d captures, and stream %d is being closed", o.id, s.id),
		}
	case s.capturing() && s.capture != c:
		return &driver.Error{
			Call: call, Code: driver.ErrCapturing,
			Detail: fmt.Sprintf("stream %d is part of another capture than stream %d", s.id, o.id),
		}
	case s.id == 0:
		return defaultError(call)
	}
	e := step{after: o, until: tick}
	if s.capture == nil {
		s.enter(c)
		e.joins = true
	}
	s.record(e)
	return nil
}

// stop ends the capture and returns what is in it. What comes later is no part of it.
func (c *capture) stop() ([]*stream, []step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.streams, c.steps
}

// unjoined returns a stream whose steps the end of the first one does not come after, or nil.
func unjoined(first *stream, steps []step) *stream {
	reached := map[*stream]uint64{first: math.MaxUint64} // up to which tick the end comes after each
	for _, e := range slices.Backward(steps) {
		if e.tick <= reached[e.on] {
			if e.after != nil {
				reached[e.after] = max(reached[e.after], e.until)
			}
		} else if e.task != nil || e.joins {
			return e.on
		}
	}
	return nil
}

func (s *stream) capturingError(call string) error {
	return &driver.Error{
		Call: call, Code: driver.ErrCapturing, Detail: fmt.Sprintf("stream %d is part of a capture: end it first", s.id),
	}
}

func defaultError(call string) error {
	return &driver.Error{
		Call: call, Code: driver.ErrCapturing, Detail: "the default stream cannot be part of a capture: use another",
	}
}
