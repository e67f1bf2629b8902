package sim

import (
	"slices"
	"sort"
)

// An index keeps intervals that do not overlap, in the order of their starts: the address space's holes, allocations
// and reservations, the mappings of a reservation, the extents of contents and the cells of the shadow.
//
// It is a list of blocks of at most blockMax entries each, with the first start and the largest size of every block
// kept beside it. Finding takes two binary searches; inserting and removing moves the entries of at most one block, and
// sometimes the list of blocks. 10^6 intervals are some 10^4 blocks, with 80 KiB of starts. The zero value is empty.
type index[V any] struct {
	blocks []*[]interval[V]
	starts []uint64 // of blocks[i]: the start of its first entry
	sizes  []uint64 // of blocks[i]: at least the largest size in it
	n      int
}

// An interval is size bytes from start. A size of 0 is not kept.
type interval[V any] struct {
	start, size uint64
	value       V
}

func (e *interval[V]) end() uint64 { return e.start + e.size }

const blockMax = 128

// A pos names an entry until the next insert or remove.
type pos struct{ block, entry int }

func (x *index[V]) at(p pos) *interval[V] { return &(*x.blocks[p.block])[p.entry] }

// valid reports whether p names an entry, as positions past the end do not.
func (x *index[V]) valid(p pos) bool { return p.block >= 0 && p.block < len(x.blocks) }

func (x *index[V]) first() pos { return pos{} }

func (x *index[V]) next(p pos) pos {
	if p.entry++; p.entry == len(*x.blocks[p.block]) {
		return pos{p.block + 1, 0}
	}
	return p
}

// floor returns the last entry that starts at or before start; it is not valid if there is none.
func (x *index[V]) floor(start uint64) pos {
	b := sort.Search(len(x.starts), func(i int) bool { return x.starts[i] > start }) - 1
	if b < 0 {
		return pos{-1, 0}
	}
	entries := *x.blocks[b]
	i := sort.Search(len(entries), func(i int) bool { return entries[i].start > start }) - 1
	return pos{b, i}
}

// from returns the first entry that ends after start.
func (x *index[V]) from(start uint64) pos {
	p := x.floor(start)
	if !x.valid(p) {
		return x.first()
	}
	if x.at(p).end() <= start {
		return x.next(p)
	}
	return p
}

// find returns the entry that holds the address, or nil.
func (x *index[V]) find(address uint64) *interval[V] {
	if p := x.floor(address); x.valid(p) {
		if e := x.at(p); address-e.start < e.size {
			return e
		}
	}
	return nil
}

// insert adds an interval that overlaps none.
func (x *index[V]) insert(start, size uint64, value V) {
	x.n++
	e := interval[V]{start, size, value}
	p := x.floor(start)
	if !x.valid(p) {
		if len(x.blocks) == 0 {
			x.blocks = append(x.blocks, &[]interval[V]{e})
			x.starts, x.sizes = append(x.starts, start), append(x.sizes, size)
			return
		}
		p = pos{0, -1}
	}
	block := x.blocks[p.block]
	*block = slices.Insert(*block, p.entry+1, e)
	x.starts[p.block] = (*block)[0].start
	x.sizes[p.block] = max(x.sizes[p.block], size)
	if len(*block) > blockMax {
		x.split(p.block)
	}
}

func (x *index[V]) split(b int) {
	whole := *x.blocks[b]
	upper := slices.Clone(whole[blockMax/2:])
	clear(whole[blockMax/2:])
	*x.blocks[b] = whole[:blockMax/2]
	x.blocks = slices.Insert(x.blocks, b+1, &upper)
	x.starts = slices.Insert(x.starts, b+1, upper[0].start)
	x.sizes = slices.Insert(x.sizes, b+1, 0)
	x.measure(b)
	x.measure(b + 1)
}

// measure computes the largest size of a block anew.
func (x *index[V]) measure(b int) {
	var largest uint64
	for i := range *x.blocks[b] {
		largest = max(largest, (*x.blocks[b])[i].size)
	}
	x.sizes[b] = largest
}

// remove removes the entry at p.
func (x *index[V]) remove(p pos) {
	x.cut(p.block, p.entry, p.entry+1)
}

// cut removes the entries [i, j) of a block.
func (x *index[V]) cut(b, i, j int) {
	x.n -= j - i
	block := x.blocks[b]
	*block = slices.Delete(*block, i, j)
	if len(*block) == 0 {
		x.blocks = slices.Delete(x.blocks, b, b+1)
		x.starts = slices.Delete(x.starts, b, b+1)
		x.sizes = slices.Delete(x.sizes, b, b+1)
		return
	}
	x.starts[b] = (*block)[0].start
}

// removeFrom removes all entries that start in [start, end).
func (x *index[V]) removeFrom(start, end uint64) {
	for {
		p := x.floor(start)
		if !x.valid(p) {
			p = x.first()
		} else if x.at(p).start < start {
			p = x.next(p)
		}
		if !x.valid(p) || x.at(p).start >= end {
			return
		}
		entries := *x.blocks[p.block]
		j := p.entry + sort.Search(len(entries)-p.entry, func(i int) bool { return entries[p.entry+i].start >= end })
		x.cut(p.block, p.entry, j)
	}
}

// resize changes the entry at p, which must stay between its neighbours.
func (x *index[V]) resize(p pos, start, size uint64) {
	e := x.at(p)
	old := e.size
	e.start, e.size = start, size
	if p.entry == 0 {
		x.starts[p.block] = start
	}
	if size >= old {
		x.sizes[p.block] = max(x.sizes[p.block], size)
	} else if old == x.sizes[p.block] {
		x.measure(p.block)
	}
}

// divide makes the address cut a boundary: an interval across it becomes two, with the values that halve makes of its
// value and the size of the first.
func (x *index[V]) divide(cut uint64, halve func(v V, n uint64) (head, tail V)) {
	p := x.floor(cut)
	if !x.valid(p) {
		return
	}
	e := x.at(p)
	if e.start == cut || e.end() <= cut {
		return
	}
	n, rest := cut-e.start, e.end()-cut
	head, tail := halve(e.value, n)
	e.value = head
	x.resize(p, e.start, n)
	x.insert(cut, rest, tail)
}
