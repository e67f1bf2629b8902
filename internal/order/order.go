// Package order records which work of a capture is ordered before which.
//
// A capture has a Branch for each of its streams. A branch counts the work captured on it and holds a vector clock: for
// every other branch, the number of pieces of work that its own next work comes after. It keeps the clock of each
// marked tick, so a wait for a mark, or a query, takes time proportional to the number of branches, not to the length
// of the capture.
//
// Captures are not safe for concurrent use: callers lock.
package order

import (
	"slices"
	"sort"
)

// A Capture numbers its branches. The zero value has none.
type Capture struct{ branches int }

// A Branch is one stream's part of a capture.
type Branch struct {
	Before uint64 // the stream's last tick of before the capture: what was queued up to it is not captured

	index  int
	works  int   // being drawn in is the first
	after  clock // what its next work comes after, itself left out; never changed in place
	places []place
}

// A place is where a branch stood from a tick on.
type place struct {
	tick  uint64
	works int
	after clock
}

// A clock is a number of pieces of work for each branch, by its index. Branches beyond its length are at 0.
type clock []int

func (c clock) at(index int) int {
	if index < len(c) {
		return c[index]
	}
	return 0
}

// Draw adds a branch, of the stream that begins the capture or of one that is drawn in, which stands at a tick.
func (c *Capture) Draw(before uint64) *Branch {
	b := &Branch{Before: before, index: c.branches, works: 1}
	c.branches++
	return b
}

// Work counts a piece of work captured on b.
func (b *Branch) Work() { b.works++ }

// Mark notes that a mark with the tick was taken on b. Ticks rise from one to the next.
func (b *Branch) Mark(tick uint64) {
	b.places = append(b.places, place{tick, b.works, b.after})
}

// at is where b stood at a tick. False means that the tick is one of before the capture.
func (b *Branch) at(tick uint64) (place, bool) {
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].tick > tick })
	if i == 0 {
		return place{}, false
	}
	return b.places[i-1], true
}

// Wait makes the next work on b come after the mark that was taken on o with the tick. A tick of before the capture
// changes nothing.
func (b *Branch) Wait(o *Branch, tick uint64) {
	p, ok := o.at(tick)
	if !ok || o == b {
		return
	}
	after := slices.Clone(b.after)
	raise := func(index, works int) {
		for len(after) <= index {
			after = append(after, 0)
		}
		after[index] = max(after[index], works)
	}
	for index, works := range p.after {
		raise(index, works)
	}
	raise(o.index, p.works)
	b.after = after
}

// Joined reports whether what comes next on b comes after everything on o, o's being drawn in included.
func (b *Branch) Joined(o *Branch) bool { return o == b || b.after.at(o.index) >= o.works }

// Ordered reports whether the work that a mark covers, taken on o with the tick, comes before what is captured next on
// b. Being drawn in is no work. Of a tick of before the capture the answer is no.
func (b *Branch) Ordered(o *Branch, tick uint64) bool {
	p, ok := o.at(tick)
	if !ok {
		return false
	}
	before := func(index, works int) bool {
		return works <= 1 || index == b.index || b.after.at(index) >= works
	}
	for index, works := range p.after {
		if !before(index, works) {
			return false
		}
	}
	return before(o.index, p.works)
}
