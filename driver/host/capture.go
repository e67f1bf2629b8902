package host

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/order"
)

// A capture is the list of the work that was recorded on its streams, in the order of the calls.
//
// Every piece takes a tick of its stream, as queued work does, and so do Begin and waits for marks of the capture.
// Ticks from stream.entered on belong to the capture, and those before to queued work. Ticks of the capture are done
// when the capture has ended and the work queued before it is done: a stream that still has such work queues one empty
// piece of work when it leaves the capture, which stands for all of them. So a mark in a capture is a tick too, and is
// not reached while the capture lasts.
//
// The work may be done in the order of the calls, since a stream can wait only for a mark that was taken before. The
// branches hold the order that the streams and the waits alone require.
type capture struct {
	origin *stream // the stream that began it

	mu      sync.Mutex // taken with a stream's held
	over    bool
	members []member
	order   order.Capture
	tasks   []task
}

// A member is a stream that is part of a capture, or was.
type member struct {
	*stream
	branch *order.Branch
}

// A task is work that each launch does.
type task struct {
	call string
	do   func() error
	uses []span // the memory that it touches; a kernel's accesses are checked when they are made
}

// capturing reports whether s is part of a capture. If the capture has ended, it removes s from it. s.mu is held.
func (s *stream) capturing() bool {
	if s.capture == nil {
		return false
	}
	s.capture.mu.Lock()
	over := s.capture.over
	s.capture.mu.Unlock()
	if over {
		s.leaveCapture()
	}
	return !over
}

// captureOf returns the capture in which a mark was taken, unless it has ended, and the stream's branch of it.
func (s *stream) captureOf(tick uint64) (*capture, *order.Branch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capturing() && tick >= s.entered {
		return s.capture, s.branch
	}
	return nil, nil
}

// joinCapture makes s part of c. s.mu is held.
func (s *stream) joinCapture(c *capture) {
	s.capture, s.entered = c, s.queued+1
	c.mu.Lock()
	defer c.mu.Unlock()
	s.branch = c.order.Draw(s.queued)
	c.members = append(c.members, member{s, s.branch})
}

// record calls step to add to the capture of s, and takes a tick of s for it. It returns false if the capture has ended
// in between; then s is an ordinary stream again. s.mu is held.
func (s *stream) record(step func(*capture)) bool {
	c := s.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		s.leaveCapture()
		return false
	}
	s.queued++
	step(c)
	s.branch.Mark(s.queued)
	return true
}

// recordTask records work. s.mu is held.
func (s *stream) recordTask(t task) bool {
	return s.record(func(c *capture) {
		c.tasks = append(c.tasks, t)
		s.branch.Work()
	})
}

// leaveCapture makes s an ordinary stream again, whose captured ticks are done once all before them are. s.mu is held.
func (s *stream) leaveCapture() {
	ticks := s.queued - s.entered + 1
	s.capture, s.branch = nil, nil
	if s.done.Load() == s.entered-1 {
		s.done.Add(ticks)
		s.moved.Broadcast()
		return
	}
	s.queue = append(s.queue, work{"Graphs.End", func() error { return nil }, ticks})
	s.filled.Signal()
}

// join makes s wait, inside c, for a tick of o, whose branch is from.
func (s *stream) join(c *capture, from *order.Branch, o *stream, tick uint64) error {
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
	if s.capture == nil {
		s.joinCapture(c)
	}
	if !s.record(func(*capture) { s.branch.Wait(from, tick) }) {
		s.put(call, func() error { o.wait(tick); return nil })
	}
	return nil
}

// stop ends the capture and returns its streams and its work. Later work is not part of it.
func (c *capture) stop() ([]member, []task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.members, c.tasks
}

func (s *stream) capturingError(call string) error {
	return &driver.Error{
		Call: call, Code: driver.ErrCapturing, Detail: fmt.Sprintf("stream %d is part of a capture: end it first",
			s.id),
	}
}

func defaultError(call string) error {
	return &driver.Error{
		Call: call, Code: driver.ErrCapturing, Detail: "the default stream cannot be part of a capture: use another",
	}
}
