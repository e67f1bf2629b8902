package fit

import (
	"fmt"
	"iter"
	"math"
)

// A FirstFit holds the holes of a range, each with a value of its owner. Make one with NewFirstFit. Starts must not be
// negative, and ends must be at most 2^62.
type FirstFit[V any] struct {
	unit int64
	join func(low, high V) V
	root *node[V]
	n    int
	free int64
}

const limit = 1 << 62

// NewFirstFit returns a FirstFit without holes: Give adds the range. Taken spans start at multiples of unit, which must
// be positive. When two holes merge, join returns the value of the new hole; when a hole is split, both parts keep its
// value. A nil join keeps the value of the lower hole.
func NewFirstFit[V any](unit int64, join func(low, high V) V) *FirstFit[V] {
	if unit < 1 {
		panic(fmt.Sprintf("fit: a unit of %d: want a positive one", unit))
	}
	if join == nil {
		join = func(low, _ V) V { return low }
	}
	return &FirstFit[V]{unit: unit, join: join, root: &node[V]{}}
}

// Len returns the number of holes.
func (f *FirstFit[V]) Len() int { return f.n }

// Free returns the sum of the holes' sizes.
func (f *FirstFit[V]) Free() int64 { return f.free }

// Largest returns the largest size that Take would find now; 0 if there is none.
func (f *FirstFit[V]) Largest() int64 { return f.root.most() }

// Give makes a span free. It panics if any part of the span is free already, or if the size is not positive.
func (f *FirstFit[V]) Give(at, size int64, v V) {
	if at < 0 || size < 1 || at > limit-size {
		panic(fmt.Sprintf("fit: Give of %d at %d", size, at))
	}
	h := hole[V]{Span{at, size}, v}
	low, below := f.floor(at + size - 1)
	if below && low.End() > at {
		panic(fmt.Sprintf("fit: Give of %v: %v is free already", h.Span, low.Span))
	}
	high, above := f.floor(at + size)
	below = below && low.End() == at
	above = above && high.At == at+size
	if below {
		h = hole[V]{Span{low.At, low.Size + size}, f.join(low.v, v)}
	}
	if above {
		h = hole[V]{Span{h.At, h.Size + high.Size}, f.join(h.v, high.v)}
	}
	switch {
	case below && above:
		f.remove(high.At)
		f.root.replace(low.At, h, f.unit)
	case below:
		f.root.replace(low.At, h, f.unit)
	case above:
		f.root.replace(high.At, h, f.unit)
	default:
		f.insert(h)
	}
	f.free += size
}

// Take takes a span of size from the first hole that has room, as low as possible, and returns its start and the hole's
// value. It reports false if no hole has room. A size that is not positive panics, here and below.
func (f *FirstFit[V]) Take(size int64) (at int64, v V, ok bool) {
	mustTake("Take", size)
	h, ok := f.root.first(size)
	if !ok {
		return 0, v, false
	}
	at = ceil(h.At, f.unit)
	f.cut(h, Span{at, size})
	return at, h.v, true
}

// TakeLast takes a span of size from the last hole that has room, as high as possible.
func (f *FirstFit[V]) TakeLast(size int64) (at int64, v V, ok bool) {
	mustTake("TakeLast", size)
	h, ok := f.root.last(size)
	if !ok {
		return 0, v, false
	}
	at = (h.End() - size) / f.unit * f.unit
	f.cut(h, Span{at, size})
	return at, h.v, true
}

// TakeAt takes a span, at any integer. It reports false, and takes nothing, unless all of it is free.
func (f *FirstFit[V]) TakeAt(at, size int64) (v V, ok bool) {
	mustTake("TakeAt", size)
	h, ok := f.floor(at)
	if !ok || h.End()-at < size {
		return v, false
	}
	f.cut(h, Span{at, size})
	return h.v, true
}

func mustTake(call string, size int64) {
	if size < 1 {
		panic(fmt.Sprintf("fit: %s of %d", call, size))
	}
}

// Find returns the hole that contains an integer.
func (f *FirstFit[V]) Find(at int64) (Span, V, bool) {
	h, ok := f.floor(at)
	if !ok || h.End() <= at {
		return Span{}, hole[V]{}.v, false
	}
	return h.Span, h.v, true
}

// All visits the holes in order. The holes must not change during the visit.
func (f *FirstFit[V]) All() iter.Seq2[Span, V] {
	return func(yield func(Span, V) bool) { f.root.each(yield) }
}

// cut removes a span from the hole that contains it.
func (f *FirstFit[V]) cut(h hole[V], s Span) {
	low := hole[V]{Span{h.At, s.At - h.At}, h.v}
	high := hole[V]{Span{s.End(), h.End() - s.End()}, h.v}
	switch {
	case low.Size > 0 && high.Size > 0:
		f.root.replace(h.At, low, f.unit)
		f.insert(high)
	case low.Size > 0:
		f.root.replace(h.At, low, f.unit)
	case high.Size > 0:
		f.root.replace(h.At, high, f.unit)
	default:
		f.remove(h.At)
	}
	f.free -= s.Size
}

// floor returns the last hole that starts at an integer or below.
func (f *FirstFit[V]) floor(at int64) (hole[V], bool) {
	if f.n == 0 || f.root.start[0] > at {
		return hole[V]{}, false
	}
	return f.root.floor(at), true
}

func (f *FirstFit[V]) insert(h hole[V]) {
	if right := f.root.insert(h, f.unit); right != nil {
		root := &node[V]{inner: new([fan]*node[V])}
		root.inner[0], root.inner[1], root.n = f.root, right, 2
		root.note(0)
		root.note(1)
		f.root = root
	}
	f.n++
}

func (f *FirstFit[V]) remove(at int64) {
	f.root.remove(at)
	for f.root.inner != nil && f.root.n == 1 {
		f.root = f.root.inner[0]
	}
	f.n--
}

// ceil returns the least multiple of unit that is at least at.
func ceil(at, unit int64) int64 {
	if rest := at % unit; rest != 0 {
		if at > math.MaxInt64-unit {
			return math.MaxInt64
		}
		return at + unit - rest
	}
	return at
}
