package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// A graph is the work that a capture recorded. The memory behind its addresses is looked up at each launch.
type graph struct {
	d      *Device
	id     uint64
	nodes  []node
	forks  bool // some nodes are on different branches
	closed bool

	last     *timeline // the stream of the last launch, and its tick there
	lastTick uint64
}

// Nodes returns the number of pieces of work in the graph.
func (g *graph) Nodes() int { return len(g.nodes) }

// Launch queues the graph as one piece of work, after a wait for its last launch if that was on another stream.
func (g *graph) Launch(s driver.Stream) error {
	d, own := g.d, g.d.ownStream(CallLaunchGraph, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := own.timeline
	if err := own.beginNow(CallLaunchGraph, int64(len(g.nodes)), g.id); err != nil {
		return err
	}
	if g.closed {
		return d.fail(CallLaunchGraph, driver.ErrClosed, fmt.Sprintf("graph %d is closed", g.id))
	}
	d.charge(CallLaunchGraph, g.carried())
	if g.last != nil && g.last != tl {
		d.waitFor(tl, g.last, g.lastTick)
		d.submit(tl, work{call: CallWaitFor, other: g.last, tick: g.lastTick})
	}
	parts, err := g.claim(tl)
	if err != nil {
		return err
	}
	d.record()
	d.submit(tl, work{call: CallLaunchGraph, parts: &parts})
	g.last, g.lastTick = tl, tl.queued
	return nil
}

// carried returns the time that the bytes of the graph's copies and fills take.
func (g *graph) carried() (sum time.Duration) {
	for i := range g.nodes {
		n := &g.nodes[i]
		for _, list := range [2][]driver.Range{n.reads, n.writes} {
			if n.call != CallLaunch && len(list) > 0 {
				sum += g.d.model.carried(n.call, list[0].Size)
				break // a copy reads as much as it writes
			}
		}
	}
	return sum
}

// claim claims the accesses of all nodes for the timeline's next tick, and returns them as work.
func (g *graph) claim(tl *timeline) ([]work, error) {
	d := g.d
	parts := make([]work, len(g.nodes))
	var faults []error
	d.startClaims(tl)
	for i := range g.nodes {
		n := &g.nodes[i]
		if err := d.wantPinned(n.call, n.data); err != nil {
			return nil, err
		}
		parts[i] = n.work
		parts[i].graph, parts[i].seq = g.id, d.seq
		common := parts[i].access(d, tl)
		common.Site = n.site
		from, to := len(d.reads), len(d.writes)
		faults = d.addClaims(faults, common, n.reads, n.writes)
		parts[i].src, parts[i].dst = slices.Clone(d.reads[from:]), slices.Clone(d.writes[to:])
		if n.call == CallCopy && overlap(parts[i].src, parts[i].dst) {
			return nil, d.fail(CallLaunchGraph, driver.ErrInvalid,
				fmt.Sprintf("piece %d of graph %d: %s", i+1, g.id, overlapping(n.reads[0], n.writes[0])))
		}
	}
	if g.forks {
		for _, race := range g.races() {
			faults = d.report(faults, race, !d.opts.ReportOnly)
		}
	}
	return parts, d.refuse(CallLaunchGraph, faults)
}

// races returns a race for each two accesses of the last claim that conflict and that the capture does not order. It
// visits the claimed pieces in the order of their addresses, and keeps those that overlap the next.
func (g *graph) races() (found []*RaceError) {
	type extent struct {
		piece
		access *Access
	}
	var all []extent
	for _, c := range g.d.claims {
		pieces := g.d.reads
		if c.access.Write {
			pieces = g.d.writes
		}
		for _, p := range pieces[c.lo:c.hi] {
			all = append(all, extent{p, c.access})
		}
	}
	slices.SortStableFunc(all, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.object.seed, b.object.seed), cmp.Compare(a.off, b.off))
	})
	var open []extent
	for _, e := range all {
		open = slices.DeleteFunc(open, func(o extent) bool { return o.object != e.object || o.off+o.n <= e.off })
		for _, o := range open {
			first, second := o, e
			if first.access.Node > second.access.Node {
				first, second = second, first
			}
			a, b := first.access, second.access
			if !a.Write && !b.Write || a.Node == b.Node || g.nodes[a.Node-1].before(&g.nodes[b.Node-1]) ||
				slices.ContainsFunc(found, func(r *RaceError) bool { return r.First.same(a) && r.Second.same(b) }) {
				continue
			}
			end := min(o.off+o.n, e.off+e.n)
			found = append(found, &RaceError{First: *a, Second: *b, Range: driver.Range{
				Ptr: driver.Pointer(second.at + e.off - second.off), Size: int64(end - e.off),
			}})
		}
		open = append(open, e)
	}
	return found
}

// Close destroys the graph. Launches that are queued are still done.
func (g *graph) Close() error {
	d := g.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.closed || d.closed {
		return nil
	}
	if err := d.begin(CallCloseGraph, d.cost(CallCloseGraph, int64(len(g.nodes))), g.id); err != nil {
		return err
	}
	g.closed = true
	delete(d.graphs, g.id)
	return nil
}
