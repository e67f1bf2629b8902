package schedule

import "math/bits"

// maxWalk is how many storages a walk for a cost looks at: longer chains are underestimated. near is the same for the
// search of costs that have become less.
const (
	maxWalk = 256
	near    = 16
)

// A walk visits the storages around one, each once.
type walk struct {
	mark  []int32
	count int32
	queue []Storage
}

// visit calls f for the storages next to one, and for those next to storages for which f returns true.
func (w *walk) visit(
	e *Engine, from Storage, most int, next func(Storage, func(Storage)), f func(Storage, *storage) bool,
) {
	for len(w.mark) < len(e.storages) {
		w.mark = append(w.mark, 0)
	}
	w.count++
	w.mark[from] = w.count
	w.queue = append(w.queue[:0], from)
	look := func(s Storage) {
		if w.mark[s] == w.count {
			return
		}
		w.mark[s] = w.count
		if f(s, &e.storages[s]) {
			w.queue = append(w.queue, s)
		}
	}
	for i := 0; i < len(w.queue) && i < most; i++ {
		next(w.queue[i], look)
	}
}

// A bitmap is a set of buckets.
type bitmap [(buckets + 63) / 64]uint64

func (b *bitmap) set(i int)   { b[i/64] |= 1 << (i % 64) }
func (b *bitmap) clear(i int) { b[i/64] &^= 1 << (i % 64) }

// all yields the members in order.
func (b *bitmap) all(yield func(int) bool) {
	for i, word := range b {
		for ; word != 0; word &= word - 1 {
			if !yield(i*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}
