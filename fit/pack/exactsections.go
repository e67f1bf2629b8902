package pack

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// An exactItem is a buffer in terms of sections.
type exactItem struct {
	index       int32   // index into the caller's buffers
	first, past int32   // the sections it lives in, [first, past)
	size        int64   //
	total       int64   // the largest sum of sizes in one of its sections
	width, area float64 // keys of orders, which need no precision
}

// exactSearch is the state of one search. Items are sorted by their first section, and the unplaced ones form a list in
// that order, whose head and end is len(items).
//
// Invariant: an unplaced item's offset is the highest floor it could lie on, so the floor of a section is the lowest
// offset of the unplaced items alive in it; a placed item's offset is final. Every change of an offset and every
// placement is in the trail, and undo reverts them in reverse order.
type exactSearch struct {
	capacity int64
	items    []exactItem
	offset   []int64 // per item
	rank     []int32 // per item: place in the order of this round
	earliest bool    // see prefer

	next, prev []int32 // per item, and one more: the list of unplaced items
	placed     []bool  // per item

	rest   []int64   // per section: sum of the sizes of unplaced items
	weight []float64 // per section: 1 + number of branches that it ended, in all rounds
	floor  []int64   // per section: as of the current node
	fits   []int32   // per section: items that fit onto the floor, as of the current node
	uneven []bool    // per section: an item at its floor would also lie over a lower one, as of the current node

	floors, unevens minima // tables for long lifetimes, or nil

	trail    []exactStep
	branches []int32 // a stack: the items that the nodes on the current path have not tried yet

	settleAll func() exactAnswer // a round

	ctx    context.Context
	pause  int64 // nodes between two checks of ctx: a node of thousands of buffers takes up to a tenth of a second
	turn   int   // rounds so far
	round  int64 // nodes that a round may visit
	budget int64 // nodes left in this round
	nodes  int64 // nodes visited in all rounds
	fails  int   // branches of the search upwards that ended at once
}

// An exactStep is a change that undo can revert: an earlier offset or, if old is negative, a placement.
type exactStep struct {
	item int32
	old  int64
}

const exactPlacement = -1

// newExactSearch cuts time into sections and lists the buffers, all unplaced.
func newExactSearch(buffers []Buffer, capacity int64) (*exactSearch, error) {
	total, err := checkExact(buffers)
	if err != nil {
		return nil, err
	}
	n := len(buffers)
	if n >= math.MaxInt32/2 {
		return nil, fmt.Errorf("pack: %d buffers are too many for an exact search", n)
	}
	times := make([]int64, 0, 2*n)
	for _, b := range buffers {
		times = append(times, b.Lower, b.Upper)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	sections := max(0, len(times)-1)

	s := &exactSearch{
		capacity: min(capacity, total), // stacking all buffers is always a packing
		items:    make([]exactItem, n),
		offset:   make([]int64, n),
		rank:     make([]int32, n),
		next:     make([]int32, n+1),
		prev:     make([]int32, n+1),
		placed:   make([]bool, n),
		rest:     make([]int64, sections),
		weight:   make([]float64, sections),
		floor:    make([]int64, sections),
		fits:     make([]int32, sections),
		uneven:   make([]bool, sections),
		trail:    make([]exactStep, 0, 16*n),
		branches: make([]int32, 0, 16*n),
		round:    int64(max(exactRound, 4*n)),
		pause:    int64(max(1, min(64, 8192/max(1, n)))),
	}
	for i, b := range buffers {
		first, _ := slices.BinarySearch(times, b.Lower)
		past, _ := slices.BinarySearch(times, b.Upper)
		width := float64(b.Upper) - float64(b.Lower)
		s.items[i] = exactItem{
			index: int32(i), first: int32(first), past: int32(past),
			size: b.Size, width: width, area: width * float64(b.Size),
		}
		for t := first; t < past; t++ {
			s.rest[t] += b.Size
		}
	}
	slices.SortStableFunc(s.items, func(a, b exactItem) int { return cmp.Compare(a.first, b.first) })
	for i := range s.items {
		it := &s.items[i]
		it.total = slices.Max(s.rest[it.first:it.past])
	}
	for i := range n + 1 {
		s.next[i] = int32((i + 1) % (n + 1))
		s.prev[i] = int32((i + n) % (n + 1))
	}
	for t := range s.weight {
		s.weight[t] = 1
	}
	if s.wide() {
		s.floors, s.unevens = newMinima(sections), newMinima(sections)
	}
	s.settleAll = s.bySections
	return s, nil
}

// place puts x at its offset and lifts the unplaced items that are alive with it. It walks the list from start, the
// first unplaced item that could be one. It reports whether there was such an item, lifted or not.
func (s *exactSearch) place(x, start int32) (below bool) {
	it := &s.items[x]
	s.placed[x] = true
	s.next[s.prev[x]] = s.next[x]
	s.prev[s.next[x]] = s.prev[x]
	s.trail = append(s.trail, exactStep{item: x, old: exactPlacement})
	for t := it.first; t < it.past; t++ {
		s.rest[t] -= it.size
	}
	if start == x {
		start = s.next[x]
	}
	top, end := s.offset[x]+it.size, int32(len(s.items))
	for y := start; y != end && s.items[y].first < it.past; y = s.next[y] {
		if s.items[y].past > it.first {
			below = true
			s.lift(y, top)
		}
	}
	return below
}

// lift raises the offset of an unplaced item to at least to.
func (s *exactSearch) lift(x int32, to int64) {
	if old := s.offset[x]; old < to {
		s.trail = append(s.trail, exactStep{item: x, old: old})
		s.offset[x] = to
	}
}

// undo reverts all but the first n steps.
func (s *exactSearch) undo(n int) {
	for i := len(s.trail) - 1; i >= n; i-- {
		step := s.trail[i]
		x := step.item
		if step.old != exactPlacement {
			s.offset[x] = step.old
			continue
		}
		s.placed[x] = false
		s.next[s.prev[x]], s.prev[s.next[x]] = x, x
		it := &s.items[x]
		for t := it.first; t < it.past; t++ {
			s.rest[t] += it.size
		}
	}
	s.trail = s.trail[:n]
}
