package view

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
)

// A segment is reserved memory, with the address after its last byte.
type segment struct {
	holders.Segment
	limit driver.Pointer
}

// segmentsOf returns all segments of a recording, by address and then by time.
func segmentsOf(h *holders.History) []segment {
	list := h.Segments()
	all := make([]segment, len(list))
	for i, g := range list {
		all[i] = segment{g, g.Ptr + driver.Pointer(g.Size)}
	}
	slices.SortFunc(all, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.Ptr, b.Ptr), cmp.Compare(a.Start, b.Start))
	})
	return all
}

// A level is the reserved memory from an event to that of the next level.
type level struct {
	event int32
	bytes int64
}

// levelsOf returns the reserved memory over time. The first level is that of event -1.
func levelsOf(segments []segment) []level {
	changes := make([]level, 0, 2*len(segments))
	for i := range segments {
		g := &segments[i]
		changes = append(changes, level{g.Start, g.Size}, level{g.End, -g.Size})
	}
	slices.SortStableFunc(changes, func(a, b level) int { return cmp.Compare(a.event, b.event) })
	levels := []level{{event: -1}}
	for _, c := range changes {
		last := &levels[len(levels)-1]
		if last.event != c.event {
			levels = append(levels, level{c.event, last.bytes})
			last = &levels[len(levels)-1]
		}
		last.bytes += c.bytes
	}
	return levels
}

// reservedIn returns the highest reserved memory after the events first to last, and the event that reached it.
func reservedIn(levels []level, first, last int) (bytes int64, event int) {
	n, found := slices.BinarySearchFunc(levels, first, func(l level, event int) int {
		return cmp.Compare(int(l.event), event)
	})
	if !found {
		n--
	}
	bytes, event = levels[n].bytes, max(first, int(levels[n].event))
	for n++; n < len(levels) && int(levels[n].event) <= last; n++ {
		if levels[n].bytes > bytes {
			bytes, event = levels[n].bytes, int(levels[n].event)
		}
	}
	return bytes, event
}

// A span is a range of addresses on the axis of addresses, where the ranges lie side by side.
type span struct {
	ptr  driver.Pointer
	size int64
	y    int64
}

// spansOf returns all ranges of addresses that were ever mapped or, outside of all segments, in a block, ascending.
func spansOf(r *Recording) []span {
	var ranges []addressRange // by address
	for i := range r.segments {
		ranges = appendRange(ranges, addressRange{r.segments[i].Ptr, r.segments[i].limit})
	}
	known := spansFrom(ranges)
	var others [2][]addressRange // of each half of the blocks
	var halves sync.WaitGroup
	n := r.lives.Len()
	halves.Go(func() { others[0] = r.outside(known, 0, n/2) })
	others[1] = r.outside(known, n/2, n)
	halves.Wait()
	if len(others[0])+len(others[1]) == 0 {
		return known
	}
	ranges = slices.Concat(ranges, others[0], others[1])
	slices.SortFunc(ranges, func(a, b addressRange) int { return cmp.Compare(a.ptr, b.ptr) })
	var joined []addressRange
	for _, x := range ranges {
		joined = appendRange(joined, x)
	}
	return spansFrom(joined)
}

// outside returns the ranges of the blocks from one index up to another that begin outside of spans.
func (r *Recording) outside(known []span, from, limit int) (ranges []addressRange) {
	for i := from; i < limit; i++ {
		ptr := r.lives.Ptr(i)
		if _, ok := yOf(known, ptr); ok {
			continue
		}
		if size := r.lives.Size(i); size > 0 {
			ranges = append(ranges, addressRange{ptr, ptr + driver.Pointer(size)})
		}
	}
	return ranges
}

// An addressRange is the addresses from ptr to limit-1.
type addressRange struct{ ptr, limit driver.Pointer }

// appendRange adds a range to ranges that begin at or before it, and joins it with the last.
func appendRange(ranges []addressRange, x addressRange) []addressRange {
	if n := len(ranges); n > 0 && ranges[n-1].limit >= x.ptr {
		ranges[n-1].limit = max(ranges[n-1].limit, x.limit)
		return ranges
	}
	return append(ranges, x)
}

func spansFrom(ranges []addressRange) []span {
	spans := make([]span, 0, len(ranges))
	y := int64(0)
	for _, x := range ranges {
		size := int64(x.limit - x.ptr)
		spans = append(spans, span{x.ptr, size, y})
		y += size
	}
	return spans
}

// yOf returns the position of an address on the axis.
func yOf(spans []span, p driver.Pointer) (y int64, ok bool) {
	n, found := slices.BinarySearchFunc(spans, p, func(s span, p driver.Pointer) int { return cmp.Compare(s.ptr, p) })
	if !found {
		n--
	}
	if n < 0 || p >= spans[n].ptr+driver.Pointer(spans[n].size) {
		return 0, false
	}
	return spans[n].y + int64(p-spans[n].ptr), true
}

// addressOf returns the address at a position of the axis.
func addressOf(spans []span, y int64) (p driver.Pointer, ok bool) {
	n, found := slices.BinarySearchFunc(spans, y, func(s span, y int64) int { return cmp.Compare(s.y, y) })
	if !found {
		n--
	}
	if n < 0 || y >= spans[n].y+spans[n].size {
		return 0, false
	}
	return spans[n].ptr + driver.Pointer(y-spans[n].y), true
}
