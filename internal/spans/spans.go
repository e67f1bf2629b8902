// Package spans is what drivers know of ranges of addresses: a table of those that do not overlap. It locks nothing.
package spans

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A Table holds ranges of addresses that do not overlap, ascending, with something to know of each.
type Table[T any] []Entry[T]

// An Entry is the range [At, At+Size), and what is known of it.
type Entry[T any] struct {
	At    driver.Pointer
	Size  int64
	Value T
}

// End returns the address after the last.
func (e Entry[T]) End() driver.Pointer { return e.At + driver.Pointer(e.Size) }

// After returns the index of the first range that ends After p: the one that p is in, if any is, or the next.
func (t Table[T]) After(p driver.Pointer) int {
	i, _ := slices.BinarySearchFunc(t, p, func(e Entry[T], p driver.Pointer) int {
		if e.End() <= p {
			return -1
		}
		return 1
	})
	return i
}

// Find returns the index of the range that p is in, or -1.
func (t Table[T]) Find(p driver.Pointer) int {
	if i := t.After(p); i < len(t) && t[i].At <= p {
		return i
	}
	return -1
}

// Starting returns the index of the range that starts at p, or -1.
func (t Table[T]) Starting(p driver.Pointer) int {
	if i := t.Find(p); i >= 0 && t[i].At == p {
		return i
	}
	return -1
}

// Free says whether no range meets [p, p+size).
func (t Table[T]) Free(p driver.Pointer, size int64) bool {
	i := t.After(p)
	return i == len(t) || t[i].At >= p+driver.Pointer(size)
}

// Run returns the ranges that cover [p, p+size) without a gap, as indices [from, to). Whether p starts the first and
// p+size ends the last is for the caller to look at.
func (t Table[T]) Run(p driver.Pointer, size int64) (from, to int, ok bool) {
	from = t.Find(p)
	if from < 0 {
		return 0, 0, false
	}
	end := p + driver.Pointer(size)
	for to = from + 1; t[to-1].End() < end; to++ {
		if to == len(t) || t[to].At != t[to-1].End() {
			return 0, 0, false
		}
	}
	return from, to, true
}

// Insert adds a range that meets no other.
func (t *Table[T]) Insert(e Entry[T]) { *t = slices.Insert(*t, t.After(e.At), e) }

// Remove takes the ranges with the indices [from, to) out.
func (t *Table[T]) Remove(from, to int) { *t = slices.Delete(*t, from, to) }
