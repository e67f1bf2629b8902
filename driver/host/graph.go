package host

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// graphs implements driver.Graphs. See capture.go for captures.
type graphs struct{ d *device }

func (d *device) Graphs() driver.Graphs { return graphs{d} }

func (g graphs) Begin(s driver.Stream) error {
	const call = "Graphs.Begin"
	own := g.d.stream(call, s)
	own.mu.Lock()
	defer own.mu.Unlock()
	switch {
	case own.closing:
		return own.closedError(call)
	case own.id == 0:
		return defaultError(call)
	case own.capturing():
		return own.capturingError(call)
	}
	own.joinCapture(&capture{origin: own})
	own.record(func(*capture) {})
	return nil
}

func (g graphs) Capturing(s driver.Stream) (bool, error) {
	own := g.d.stream("Graphs.Capturing", s)
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.closed {
		return false, own.closedError("Graphs.Capturing")
	}
	return own.capturing(), nil
}

// Ordered does not wait: it returns false if work that was queued on other before it was drawn in is not done yet.
func (g graphs) Ordered(other driver.Stream, m driver.Mark, s driver.Stream) (bool, error) {
	const call = "Graphs.Ordered"
	o, own := g.d.stream(call, other), g.d.stream(call, s)
	o.checkMark(call, m)
	c, from := o.captureOf(m.Tick)
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.closed {
		return false, own.closedError(call)
	}
	if c == nil || !own.capturing() || own.capture != c {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return o.done.Load() >= from.Before && own.branch.Ordered(from, m.Tick), nil
}

// End fails with ErrInvalid if s began no capture, which changes nothing, or if a stream that was drawn in was not
// waited for.
func (g graphs) End(s driver.Stream) (driver.Graph, error) {
	const call = "Graphs.End"
	own := g.d.stream(call, s)
	own.mu.Lock()
	c := own.capture
	switch {
	case own.closed:
		own.mu.Unlock()
		return nil, own.closedError(call)
	case !own.capturing():
		own.mu.Unlock()
		return nil, invalidError(call, "stream %d is not part of a capture", own.id)
	case c.origin != own:
		own.mu.Unlock()
		return nil, invalidError(call, "stream %d was drawn into the capture of stream %d, which must end it",
			own.id, c.origin.id)
	}
	members, tasks := c.stop()
	end := own.branch
	own.mu.Unlock()

	var loose *stream
	for _, m := range members {
		if !end.Joined(m.branch) {
			loose = m.stream
		}
		m.mu.Lock()
		if m.capture == c {
			m.leaveCapture()
		}
		m.mu.Unlock()
	}
	if loose != nil {
		return nil, invalidError(call, "stream %d was drawn into the capture of stream %d, which has not waited for it",
			loose.id, own.id)
	}
	return &graph{d: g.d, tasks: tasks}, nil
}

// A graph does its tasks one after the other, in the order in which they were captured, regardless of their streams.
type graph struct {
	d     *device
	tasks []task

	mu     sync.Mutex // taken before a stream's
	closed bool
	stream *stream // of the last launch
	tick   uint64
}

func (g *graph) Nodes() int { return len(g.tasks) }

// Launch fails with ErrInvalid if memory that the work touches was freed or unmapped. If a kernel fails, the rest is
// done all the same; the first error is the stream's. A launch cannot be captured itself.
func (g *graph) Launch(s driver.Stream) error {
	const call = "Graph.Launch"
	own := g.d.stream(call, s)
	for _, t := range g.tasks {
		if err := checkAccess(call, t.uses...); err != nil {
			return fmt.Errorf("captured %s: %w", t.call, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the graph"}
	}
	before, until := g.stream, g.tick
	tick, err := own.addNow(call, func() error {
		if before != nil {
			before.wait(until)
		}
		return g.run()
	})
	if err == nil {
		g.stream, g.tick = own, tick
	}
	return err
}

// run does all the work and returns its first error.
func (g *graph) run() (first error) {
	for _, t := range g.tasks {
		if err := attempt(t.call, t.do); first == nil {
			first = err
		}
	}
	return first
}

// Close does not wait: launches that are queued are done all the same.
func (g *graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return nil
}
