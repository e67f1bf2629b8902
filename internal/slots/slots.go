// Package slots is a table whose entries are found by tags, without a map, and whose tags tell an entry from the
// earlier entries of the same slot. Allocators keep their live blocks in one.
package slots

import "iter"

// A Table holds values in slots. The zero Table is empty. It is not safe for concurrent use.
//
// A tag is the generation of the slot in the high half and the index of the slot in the low half. A generation is odd
// while the slot is in use and rises with each Add and Remove, so a tag is valid until its entry is removed, and again
// only after 2^31 further uses of the slot.
type Table[V any] struct {
	slots  []slot[V]
	unused []uint32 // indexes; the last one is used first
}

type slot[V any] struct {
	value      V
	generation uint32
}

// Add makes an entry and returns its tag and its value, which is zero or, after Recycle, that of the slot's last entry.
// The pointer is valid until the next Add.
func (t *Table[V]) Add() (tag uint64, v *V) {
	var i uint32 // as in Unused, which is slower
	if n := len(t.unused); n > 0 {
		i, t.unused = t.unused[n-1], t.unused[:n-1]
	} else {
		i = uint32(len(t.slots))
		t.slots = append(t.slots, slot[V]{})
	}
	s := &t.slots[i]
	s.generation++
	return uint64(s.generation)<<32 | uint64(i), &s.value
}

// Get returns the value with a tag, or nil if there is none. The pointer is valid until the next Add.
func (t *Table[V]) Get(tag uint64) *V {
	i, generation := uint32(tag), uint32(tag>>32)
	if uint64(i) >= uint64(len(t.slots)) || generation%2 == 0 || t.slots[i].generation != generation {
		return nil
	}
	return &t.slots[i].value
}

// At returns the tag and the value of the entry in a slot, or a nil value if there is none. It is for tags that have
// room for a part of the generation only. The pointer is valid until the next Add.
func (t *Table[V]) At(slot uint32) (tag uint64, v *V) {
	if uint64(slot) >= uint64(len(t.slots)) || t.slots[slot].generation%2 == 0 {
		return 0, nil
	}
	s := &t.slots[slot]
	return uint64(s.generation)<<32 | uint64(slot), &s.value
}

// Remove ends the entry with a tag, which must be valid.
func (t *Table[V]) Remove(tag uint64) {
	var none V
	t.slots[uint32(tag)].value = none
	t.Recycle(tag)
}

// Recycle is Remove, but the value stays in the slot for its next entry: see Add.
func (t *Table[V]) Recycle(tag uint64) {
	i := uint32(tag)
	t.slots[i].generation++
	t.unused = append(t.unused, i)
}

// All visits the entries in the order of their slots.
func (t *Table[V]) All() iter.Seq2[uint64, *V] {
	return func(yield func(uint64, *V) bool) {
		for i := range t.slots {
			s := &t.slots[i]
			if s.generation%2 == 1 && !yield(uint64(s.generation)<<32|uint64(i), &s.value) {
				return
			}
		}
	}
}

// Unused returns the index of an entry of all that is not in use: the last of unused, or that of a new entry.
func Unused[I ~uint32, V any](all *[]V, unused *[]I) I {
	if n := len(*unused); n > 0 {
		i := (*unused)[n-1]
		*unused = (*unused)[:n-1]
		return i
	}
	var v V
	*all = append(*all, v)
	return I(len(*all) - 1)
}
