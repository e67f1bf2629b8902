//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// A capture is a recording of work on streams that goes on or has ended. A stream's capture is nil or one that goes on;
// marks remember the one in which they were taken, since their events are done at no time while it lasts.
type capture struct {
	ended atomic.Bool

	mu      sync.Mutex // after a stream's; held while the capture ends, and while a mark is taken in it: it is in it or not
	streams []*stream  // that are part of it

	// Of a capture that other code began on a stream of theirs, which libcuda must be asked about.
	handle cu.Stream
	id     uint64
}

// startCapture notes that a capture began on s. Between begin and end. It counts as work: marks before it are not in it.
func (s *stream) startCapture() {
	s.capture = &capture{streams: []*stream{s}}
	s.queued()
}

// join notes that s was drawn into c, unless c has ended since. Between begin and end of s.
func (c *capture) join(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != 0 || c.ended.Load() {
		return
	}
	s.capture = c
	c.streams = append(c.streams, s)
}

// finish notes that the capture has ended: its streams are ordinary ones again. No stream's lock is held.
func (c *capture) finish() {
	c.mu.Lock()
	c.ended.Store(true)
	streams := c.streams
	c.streams = nil
	c.mu.Unlock()
	for _, s := range streams {
		s.mu.Lock()
		if s.capture == c {
			s.capture = nil
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
