package timeline

// A ring holds the last max of the items that were pushed, numbered from 1.
type ring[T any] struct {
	max     int
	items   []T    // number n lies at (n-1) % max once there are max of them
	first   uint64 // number of the oldest item less one
	last    uint64 // number of the newest
	dropped int64  // overwritten by newer items
}

// push adds v and returns its number, and the oldest item if it was dropped.
func (r *ring[T]) push(v T) (number uint64, old T, dropped bool) {
	r.last++
	at := int((r.last - 1) % uint64(r.max))
	switch {
	case r.last-r.first > uint64(r.max):
		old, dropped = r.items[at], true
		r.items[at] = v
		r.first++
		r.dropped++
	case at == len(r.items):
		r.items = append(r.items, v)
	default:
		r.items[at] = v
	}
	return r.last, old, dropped
}

// get returns the item with a number, or nil if it was dropped. The pointer is valid until the next push.
func (r *ring[T]) get(number uint64) *T {
	if number <= r.first || number > r.last {
		return nil
	}
	return &r.items[(number-1)%uint64(r.max)]
}

// clear removes all items and returns them. Numbers go on.
func (r *ring[T]) clear() []T {
	all := make([]T, 0, r.last-r.first)
	for n := r.first + 1; n <= r.last; n++ {
		all = append(all, *r.get(n))
	}
	clear(r.items)
	r.first, r.dropped = r.last, 0
	return all
}
