package pack

import (
	"cmp"
	"slices"
)

// An exactOrder compares two buffers. If both could lie on a floor, the lesser one is tried first.
type exactOrder func(a, b *exactItem) int

// The orders are lexicographic, the larger value first, over a buffer's width (its lifetime), its size, its area (both
// multiplied), and its total: the largest sum of sizes alive at a moment of its life. No order is best for all
// instances, so the rounds alternate between them.
var exactOrders = []exactOrder{
	func(a, b *exactItem) int { // width, area, total
		return cmp.Or(cmp.Compare(b.width, a.width), cmp.Compare(b.area, a.area), cmp.Compare(b.total, a.total))
	},
	func(a, b *exactItem) int { // total, area, width
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(b.area, a.area), cmp.Compare(b.width, a.width))
	},
	func(a, b *exactItem) int { // total, width, area
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(b.width, a.width), cmp.Compare(b.area, a.area))
	},
	func(a, b *exactItem) int { // area, width, total
		return cmp.Or(cmp.Compare(b.area, a.area), cmp.Compare(b.width, a.width), cmp.Compare(b.total, a.total))
	},
	func(a, b *exactItem) int { // size, width, total
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(b.width, a.width), cmp.Compare(b.total, a.total))
	},
}

// prefer sets the order in which buffers are tried, and whether the earliest of equally narrow sections goes first or
// the one with the lowest floor.
func (s *exactSearch) prefer(order exactOrder, earliest bool) {
	s.earliest = earliest
	sorted := make([]int32, len(s.items))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortStableFunc(sorted, func(a, b int32) int { return order(&s.items[a], &s.items[b]) })
	for rank, x := range sorted {
		s.rank[x] = int32(rank)
	}
}
