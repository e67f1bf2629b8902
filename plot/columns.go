package plot

import (
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
)

// columns is a part of a recording, divided into columns of equal time, or of equally many events if the events have no
// times or the caller prefers events. A column stands for one moment: that with the most requested memory of the events
// in it, or of the one before it if it has none. So peaks of any duration are shown, and what a column shows adds up.
type columns struct {
	h           *holders.History
	first, last int // events; both -1 if the history has none
	timed       bool
	moments     []int32 // events, ascending, one for each column
}

func newColumns(h *holders.History, first, last, n int, axis Axis) *columns {
	c := &columns{h: h, first: first, last: last}
	c.timed = axis != AxisEvents && last > first && h.Since(last) > h.Since(first)
	if c.timed && axis == AxisAuto {
		longest := time.Duration(0)
		for e := first + 1; e <= last; e++ {
			longest = max(longest, h.Since(e)-h.Since(e-1))
		}
		c.timed = longest <= (h.Since(last)-h.Since(first))/4
	}
	c.moments = make([]int32, n)
	column := 0
	c.moments[0] = int32(first)
	most := h.ActiveBytes(first)
	for e, bytes := range h.Active(first+1, last+1) {
		at := min(int(c.position(e)*float64(n)), n-1)
		for column < at { // times may run back between threads; columns do not
			column++
			c.moments[column] = int32(e - 1)
			if column == at {
				c.moments[column], most = int32(e), bytes
			}
		}
		if bytes > most {
			c.moments[column], most = int32(e), bytes
		}
	}
	for column++; column < n; column++ {
		c.moments[column] = int32(last)
	}
	return c
}

// position returns where an event is, from 0 to 1.
func (c *columns) position(event int) float64 {
	switch {
	case c.last <= c.first:
		return 0
	case c.timed:
		span := c.h.Since(c.last) - c.h.Since(c.first)
		return min(max(float64(c.h.Since(event)-c.h.Since(c.first))/float64(span), 0), 1)
	}
	return float64(event-c.first) / float64(c.last-c.first)
}

// span returns the columns at whose moments something is there that began with the event start and ended with the event
// end: from the first one to that before the second one.
func (c *columns) span(start, end int32) (from, to int) {
	from, _ = slices.BinarySearch(c.moments, start)
	to, _ = slices.BinarySearch(c.moments, end)
	return from, to
}

// reserved returns the maximum of the reserved bytes in each column, and the reserved bytes at a moment.
func (c *columns) reserved(segments []holders.Segment, moment int) (most []int64, at int64) {
	type change struct {
		event int32
		bytes int64
	}
	var changes []change
	for i := range segments {
		s := &segments[i]
		changes = append(changes, change{s.Start, s.Size}, change{s.End, -s.Size})
		if s.ActiveAt(moment) {
			at += s.Size
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return int(a.event) - int(b.event) })
	most = make([]int64, len(c.moments))
	var bytes int64
	n, column := 0, 0
	until := func(event int32) { // after it
		for ; n < len(changes) && changes[n].event <= event; n++ {
			bytes += changes[n].bytes
		}
	}
	until(int32(c.first))
	for column < len(most) {
		most[column] = max(most[column], bytes)
		if n < len(changes) && int(changes[n].event) <= c.last {
			event := changes[n].event
			if at := min(int(c.position(int(event))*float64(len(most))), len(most)-1); at > column {
				column++
				continue
			}
			until(event)
			continue
		}
		column++
	}
	return most, at
}

// failures returns the events at which requests failed.
func (c *columns) failures() (events []int) {
	for _, e := range c.h.Trace.Find(mem.ActionOOM) {
		if int(e) >= c.first && int(e) <= c.last {
			events = append(events, int(e))
		}
	}
	return events
}

// peak returns the event with the most requested bytes.
func (c *columns) peak() int {
	best := c.first
	for _, e := range c.moments {
		if c.h.ActiveBytes(int(e)) > c.h.ActiveBytes(best) {
			best = int(e)
		}
	}
	return best
}
