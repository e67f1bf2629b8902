//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A table holds ranges of addresses that do not overlap, ascending, with something to know of each.
type table[T any] []entry[T]

type entry[T any] struct {
	at    driver.Pointer
	size  int64
	value T
}

func (e entry[T]) end() driver.Pointer { return e.at + driver.Pointer(e.size) }

// after returns the index of the first range that ends after p: the one that p is in, if any is, or the next.
func (t table[T]) after(p driver.Pointer) int {
	i, _ := slices.BinarySearchFunc(t, p, func(e entry[T], p driver.Pointer) int {
		if e.end() <= p {
			return -1
		}
		return 1
	})
	return i
}

// find returns the index of the range that p is in, or -1.
func (t table[T]) find(p driver.Pointer) int {
	if i := t.after(p); i < len(t) && t[i].at <= p {
		return i
	}
	return -1
}

// starting returns the index of the range that starts at p, or -1.
func (t table[T]) starting(p driver.Pointer) int {
	if i := t.find(p); i >= 0 && t[i].at == p {
		return i
	}
	return -1
}

// free says whether no range meets [p, p+size).
func (t table[T]) free(p driver.Pointer, size int64) bool {
	i := t.after(p)
	return i == len(t) || t[i].at >= p+driver.Pointer(size)
}

// run returns the ranges that cover [p, p+size) without a gap, as indices [from, to). Whether p starts the first and
// p+size ends the last is for the caller to look at.
func (t table[T]) run(p driver.Pointer, size int64) (from, to int, ok bool) {
	from = t.find(p)
	if from < 0 {
		return 0, 0, false
	}
	end := p + driver.Pointer(size)
	for to = from + 1; t[to-1].end() < end; to++ {
		if to == len(t) || t[to].at != t[to-1].end() {
			return 0, 0, false
		}
	}
	return from, to, true
}

// insert adds a range that meets no other.
func (t *table[T]) insert(e entry[T]) { *t = slices.Insert(*t, t.after(e.at), e) }

// remove takes the ranges with the indices [from, to) out.
func (t *table[T]) remove(from, to int) { *t = slices.Delete(*t, from, to) }
