package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
)

// A capture is the work that some streams record after one Begin. Each of these streams has a branch. Work on different
// branches is ordered only by waits for marks that were taken in the capture. So a capture has a history of its own,
// with a clock for each branch as in clock.go, whose ticks count pieces of work: captured work takes no ticks of the
// streams.
//
// A mark does take a tick of its stream, so that each mark has a different value. Once the capture has ended, a wait
// for such a mark waits only for ordinary work that was queued before.
type capture struct {
	nodes    []node
	branches []*branch // in the order in which streams were drawn in; the first is of the stream that began
	marks    map[driver.Mark]clock
}

// A branch is one stream's part of a capture.
type branch struct {
	capture *capture
	tl      *timeline
	before  uint64 // the stream's last tick before the capture
	tick    uint64 // of its last piece of work; being drawn in counts as one
	after   clock  // the work on other branches that its next work comes after; never changed in place
}

// A node is a piece of work as it was captured.
type node struct {
	work
	reads, writes []driver.Range
	site          string
	on            driver.StreamID
	tick          uint64
	after         clock
}

// before reports whether n comes before m, a later node of the same capture.
func (n *node) before(m *node) bool { return n.on == m.on || m.after.at(n.on) >= n.tick }

// graphs implements driver.Graphs.
type graphs struct{ d *Device }

// Graphs implements driver.Device. A call that cannot be captured fails and changes nothing: the capture continues. A
// stream in a capture can wait for marks taken in the capture, and otherwise only for marks that the host knows to be
// reached.
func (d *Device) Graphs() driver.Graphs { return graphs{d} }

