//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "maps"

// A capture is work that streams record instead of queueing it, from cuStreamBeginCapture to cuStreamEndCapture.
//
// Each stream in it knows how much of each stream's captured work comes before the work that it captures next
// (stream.seen). An event recorded in the capture keeps a copy. A wait for the event makes a stream part of the capture
// and merges the copy. When the capture ends, its origin must have seen everything.
type capture struct {
	id      uint64
	origin  *stream
	streams []*stream
	nodes   []node
	mode    uint32
	tid     int
	broken  bool
	open    bool
}

// A forking is the position in a capture at which an event was recorded.
type forking struct {
	capture *capture
	seen    map[*stream]int
}

// Capture modes.
const (
	captureGlobal = iota
	captureThread
	captureRelaxed
)

type nodeKind int

const (
	nodeCopy nodeKind = iota
	nodeFill
	nodeKernel
	nodeGraph
)

// A node is captured work.
type node struct {
	kind nodeKind
	cost int64
	run  func() Result
}

// submit queues work on a stream or captures it. It returns nil work if it captured it.
func (c *call) submit(s *stream, kind nodeKind, cost int64, run func() Result) (*work, Result) {
	if s.capture == nil {
		if r := c.implicit(s); r != Success {
			return nil, r
		}
		return c.enqueue(s, cost, run), Success
	}
	if s.capture.broken {
		return nil, CaptureInvalidated
	}
	s.capture.nodes = append(s.capture.nodes, node{kind, cost, run})
	s.seen[s]++
	return nil, Success
}

// implicit refuses work on the legacy default stream while a blocking stream of the context captures.
func (c *call) implicit(s *stream) Result {
	if s != s.ctx.null {
		return Success
	}
	r := Success
	for _, other := range s.ctx.streams {
		if other.capture != nil && other.flags&streamNonBlocking == 0 {
			other.capture.broken = true
			r = CaptureImplicit
		}
	}
	return r
}

// guarded refuses calls that the modes of the captures and of the thread forbid during a capture. It breaks the
// captures that such a call would disturb.
func (c *call) guarded() Result {
	r := Success
	for _, x := range c.captures {
		own := x.tid == c.tid && x.mode != captureRelaxed
		others := x.tid != c.tid && x.mode == captureGlobal && c.thread.mode == captureGlobal
		if c.thread.mode != captureRelaxed && (own || others) {
			x.broken = true
			r = CaptureUnsupported
		}
	}
	return r
}

func (s *stream) fork() *forking { return &forking{s.capture, maps.Clone(s.seen)} }

// join makes a stream part of a capture.
func (x *capture) join(s *stream, seen map[*stream]int) {
	s.capture, s.seen = x, seen
	s.seen[s] = 0
	x.streams = append(x.streams, s)
}

// join makes a stream wait for an event, if the stream or the event is in a capture.
func (c *call) join(s *stream, e *event) Result {
	f := e.captured
	switch {
	case s.capture == nil && s == s.ctx.null:
		f.capture.broken = true
		return CaptureImplicit
	case s.capture == nil && f.capture.broken, s.capture != nil && s.capture.broken:
		return CaptureInvalidated
	case s.capture == nil:
		f.capture.join(s, maps.Clone(f.seen))
		return Success
	case f == nil && e.last == nil:
		return Success
	case f == nil, !f.capture.open:
		s.capture.broken = true
		return CaptureIsolation
	case f.capture != s.capture:
		s.capture.broken, f.capture.broken = true, true
		return CaptureMerge
	}
	for x, n := range f.seen {
		s.seen[x] = max(s.seen[x], n)
	}
	return Success
}

func (c *call) streamBeginCapture(h uint64, mode uint32) Result {
	s, r := c.stream(h)
	switch {
	case r != Success:
		return r
	case mode > captureRelaxed:
		return InvalidValue
	case s == c.ctx.null:
		return CaptureUnsupported
	case s.capture != nil:
		return IllegalState
	}
	x := &capture{id: c.newHandle(nil), origin: s, mode: mode, tid: c.tid, open: true}
	delete(c.handles, x.id) // only the unique number is needed
	x.join(s, map[*stream]int{})
	c.captures = append(c.captures, x)
	return Success
}

func (c *call) streamEndCapture(h uint64, graphHandle *uint64) Result {
	s, r := c.stream(h)
	switch {
	case r != Success:
		return r
	case graphHandle == nil:
		return InvalidValue
	case s.capture == nil:
		return IllegalState
	case s.capture.mode != captureRelaxed && s.capture.tid != c.tid:
		return CaptureWrongThread
	case s != s.capture.origin:
		s.capture.broken = true
		return CaptureUnmatched
	}
	x := s.capture
	*graphHandle = 0
	joined := true
	for _, other := range x.streams {
		joined = joined && s.seen[other] == other.seen[other]
	}
	c.endCapture(x)
	switch {
	case x.broken:
		return CaptureInvalidated
	case !joined:
		return CaptureUnjoined
	}
	*graphHandle = c.newHandle(&graph{nodes: x.nodes})
	return Success
}

// endCapture ends a capture: its streams queue work again.
func (m *Machine) endCapture(x *capture) {
	m.captures = remove(m.captures, x)
	x.open = false
	for _, s := range x.streams {
		s.capture, s.seen = nil, nil
	}
}

// The states of a stream.
const (
	captureNone = iota
	captureActive
	captureBroken
)

// captureStatus returns the state of a stream. A query of the legacy default stream breaks the captures of blocking
// streams.
func (c *call) captureStatus(h uint64) (*stream, uint32, Result) {
	s, r := c.stream(h)
	if r == Success {
		r = c.implicit(s)
	}
	switch {
	case r != Success || s.capture == nil:
		return s, captureNone, r
	case s.capture.broken:
		return s, captureBroken, Success
	}
	return s, captureActive, Success
}

func (c *call) streamIsCapturing(h uint64, status *uint32) Result {
	_, v, r := c.captureStatus(h)
	if r != Success {
		return r
	}
	return out(status, v)
}

func (c *call) streamGetCaptureInfo(h uint64, status *uint32, id, graphHandle *uint64, deps *uint64, n *uint64) Result {
	s, v, r := c.captureStatus(h)
	if r != Success {
		return r
	}
	if graphHandle != nil || deps != nil || n != nil { // the graph of an unfinished capture is not supported
		return NotSupported
	}
	if id != nil && v == captureActive {
		*id = s.capture.id
	}
	return out(status, v)
}

func (c *call) streamGetCaptureInfo3(h uint64, status *uint32, id, g, deps, edges, n *uint64) Result {
	if edges != nil {
		return NotSupported
	}
	return c.streamGetCaptureInfo(h, status, id, g, deps, n)
}
