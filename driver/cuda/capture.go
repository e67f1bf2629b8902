//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/order"
)

// A capture is a recording of work on streams that goes on or has ended. A stream's capture is nil or one that goes on;
// marks remember the one in which they were taken, since their events are done at no time while it lasts.
type capture struct {
	origin *stream // which began it; nil if other code did
	ended  atomic.Bool

	mu       sync.Mutex // after a stream's; held while the capture ends, and while a mark is taken in it: it is in it or not
	branches map[*stream]*order.Branch
	order    order.Capture

	// Of a capture that other code began on a stream of theirs, which libcuda must be asked about.
	handle cu.Stream
	id     uint64
}

// A capture of ours knows by itself which of its work comes before which, for Graphs.Ordered: all work and all waits come
// through here. Waits of other code on shared streams do not; so the answer is no at times when it could be yes. libcuda
// would tell the nodes of the graph and their dependencies, but a graph must not be looked at while another thread uses it
// (CUDA Driver API, "Graph object thread safety"), and here other goroutines may be capturing into it.

// startCapture notes that a capture began on s. Before is what cover returned. Between begin and end. Marks before it are
// not in it.
func (s *stream) startCapture(before uint64) {
	c := &capture{origin: s, branches: map[*stream]*order.Branch{}}
	c.draw(s, before)
	s.work++
}

// draw makes s part of c, with c.mu held or c new. Between begin and end of s.
func (c *capture) draw(s *stream, before uint64) {
	s.capture, s.branch = c, c.order.Draw(before)
	c.branches[s] = s.branch
}

// cover makes sure that all ordinary work of s is behind a mark, and returns its tick. Between begin and end.
//
// If other code has drawn s into a capture, what was queued before that is behind no event: the mark is taken in that
// capture, and not reached before it ends.
func (s *stream) cover(call string) (tick uint64, err error) {
	if s.dirty || s.shared {
		m, err := s.mark(call)
		if err != nil {
			return 0, err
		}
		s.covered, s.dirty = m.Tick, false
	}
	return s.covered, nil
}

// join notes that s was drawn into c, unless c has ended since. Before is what cover returned. Between begin and end of s.
func (c *capture) join(s *stream, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != 0 || c.ended.Load() {
		return
	}
	c.draw(s, before)
}

// inCapture reports whether s is part of a capture of ours that goes on. Between begin and end.
func (s *stream) inCapture() bool { return s.capture != nil && !s.capture.ended.Load() }

// queued counts a piece of work that was just queued, or captured. Between begin and end.
func (s *stream) queued() {
	s.work++
	if s.inCapture() {
		s.branch.Work()
	} else {
		s.dirty = true
	}
}

// waited counts a wait for a tick of o that was just queued, or captured. Between begin and end.
func (s *stream) waited(o *stream, tick uint64) {
	s.work++
	if !s.inCapture() {
		s.dirty = true
		return
	}
	s.capture.mu.Lock()
	defer s.capture.mu.Unlock()
	if from := s.capture.branches[o]; from != nil {
		s.branch.Wait(from, tick)
	}
}

// noteMark notes that the last mark was taken in the capture. Its mu is held. Between begin and end.
func (s *stream) noteMark() {
	if s.shared {
		s.branch.Work() // other code may have captured some
	}
	s.branch.Mark(s.marks.last)
}

// follows reports whether, in the capture that s is part of, what s captures next comes after what was captured on o up to
// a tick. What was queued on o before that is not captured: it is behind the tick that is returned. Between begin and end
// of s.
func (s *stream) follows(o *stream, tick uint64) (before uint64, ok bool) {
	if !s.inCapture() {
		return 0, false
	}
	s.capture.mu.Lock()
	defer s.capture.mu.Unlock()
	from := s.capture.branches[o]
	if from == nil {
		return 0, false
	}
	return from.Before, s.branch.Ordered(from, tick)
}

// finish notes that the capture has ended: its streams are ordinary ones again. What was counted as captured while it ended,
// and may not have been, is not joined. No stream's lock is held.
func (c *capture) finish() {
	c.mu.Lock()
	c.ended.Store(true)
	branches := c.branches
	c.branches = nil
	c.mu.Unlock()
	for s, b := range branches {
		s.mu.Lock()
		if s.capture == c {
			s.capture, s.branch = nil, nil
			s.dirty = s.dirty || !branches[c.origin].Joined(b)
		}
		s.mu.Unlock()
	}
}

// active says whether the capture goes on. It calls libcuda only for captures of other code. Between enter and leave.
func (c *capture) active(lib *cu.Lib) (bool, cu.Result) {
	if c.id == 0 || c.ended.Load() {
		return !c.ended.Load(), cu.Success
	}
	status, id, r := lib.StreamCaptureInfo(c.handle)
	if r == cu.Success && (status == cu.CaptureNone || id != c.id) {
		c.ended.Store(true)
	}
	return !c.ended.Load(), r
}

// captured returns the capture that work on s is part of now, or nil. Other code may capture on its streams without
// telling us, so of those libcuda is asked. Between begin and end.
func (s *stream) captured(call string) (*capture, error) {
	if s.capture != nil {
		return s.capture, nil
	}
	return s.foreignCapture(call)
}

// foreignCapture returns the capture that libcuda says s is part of now, or nil. Between enter and leave.
func (s *stream) foreignCapture(call string) (*capture, error) {
	if !s.shared || s.handle <= cu.LegacyStream {
		return nil, nil
	}
	status, id, r := s.d.lib.StreamCaptureInfo(s.handle)
	switch {
	case r.Missing() != "" || r == cu.Success && status == cu.CaptureNone:
		return nil, nil
	case r != cu.Success:
		return nil, s.d.fail(call, r, "stream %d", s.id)
	}
	return &capture{handle: s.handle, id: id}, nil
}

// refuseCapture fails if s captures: the caller would have to wait for work that is only recorded. Between begin and end.
func (s *stream) refuseCapture(call string) error {
	c, err := s.captured(call)
	if err == nil && c != nil {
		err = &driver.Error{Call: call, Code: driver.ErrCapturing, Detail: "it would wait for work that is only recorded"}
	}
	return err
}
