package timeline

import (
	"maps"
	"slices"
)

// A history holds at most max spans, numbered from 1 in the order in which they began: the newest half of them, and of
// the older ones those that lie in the fewest others, so that a span around many short ones outlives these.
type history struct {
	newest ring[span]
	outer  older
}

func newHistory(limit int) history {
	return history{newest: ring[span]{max: limit - limit/2}, outer: older{room: limit / 2}}
}

// older holds the spans that newer ones have pushed out of the ring. When it is full, the oldest of the deepest is
// dropped.
type older struct {
	room    int
	at      map[uint64]*span
	byDepth [deepest + 1][]uint64 // numbers, ascending
	dropped int64
}

const deepest = 31 // spans in this many others or more are equally deep

// push adds a span and returns its number, and the number of the span dropped for it, or 0, with that span.
func (h *history) push(v span) (number, goneNumber uint64, gone span) {
	number, old, full := h.newest.push(v)
	if !full {
		return number, 0, span{}
	}
	goneNumber, gone = h.outer.add(h.newest.first, old)
	return number, goneNumber, gone
}

// add keeps a span newer than all others, and returns the number of the dropped span, which may be the new one, or 0.
func (o *older) add(number uint64, v span) (goneNumber uint64, gone span) {
	depth := min(v.depth, deepest)
	var to *span
	if len(o.at) < o.room {
		to = new(span)
	} else {
		last := deepest
		for last > depth && len(o.byDepth[last]) == 0 {
			last--
		}
		o.dropped++
		if len(o.byDepth[last]) == 0 {
			return number, v
		}
		goneNumber = o.byDepth[last][0]
		o.byDepth[last] = o.byDepth[last][1:]
		to = o.at[goneNumber]
		gone = *to
		delete(o.at, goneNumber)
	}
	*to = v
	if o.at == nil {
		o.at = map[uint64]*span{}
	}
	o.at[number] = to
	o.byDepth[depth] = append(o.byDepth[depth], number)
	return goneNumber, gone
}

// get returns the span with a number, or nil if it was dropped. The pointer is valid until the next push.
func (h *history) get(number uint64) *span {
	if number > h.newest.first {
		return h.newest.get(number)
	}
	return h.outer.at[number]
}

// last is the number of the newest span.
func (h *history) last() uint64 { return h.newest.last }

// dropped is the number of spans dropped since the last clear.
func (h *history) dropped() int64 { return h.outer.dropped }

// numbers returns the numbers of the kept spans, ascending.
func (h *history) numbers() []uint64 {
	all := make([]uint64, 0, uint64(len(h.outer.at))+h.newest.last-h.newest.first)
	all = slices.AppendSeq(all, maps.Keys(h.outer.at))
	slices.Sort(all)
	for n := h.newest.first + 1; n <= h.newest.last; n++ {
		all = append(all, n)
	}
	return all
}

// clear removes all spans and returns them. Numbers go on.
func (h *history) clear() []span {
	var all []span
	for _, n := range h.numbers() {
		all = append(all, *h.get(n))
	}
	h.newest.clear()
	h.outer = older{room: h.outer.room}
	return all
}
