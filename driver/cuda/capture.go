//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/order"
)

// A capture is a recording of work on streams, active or ended. A stream's capture is nil or active. A mark remembers
// the capture in which it was taken, since its event cannot be reached while that capture is active.
type capture struct {
	origin *stream // the stream that began it; nil if other code began it
	ended  atomic.Bool

	mu       sync.Mutex // locked after a stream's; held while the capture ends and while a mark is taken in it
	branches map[*stream]*order.Branch
	order    order.Capture

	// For a capture that other code began on its own stream: libcuda is asked whether it is active.
	handle cu.Stream
	id     uint64
}

// For Graphs.Ordered, a capture that this package began records the order of its own work: all work and all waits pass
// through here. Waits that other code queues on shared streams do not, so Ordered may answer no where yes would be
// true. libcuda could list the graph's nodes and their dependencies, but a graph must not be read while another thread
// uses it (CUDA Driver API, "Graph object thread safety"), and other goroutines may be capturing into it.

// startCapture notes that a capture began on s; before is the tick that cover returned. Earlier marks are not part of
// the capture. Called between begin and end.
func (s *stream) startCapture(before uint64) {
	c := &capture{origin: s, branches: map[*stream]*order.Branch{}}
	c.draw(s, before)
	s.work++
}

// draw makes s part of c. The caller holds c.mu, or c is new. Called between begin and end of s.
func (c *capture) draw(s *stream, before uint64) {
	s.capture, s.branch = c, c.order.Draw(before)
	c.branches[s] = s.branch
}

// cover takes a mark after all uncaptured work of s, unless there is one, and returns its tick. Called between begin
// and end.
//
// If other code has drawn s into a capture, no event follows the work queued before. The mark is then taken in that
// capture, and not reached before the capture ends.
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

// join notes that s was drawn into c, unless c has ended since; before is the tick that cover returned. Called between
// begin and end of s.
func (c *capture) join(s *stream, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != 0 || c.ended.Load() {
		return
	}
	c.draw(s, before)
}

// inCapture reports whether s is part of an active capture that this package began. Called between begin and end.
func (s *stream) inCapture() bool { return s.capture != nil && !s.capture.ended.Load() }

// queued counts a piece of work that was just queued or captured. Called between begin and end.
func (s *stream) queued() {
	s.work++
	if s.inCapture() {
		s.branch.Work()
	} else {
		s.dirty = true
	}
}

// waited counts a wait for a tick of o that was just queued or captured. Called between begin and end.
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

// noteMark notes that the last mark was taken in the capture. The caller holds the capture's mu. Called between begin
// and end.
func (s *stream) noteMark() {
	if s.shared {
		s.branch.Work() // other code may have captured work
	}
	s.branch.Mark(s.marks.last)
}

// follows reports whether the next work that s captures comes after all work that o captured up to a tick. Before is
// the tick that covers the work queued on o before o joined the capture. Called between begin and end of s.
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

// finish notes that the capture has ended, and its streams leave it. Work that was counted as captured while the
// capture ended may have been queued instead: a branch with such work is not joined, and its stream counts as having
// uncovered work. The caller holds no stream's lock.
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

// active reports whether the capture is active. It calls libcuda only for captures of other code. Called between enter
// and leave.
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

// captured returns the capture that work on s is part of now, or nil. For a shared stream it asks libcuda, since other
// code may have begun a capture there. Called between begin and end.
func (s *stream) captured(call string) (*capture, error) {
	if s.capture != nil {
		return s.capture, nil
	}
	if !s.hold() {
		return &capture{}, nil
	}
	defer s.unhold()
	return s.foreignCapture(call)
}

// othersCaptures counts the captures that other code has announced.
//
// libcuda does not allow one thread to record an event on a stream, or to ask for its capture, while another thread
// captures into the same graph (CUDA Driver API, "Graph object thread safety"). On an NVIDIA H200 with driver 580 such
// an event was part of the capture, its query failed with CUDA_ERROR_INVALID_VALUE, and one process crashed in libcuda.
type othersCaptures struct {
	mu sync.RWMutex // read during calls of libcuda on streams of other code; written when a capture is announced
	n  int
}

// OthersBegin announces that other code is about to capture, on streams that it made and on any thread. Until
// OthersEnd, streams of other code count as capturing: libcuda is not called for them, except to query events that were
// recorded before. The calls nest.
func (g graphs) OthersBegin() { g.d.others.add(1) }

// OthersEnd says that a capture announced by OthersBegin has ended.
func (g graphs) OthersEnd() { g.d.others.add(-1) }

func (o *othersCaptures) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n = max(0, o.n+n)
}

// hold reports whether libcuda may be called on s, which it may unless s is a stream of other code and other code
// captures or is about to. If it returns true, no such capture begins until unhold.
func (s *stream) hold() bool {
	switch {
	case !s.capturable():
		return true
	case !s.d.others.mu.TryRLock():
		return false
	case s.d.others.n > 0:
		s.d.others.mu.RUnlock()
		return false
	}
	return true
}

// unhold ends hold.
func (s *stream) unhold() {
	if s.capturable() {
		s.d.others.mu.RUnlock()
	}
}

// capturable reports whether other code can capture on s.
func (s *stream) capturable() bool { return s.shared && s.handle > cu.LegacyStream }

// foreignCapture returns the capture that s is part of now according to libcuda, or nil. Called between hold and unhold,
// and between enter and leave.
func (s *stream) foreignCapture(call string) (*capture, error) {
	if !s.capturable() {
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

// refuseCapture fails if s captures: the caller would have to wait for work that is only recorded. Called between begin
// and end.
func (s *stream) refuseCapture(call string) error {
	c, err := s.captured(call)
	if err == nil && c != nil {
		err = &driver.Error{Call: call, Code: driver.ErrCapturing, Detail: "it would wait for work that is only recorded"}
	}
	return err
}
