//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Graphs are captured in the relaxed mode. The other modes bind a capture to the thread that began it, but goroutines
// move between threads. They also forbid allocations during a capture (on the thread, or on all threads), which an
// allocator needs. Calls that relaxed mode permits, but that would invalidate the capture, are refused before they
// reach libcuda: see capture.go.

type graphs struct{ d *device }

func (d *device) Graphs() driver.Graphs { return graphs{d} }

// A graph is a CUgraphExec.
type graph struct {
	d     *device
	nodes int

	mu     sync.Mutex // taken after a stream's mu; libcuda requires that launches of one graph do not overlap
	exec   cu.GraphExec
	closed bool
}

func (g graphs) Begin(s driver.Stream) error {
	const call = "Graphs.Begin"
	o := g.d.ownStream(call, s)
	if o.id == 0 {
		return capturingError(call, "the default stream cannot capture: use one of NewStream")
	}
	if err := o.begin(call); err != nil {
		return err
	}
	defer o.end()
	c, err := o.captured(call)
	if err != nil {
		return err
	}
	if c != nil {
		return capturingError(call, "the stream captures already")
	}
	before, err := o.cover(call)
	if err != nil {
		return err
	}
	if r := g.d.lib.StreamBeginCapture(o.handle, cu.CaptureRelaxed); r != cu.Success {
		return g.d.fail(call, r, "stream %d", o.id)
	}
	o.startCapture(before)
	return nil
}

// End also returns ErrInvalid, without effect, for a stream on which no capture was begun.
func (g graphs) End(s driver.Stream) (driver.Graph, error) {
	const call = "Graphs.End"
	o := g.d.ownStream(call, s)
	if err := o.begin(call); err != nil {
		return nil, err
	}
	c := o.capture
	if c == nil || !c.begunBy(o) {
		o.end()
		return nil, invalidError(call, "no capture was begun on stream %d", o.id)
	}
	c.mu.Lock()
	captured, r := g.d.lib.StreamEndCapture(o.handle)
	if r != cu.Success { // the capture has ended nevertheless, unless libcuda rejected the call early
		if status, asked := g.d.lib.StreamIsCapturing(o.handle); asked == cu.Success && status != cu.CaptureNone {
			g.d.abandon(o)
		}
	}
	c.ended.Store(true)
	c.mu.Unlock()
	err := g.d.fail(call, r, "the capture on stream %d failed", o.id)
	var made *graph
	if err == nil {
		made, err = g.d.instantiate(call, captured)
	}
	o.end()
	c.finish()
	if err != nil {
		return nil, err
	}
	return made, nil
}

// abandon ends the capture that was begun on s and discards it.
func (d *device) abandon(s *stream) {
	if captured, r := d.lib.StreamEndCapture(s.handle); r == cu.Success {
		d.lib.GraphDestroy(captured)
	}
}

// Capturing calls libcuda only for streams of other code.
func (g graphs) Capturing(s driver.Stream) (bool, error) {
	const call = "Graphs.Capturing"
	o := g.d.ownStream(call, s)
	if err := o.beginOrder(call); err != nil {
		return false, err
	}
	defer o.end()
	c, err := o.captured(call)
	return c != nil, err
}

// Ordered returns false for captures that other code began, because no mark covers the work queued before them. It
// calls libcuda at most to query an event from before the capture.
func (g graphs) Ordered(other driver.Stream, m driver.Mark, s driver.Stream) (bool, error) {
	const call = "Graphs.Ordered"
	o, own := g.d.ownStream(call, other), g.d.ownStream(call, s)
	o.check(call, m)
	if err := own.beginOrder(call); err != nil {
		return false, err
	}
	defer own.end()
	before, ok := own.follows(o, m.Tick)
	if !ok {
		return false, nil
	}
	o.marks.mu.Lock()
	defer o.marks.mu.Unlock()
	return o.poll(call, before)
}

// begunBy reports whether the capture was begun on s and is in progress.
func (c *capture) begunBy(s *stream) bool { return !c.ended.Load() && c.origin == s }

// instantiate makes an executable graph of a captured one, and destroys the captured one.
func (d *device) instantiate(call string, captured cu.Graph) (*graph, error) {
	defer d.lib.GraphDestroy(captured)
	n, r := d.lib.GraphNodes(captured)
	if r != cu.Success {
		return nil, d.fail(call, r, "count the nodes")
	}
	exec, r := d.lib.GraphInstantiate(captured)
	if r != cu.Success {
		return nil, d.fail(call, r, "make a graph of %d nodes ready", n)
	}
	g := &graph{d: d, nodes: n, exec: exec}
	d.graphs.add(g)
	return g, nil
}

// Launch on a capturing stream adds the graph to the capture.
func (g *graph) Launch(s driver.Stream) error {
	const call = "Graph.Launch"
	o := g.d.ownStream(call, s)
	if err := o.begin(call); err != nil {
		return err
	}
	defer o.end()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return closedError(call, "the graph")
	}
	if r := g.d.lib.GraphLaunch(g.exec, o.handle); r != cu.Success {
		return g.d.fail(call, r, "a graph of %d nodes on stream %d", g.nodes, o.id)
	}
	o.queued()
	return nil
}

func (g *graph) Nodes() int { return g.nodes }

// Close does not wait for a launch in progress: cuGraphExecDestroy frees the graph when the launch completes. Closing
// twice is not an error, nor is closing after the device.
func (g *graph) Close() error {
	const call = "Graph.Close"
	if err := g.d.enter(call); err != nil {
		return ignoreClosed(err)
	}
	defer g.d.leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	if r := g.d.lib.GraphExecDestroy(g.exec); r != cu.Success {
		return g.d.fail(call, r, "a graph of %d nodes", g.nodes)
	}
	g.closed = true
	g.d.graphs.remove(g)
	return nil
}

// othersError is the error of a call on a stream of other code while other code captures.
func othersError(call string, s *stream) error {
	return capturingError(call, fmt.Sprintf("other code captures, perhaps on its stream %d", s.id))
}

func capturingError(call, detail string) error {
	return &driver.Error{Call: call, Code: driver.ErrCapturing, Detail: detail}
}
