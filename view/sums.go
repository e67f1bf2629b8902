package view

import "github.com/ashlar-go/ashlar/trace"

// group is the number of events of which the latest time is kept, and leaf that of blocks in a leaf of an endTree.
const (
	group = 128
	leaf  = 64
)

// An endTree finds the blocks that are active at a moment. A node has the last End of the blocks below it: of leaf
// blocks at the lowest level, and of two nodes above.
type endTree [][]int32

func endTreeOf(blocks *trace.Lifetimes) endTree {
	lowest := make([]int32, (blocks.Len()+leaf-1)/leaf)
	for i := range blocks.Len() {
		lowest[i/leaf] = max(lowest[i/leaf], int32(blocks.End(i)))
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
func (t endTree) active(blocks *trace.Lifetimes, event int, list []uint32) []uint32 {
	limit := blocks.Since(event)
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
			if blocks.End(i) > event {
				list = append(list, uint32(i))
			}
		}
	}
	if blocks.Len() > 0 {
		visit(len(t)-1, 0)
	}
	return list
}

// begun calls visit for the blocks that begin after an earlier moment, up to an event, and are active after it, in the
// order of their allocations, until it returns false. Next is the first block that begins later than that moment; begun
// returns the one for the event. Groups of blocks that have all ended are passed over.
func (t endTree) begun(blocks *trace.Lifetimes, next, event int, visit func(i uint32) bool) int {
	for next < blocks.Len() && blocks.Start(next) <= event {
		n := next + leaf
		if next%leaf == 0 && n <= blocks.Len() && int(t[0][next/leaf]) <= event && blocks.Start(n-1) <= event {
			next = n
			continue
		}
		if blocks.End(next) > event && !visit(uint32(next)) {
			return next
		}
		next++
	}
	return next
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
	blocks := a.r.lives
	if !a.begun {
		a.begun = true
		a.list = a.r.ends.active(blocks, event, nil)
		a.next = blocks.Since(event)
		if a.match != nil {
			a.list = filtered(a.list, a.match)
		}
		return
	}
	a.list = filtered(a.list, func(i uint32) bool { return blocks.End(int(i)) > event })
	a.next = a.r.ends.begun(blocks, a.next, event, func(i uint32) bool {
		if a.match == nil || a.match(i) {
			a.list = append(a.list, i)
		}
		return true
	})
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
