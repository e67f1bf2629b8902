package fit

// fan is the maximum number of entries of a node. With 32, a million holes take four levels.
const fan = 32

// A hole is a free span and its value.
type hole[V any] struct {
	Span
	v V
}

// room returns the size of a hole from its first multiple of unit on.
func room(s Span, unit int64) int64 { return max(0, s.End()-ceil(s.At, unit)) }

// A node of the tree. Entry i of a leaf is a hole, of an inner node a node. A root may have any number of entries; no
// other node is empty.
type node[V any] struct {
	n     int
	start [fan]int64 // of entry i: of the hole, or the least below
	room  [fan]int64 // of entry i: of the hole, or the greatest below
	size  [fan]int64 // of the holes of a leaf
	value [fan]V
	inner *[fan]*node[V] // nil for leaves
}

func (t *node[V]) at(i int) hole[V] { return hole[V]{Span{t.start[i], t.size[i]}, t.value[i]} }

// set stores a hole in an entry of a leaf.
func (t *node[V]) set(i int, h hole[V], unit int64) {
	t.start[i], t.size[i], t.value[i] = h.At, h.Size, h.v
	t.room[i] = room(h.Span, unit)
}

// note updates an entry of an inner node.
func (t *node[V]) note(i int) {
	t.start[i], t.room[i] = t.inner[i].start[0], t.inner[i].most()
}

// most returns the greatest room.
func (t *node[V]) most() int64 {
	var most int64
	for _, r := range t.room[:t.n] {
		most = max(most, r)
	}
	return most
}

// index returns the last entry that starts at or below an integer, or 0 if there is none.
func (t *node[V]) index(at int64) int {
	i := 0
	for i+1 < t.n && t.start[i+1] <= at {
		i++
	}
	return i
}

func (t *node[V]) floor(at int64) hole[V] {
	for t.inner != nil {
		t = t.inner[t.index(at)]
	}
	return t.at(t.index(at))
}

// first returns the first hole with room for size.
func (t *node[V]) first(size int64) (hole[V], bool) {
	for {
		i := 0
		for i < t.n && t.room[i] < size {
			i++
		}
		switch {
		case i == t.n: // only at the root: the subtree of an entry has the room that the entry states
			return hole[V]{}, false
		case t.inner == nil:
			return t.at(i), true
		}
		t = t.inner[i]
	}
}

// last returns the last hole with room for size.
func (t *node[V]) last(size int64) (hole[V], bool) {
	for {
		i := t.n - 1
		for i >= 0 && t.room[i] < size {
			i--
		}
		switch {
		case i < 0:
			return hole[V]{}, false
		case t.inner == nil:
			return t.at(i), true
		}
		t = t.inner[i]
	}
}

func (t *node[V]) each(yield func(Span, V) bool) bool {
	for i := range t.n {
		if t.inner != nil && !t.inner[i].each(yield) || t.inner == nil && !yield(t.at(i).Span, t.value[i]) {
			return false
		}
	}
	return true
}

// replace replaces the hole that starts at an integer. The order must not change.
func (t *node[V]) replace(at int64, h hole[V], unit int64) {
	i := t.index(at)
	if t.inner == nil {
		t.set(i, h, unit)
		return
	}
	t.inner[i].replace(at, h, unit)
	t.note(i)
}

// insert inserts a hole. If the node was full, insert moves the upper half to a new node and returns it.
func (t *node[V]) insert(h hole[V], unit int64) (right *node[V]) {
	i := t.index(h.At)
	var child *node[V]
	if t.inner != nil {
		child = t.inner[i].insert(h, unit)
		t.note(i)
		if child == nil {
			return nil
		}
	}
	if t.n > 0 && t.start[i] < h.At || child != nil {
		i++ // the new entry follows the one that index found
	}
	into := t
	if t.n == fan {
		right = t.split()
		if i > t.n {
			into, i = right, i-t.n
		}
	}
	into.open(i)
	if child == nil {
		into.set(i, h, unit)
		return right
	}
	into.inner[i] = child
	into.note(i)
	return right
}

// open makes room for an entry.
func (t *node[V]) open(i int) {
	copy(t.start[i+1:t.n+1], t.start[i:t.n])
	copy(t.room[i+1:t.n+1], t.room[i:t.n])
	if t.inner != nil {
		copy(t.inner[i+1:t.n+1], t.inner[i:t.n])
	} else {
		copy(t.size[i+1:t.n+1], t.size[i:t.n])
		copy(t.value[i+1:t.n+1], t.value[i:t.n])
	}
	t.n++
}

// split moves the upper half of the entries to a new node.
func (t *node[V]) split() *node[V] {
	right := &node[V]{}
	if t.inner != nil {
		right.inner = new([fan]*node[V])
	}
	half := t.n / 2
	right.adopt(t, half)
	t.shrink(half)
	return right
}

// adopt appends the entries of another node from index from on.
func (t *node[V]) adopt(o *node[V], from int) {
	copy(t.start[t.n:], o.start[from:o.n])
	copy(t.room[t.n:], o.room[from:o.n])
	if t.inner != nil {
		copy(t.inner[t.n:], o.inner[from:o.n])
	} else {
		copy(t.size[t.n:], o.size[from:o.n])
		copy(t.value[t.n:], o.value[from:o.n])
	}
	t.n += o.n - from
}

// shrink removes the entries from n on and clears their references.
func (t *node[V]) shrink(n int) {
	if t.inner != nil {
		clear(t.inner[n:t.n])
	} else {
		clear(t.value[n:t.n])
	}
	t.n = n
}

// remove removes the hole that starts at an integer.
func (t *node[V]) remove(at int64) {
	i := t.index(at)
	if t.inner == nil {
		t.drop(i)
		return
	}
	t.inner[i].remove(at)
	if t.inner[i].n == 0 {
		t.drop(i)
		return
	}
	t.note(i)
	t.merge(i)
}

// merge joins a small child with a neighbour that is small too.
func (t *node[V]) merge(i int) {
	if t.inner[i].n > fan/4 || t.n < 2 {
		return
	}
	low := max(0, i-1)
	if l, r := t.inner[low], t.inner[low+1]; l.n+r.n <= fan*3/4 {
		l.adopt(r, 0)
		t.drop(low + 1)
		t.note(low)
	}
}

// drop removes an entry.
func (t *node[V]) drop(i int) {
	copy(t.start[i:], t.start[i+1:t.n])
	copy(t.room[i:], t.room[i+1:t.n])
	if t.inner != nil {
		copy(t.inner[i:], t.inner[i+1:t.n])
	} else {
		copy(t.size[i:], t.size[i+1:t.n])
		copy(t.value[i:], t.value[i+1:t.n])
	}
	t.shrink(t.n - 1)
}