func (g graphs) Begin(s driver.Stream) error {
	d, own := g.d, g.d.ownStream(CallBeginCapture, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := own.beginNow(CallBeginCapture, 0); err != nil {
		return err
	}
	if own == d.standard {
		return d.refuseDefault(CallBeginCapture)
	}
	c := &capture{marks: map[driver.Mark]clock{}}
	c.draw(own.timeline, nil)
	return nil
}

func (d *Device) refuseDefault(c Call) error {
	return d.fail(c, driver.ErrCapturing, "the default stream cannot capture: use one of NewStream")
}

// notCapturing fails if the stream captures.
func (d *Device) notCapturing(c Call, tl *timeline) error {
	if tl.branch == nil {
		return nil
	}
	return d.fail(c, driver.ErrCapturing, fmt.Sprintf("stream %d captures", tl.id))
}

// draw gives a stream a branch of the capture.
func (c *capture) draw(tl *timeline, after clock) {
	tl.branch = &branch{capture: c, tl: tl, before: tl.queued, tick: 1, after: after}
	c.branches = append(c.branches, tl.branch)
}

// record adds a piece of work to the branch.
func (b *branch) record(d *Device, w work, reads, writes []driver.Range) {
	for _, list := range [2][]driver.Range{reads, writes} {
		for _, r := range list {
			notNegative(w.call, r.Size)
		}
	}
	b.tick++
	w.node = len(b.capture.nodes) + 1
	b.capture.nodes = append(b.capture.nodes, node{
		work: w, reads: slices.Clone(reads), writes: slices.Clone(writes), site: d.site(),
		on: b.tl.id, tick: b.tick, after: b.after,
	})
}

// mark takes a mark in the capture.
func (b *branch) mark(d *Device) driver.Mark {
	tl := b.tl
	if tl.done == tl.queued { // no queued work precedes it
		tl.queued++
		tl.done++
	} else {
		d.submit(tl, work{call: CallMark})
	}
	m := driver.Mark{Stream: tl.id, Tick: tl.queued}
	b.capture.marks[m] = slices.Clone(b.after).set(tl.id, b.tick)
	return m
}

// holds reports whether m was taken in the branch's capture.
func (b *branch) holds(m driver.Mark) bool {
	_, ok := b.capture.marks[m]
	return ok
}

// waitInCapture makes the next work of s come after a mark of a capture, and draws s into it.
func (d *Device) waitInCapture(s *Stream, c *capture, m driver.Mark) error {
	switch tl := s.timeline; {
	case s == d.standard:
		return d.refuseDefault(CallWaitFor)
	case tl.branch == nil:
		c.draw(tl, c.marks[m])
	case tl.branch.capture != c:
		return d.fail(CallWaitFor, driver.ErrCapturing, fmt.Sprintf("streams %d and %d are in captures of their own",
			tl.id, m.Stream))
	default:
		tl.branch.after = slices.Clone(tl.branch.after).raise(c.marks[m])
	}
	return nil
}

// waitOutOfCapture is WaitFor on a stream that captures, with a mark that was not taken in its capture. It succeeds,
// and does nothing, if the mark is of the stream itself, or if the host knows that it is reached.
func (d *Device) waitOutOfCapture(tl *timeline, m driver.Mark) error {
	known := d.host.at(m.Stream)
	if d.opts.Unchecked {
		known = d.timelines[m.Stream].done
	}
	if m.Stream == tl.id || m.Tick <= known {
		return nil
	}
	return d.fail(CallWaitFor, driver.ErrCapturing, fmt.Sprintf("stream %d captures, and the mark of stream %d was not "+
		"taken in its capture: wait for it before Begin", tl.id, m.Stream))
}

func (g graphs) End(s driver.Stream) (driver.Graph, error) {
	d, own := g.d, g.d.ownStream(CallEndCapture, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := own.begin(CallEndCapture, 0); err != nil {
		return nil, err
	}
	b := own.timeline.branch
	if b == nil || b != b.capture.branches[0] {
		return nil, d.fail(CallEndCapture, driver.ErrInvalid,
			fmt.Sprintf("no capture began on stream %d", own.timeline.id))
	}
	c := b.capture
	d.charge(CallEndCapture, d.cost(CallEndCapture, int64(len(c.nodes)))-d.cost(CallEndCapture, 0))
	var loose []string
	for _, other := range c.branches {
		other.tl.branch = nil
		if other != b && b.after.at(other.tl.id) < other.tick {
			loose = append(loose, fmt.Sprint(other.tl.id))
		}
	}
	if loose != nil {
		return nil, d.fail(CallEndCapture, driver.ErrInvalid, fmt.Sprintf("the capture failed: stream %d did not "+
			"wait, at last, for what was drawn in: stream %s", own.timeline.id, strings.Join(loose, ", ")))
	}
	d.lastGraph++
	d.addToHash(uint64(len(c.nodes)))
	made := &graph{d: d, id: d.lastGraph, nodes: c.nodes, forks: len(c.branches) > 1}
	d.graphs[made.id] = made
	return made, nil
}

func (g graphs) Capturing(s driver.Stream) (bool, error) {
	const call = "Graphs.Capturing"
	d, own := g.d, g.d.ownStream(call, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || own.closed {
		return false, notOpen(call)
	}
	return own.timeline.branch != nil, nil
}

// Ordered does not count as a call. If it returns true, the host knows that the work is done that was queued on other
// before other was drawn into the capture.
func (g graphs) Ordered(other driver.Stream, m driver.Mark, s driver.Stream) (bool, error) {
	const call = "Graphs.Ordered"
	d, from, own := g.d, g.d.ownStream(call, other).timeline, g.d.ownStream(call, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	from.valid(call, m)
	if d.closed || own.closed {
		return false, notOpen(call)
	}
	b := own.timeline.branch
	if b == nil || from.branch == nil || from.branch.capture != b.capture || from.done < from.branch.before {
		return false, nil
	}
	covered, ok := b.capture.marks[m]
	if !ok || !b.follows(covered) {
		return false, nil
	}
	d.markSeen(from, from.branch.before)
	return true, nil
}

// follows reports whether the next work of the branch comes after the work of a mark. Being drawn in does not count as
// work.
func (b *branch) follows(mark clock) bool {
	for id, tick := range mark {
		if id := driver.StreamID(id); tick > 1 && id != b.tl.id && tick > b.after.at(id) {
			return false
		}
	}
	return true
}

func notOpen(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the device or stream is closed"}
}
