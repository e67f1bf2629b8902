package replay

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A CurvePoint is the memory of an allocator during a part of a run.
type CurvePoint struct {
	Entry     int   // of the last allocation of the part: an index into Trace.Events, or that of the op in a script
	Reserved  int64 // the most bytes in segments in this part
	Allocated int64 // the most requested bytes of active blocks
}

// Curve runs w as Simulate does, and returns the memory over time: a maximum number of points, for equal numbers of
// allocations, each with the peaks of its part. The points end with a request that has no room. The error is that of
// Simulate.
func Curve(w *Work, spec string, limit, capacity int64, points int) ([]CurvePoint, error) {
	s, err := ParseSpec(spec, w.Recorded)
	if err != nil {
		return nil, err
	}
	if capacity, err = w.capacity(capacity); err != nil {
		return nil, err
	}
	c := newCurve(w, points)
	r := simulation{work: w, spec: &s, limit: limit, capacity: capacity, ungauged: true}
	r.beforeRun, r.onAlloc, r.afterAlloc = c.follow, c.allocate, c.read
	if _, err := r.do(); err != nil {
		return nil, err
	}
	return c.points, nil
}

// A curve collects the points.
type curve struct {
	entries []int // of the allocations
	every   int   // allocations for each point
	points  []CurvePoint
	stats   mem.StatsReporter
}

func newCurve(w *Work, points int) *curve {
	c := &curve{}
	for i := range w.Program.Ops {
		if kind := w.Program.Ops[i].Kind; kind != trace.OpAlloc && kind != trace.OpTry {
			continue
		}
		entry := i
		if w.Program.Entries != nil {
			entry = -1
			if n := w.Program.Entries[i]; n != trace.NoEntry {
				entry = int(n)
			}
		}
		c.entries = append(c.entries, entry)
	}
	c.every = max(1, (len(c.entries)+points-1)/max(points, 1))
	return c
}

func (c *curve) follow(a mem.Allocator) { c.stats, _ = mem.Find[mem.StatsReporter](a) }

// allocate begins the n-th allocation, and a new point if it is the first of one.
func (c *curve) allocate(n int) {
	if (n-1)%c.every == 0 {
		c.points = append(c.points, CurvePoint{})
	}
	if n <= len(c.entries) {
		c.points[len(c.points)-1].Entry = c.entries[n-1]
	}
}

// read notes the memory after an allocation: between two, none rises.
func (c *curve) read() {
	if c.stats == nil {
		return
	}
	stats := c.stats.Stats()
	p := &c.points[len(c.points)-1]
	p.Reserved = max(p.Reserved, stats.ReservedBytes.All.Current)
	p.Allocated = max(p.Allocated, stats.RequestedBytes.All.Current)
}
