package view

import (
	"math"
	"sort"

	"github.com/ashlar-go/ashlar/holders"
)

// group is the number of events whose extremes are kept, and of blocks in a leaf of an endTree.
const (
	group = 128
	leaf  = 64
)

// An extreme has the extremes of the active bytes in a group of events.
type extreme struct {
	high, low int64
	at        int32 // the first event with the high
}

// extremesOf returns the extremes of all groups. The first group begins with event 0.
func extremesOf(h *holders.History) []extreme {
	n := len(h.Trace.Events)
	all := make([]extreme, 0, (n+group-1)/group)
	for first := 0; first < n; first += group {
		all = append(all, extremeIn(h, first, min(first+group, n)))
	}
	return all
}

// extremeIn returns the extremes after the events first to limit-1, of which there is at least one.
func extremeIn(h *holders.History, first, limit int) extreme {
	x := extreme{high: math.MinInt64, low: math.MaxInt64}
	for i := first; i < limit; i++ {
		bytes := h.ActiveBytes(i)
		if bytes > x.high {
			x.high, x.at = bytes, int32(i)
		}
		x.low = min(x.low, bytes)
	}
	return x
}

// extreme returns the extremes after the events first to limit-1. Beyond some groups it takes whole ones.
func (r *Recording) extreme(first, limit int) extreme {
	if first < 0 && limit <= 1 || limit-first <= 2*group {
		return extremeIn(r.h, first, limit)
	}
	x := extremeIn(r.h, first, (max(first, 0)/group+1)*group)
	for n := max(first, 0)/group + 1; (n+1)*group <= limit; n++ {
		x = x.join(r.extremes[n])
	}
	if rest := limit / group * group; rest < limit {
		x = x.join(extremeIn(r.h, rest, limit))
	}
	return x
}

func (x extreme) join(later extreme) extreme {
	if later.high > x.high {
		x.high, x.at = later.high, later.at
	}
	x.low = min(x.low, later.low)
	return x
}

// An endTree finds the blocks that are active at a moment. A node has the last End of the blocks below it: of leaf
// blocks at the lowest level, and of two nodes above.
type endTree [][]int32

func endTreeOf(blocks []holders.Block) endTree {
	lowest := make([]int32, (len(blocks)+leaf-1)/leaf)
	for i := range blocks {
		lowest[i/leaf] = max(lowest[i/leaf], blocks[i].End)
	}
	t := endTree{lowest}
	for below := lowest; len(below) > 1; {
		next := make([]int32, (len(below)+1)/2)
		for i, end := range below {
			next[i/2] = max(next[i/2], end)
		}
		t, below = append(t, next), next
	}
	return t
}

// active appends the indices of the blocks that are active after an event, in the order of their allocations.
func (t endTree) active(blocks []holders.Block, event int, list []uint32) []uint32 {
	limit := sort.Search(len(blocks), func(i int) bool { return int(blocks[i].Start) > event })
	var visit func(depth, node int)
	visit = func(depth, node int) {
		if node<<depth*leaf >= limit || int(t[depth][node]) <= event {
			return
		}
		if depth > 0 {
			visit(depth-1, 2*node)
			if 2*node+1 < len(t[depth-1]) {
				visit(depth-1, 2*node+1)
			}
			return
		}
		for i := node * leaf; i < min((node+1)*leaf, limit); i++ {
			if int(blocks[i].End) > event {
				list = append(list, uint32(i))
			}
		}
	}
	if len(blocks) > 0 {
		visit(len(t)-1, 0)
	}
	return list
}

// activeSet follows the active blocks from moment to moment.
type activeSet struct {
	r     *Recording
	match func(i uint32) bool // nil: all blocks
	list  []uint32            // in the order of their allocations
	next  int                 // the first block that begins later
	begun bool
}

// advance moves to the moment after an event, which is not before that of the last call.
func (a *activeSet) advance(event int) {
	blocks := a.r.blocks
	if !a.begun {
		a.begun = true
		a.list = a.r.ends.active(blocks, event, nil)
		a.next = sort.Search(len(blocks), func(i int) bool { return int(blocks[i].Start) > event })
		if a.match != nil {
			a.list = filtered(a.list, a.match)
		}
		return
	}
	a.list = filtered(a.list, func(i uint32) bool { return int(blocks[i].End) > event })
	for ; a.next < len(blocks) && int(blocks[a.next].Start) <= event; a.next++ {
		if int(blocks[a.next].End) > event && (a.match == nil || a.match(uint32(a.next))) {
			a.list = append(a.list, uint32(a.next))
		}
	}
}

// filtered keeps the items that match, in place.
func filtered(list []uint32, match func(uint32) bool) []uint32 {
	kept := list[:0]
	for _, i := range list {
		if match(i) {
			kept = append(kept, i)
		}
	}
	return kept
}
