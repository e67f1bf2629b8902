//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Graphs are captured in the relaxed mode. The others bind a capture to the thread that began it, and a goroutine has
// none; and they forbid memory to be allocated during a capture (to the thread, or to all), which is what this module
// is for. What relaxed mode would let through and spoil the capture is refused here, before libcuda sees it: see
// capture.go.

type graphs struct{ d *device }

func (d *device) Graphs() driver.Graphs { return graphs{d} }

// A graph is a CUgraphExec.
type graph struct {
	d     *device
	nodes int

	mu     sync.Mutex // after a stream's: libcuda wants launches of one graph one after another
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

// End also fails with ErrInvalid on a stream on which no capture was begun, and changes nothing then.
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
	if r != cu.Success { // then it has ended all the same, unless libcuda did not look at it
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

// abandon ends the capture that was begun on s, for nothing.
func (d *device) abandon(s *stream) {
	if captured, r := d.lib.StreamEndCapture(s.handle); r == cu.Success {
		d.lib.GraphDestroy(captured)
	}
}

// Capturing asks libcuda only about streams of other code.
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

// Ordered is no of captures that other code began: what was queued before them is behind no mark. It calls libcuda, at
// most, to ask about an event of before the capture.
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

// begunBy reports whether the capture was begun on s, and goes on.
func (c *capture) begunBy(s *stream) bool { return !c.ended.Load() && c.origin == s }

// instantiate makes what was captured ready for launch, and gives the template up.
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

// Launch on a stream that captures makes the graph part of what is captured.
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

// Close leaves it to libcuda to wait for a launch that is under way: cuGraphExecDestroy frees such a graph on
// completion. Closing twice is not an error, nor is closing after the device.
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

func capturingError(call, detail string) error {
	return &driver.Error{Call: call, Code: driver.ErrCapturing, Detail: detail}
}
