package pack

import (
	"cmp"
	"math/bits"
	"slices"
)

// An item is a buffer with the keys of orders.
type item struct {
	Buffer
	total int64 // the largest sum of sizes alive at a moment of its life
}

// life and area are floats: the exact values may overflow int64, and orders need no precision.
func (b *item) life() float64 { return float64(b.Upper) - float64(b.Lower) }
func (b *item) area() float64 { return b.life() * float64(b.Size) }

// An order compares two buffers.
type order func(x, y *item) int

// orders are the orders of greedy placement. None is best for all instances: orders by size suit a trace with one
// shape, orders by total a trace with several shapes, where only the times of the largest loads must be packed tightly.
var orders = []order{
	func(x, y *item) int { return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(y.life(), x.life())) },
	func(x, y *item) int { return cmp.Or(cmp.Compare(y.total, x.total), cmp.Compare(y.Size, x.Size)) },
	func(x, y *item) int { return cmp.Or(cmp.Compare(y.total, x.total), cmp.Compare(y.life(), x.life())) },
	byTotal,
	func(x, y *item) int { return cmp.Compare(y.area(), x.area()) },
	func(x, y *item) int { return cmp.Or(cmp.Compare(y.life(), x.life()), cmp.Compare(y.Size, x.Size)) },
	byBeginning,
	func(x, y *item) int { return cmp.Or(cmp.Compare(y.Upper, x.Upper), cmp.Compare(y.Size, x.Size)) },
}

// byBeginning is the order of requests to an allocator.
func byBeginning(x, y *item) int {
	return cmp.Or(cmp.Compare(x.Lower, y.Lower), cmp.Compare(y.Size, x.Size))
}

// byTotal is the order of cores.
func byTotal(x, y *item) int {
	return cmp.Or(cmp.Compare(y.total, x.total), cmp.Compare(y.area(), x.area()))
}

// newItems computes the totals: the largest load of a buffer's eras.
func newItems(buffers []Buffer) []item {
	first, last, n := eras(buffers)
	load := make([]int64, n+1)
	for i, b := range buffers {
		load[first[i]] += b.Size
		load[last[i]+1] -= b.Size
	}
	for t := range n {
		load[t+1] += load[t]
	}
	most := [][]int64{load[:n]} // most[k][t] is the largest load of the 2^k eras from t on
	for k := 1; 2*k <= n; k *= 2 {
		half := most[len(most)-1]
		whole := make([]int64, len(half)-k)
		for t := range whole {
			whole[t] = max(half[t], half[t+k])
		}
		most = append(most, whole)
	}
	items := make([]item, len(buffers))
	for i, b := range buffers {
		k := bits.Len(uint(last[i]-first[i]+1)) - 1
		items[i] = item{b, max(most[k][first[i]], most[k][last[i]+1-1<<k])}
	}
	return items
}

// sort sets p.order by an order; equal buffers stay in the caller's order.
func (p *packer) sort(o order) {
	for i := range p.order {
		p.order[i] = i
	}
	slices.SortFunc(p.order, func(x, y int) int { return cmp.Or(o(&p.items[x], &p.items[y]), cmp.Compare(x, y)) })
}
