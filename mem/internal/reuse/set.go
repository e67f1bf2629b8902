package reuse

import (
	"encoding/binary"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/slots"
)

// A Set is a set of streams. The zero Set is empty. Two sets are equal if and only if they hold the same streams.
//
// A set of streams with IDs below firstOverflow is their bits. Any other set is overflowBit and an index in the
// overflow table, which holds each set once. So block and page records stay small, and comparing sets compares words.
type Set uint64

const firstOverflow = 63 // sets with streams of this ID or higher are in Streams.overflow

// overflowBit marks a Set that is an index in Streams.overflow.
const overflowBit Set = 1 << firstOverflow

// An overflowTable holds each set that does not fit in a word once. Collect drops the sets that are no longer used; its
// cost is amortised over the new sets.
type overflowTable struct {
	sets      []bitmap          // by index; nil: unused
	places    map[string]uint32 // index of each set, by its bytes
	unused    []uint32
	singles   []Set // sets of one stream, by its ID minus firstOverflow; 0: none yet
	collectAt int   // number of sets at which Collect is due
	scratch   bitmap
	key       []byte
}

// A bitmap holds the bits of a set, 64 streams a word. The last word is not 0.
type bitmap []uint64

const (
	minCollect = 256 // new sets before a collection is worth its cost
	perSet     = 16  // sets in use that a collection visits for each new set, at most
)

// Union returns the streams that are in either set.
func (t *Streams) Union(a, b Set) Set {
	if (a|b)&overflowBit == 0 {
		return a | b
	}
	return t.overflow.union(a, b)
}

// Overlap reports whether a stream is in both sets.
func (t *Streams) Overlap(a, b Set) bool {
	if (a|b)&overflowBit == 0 {
		return a&b != 0
	}
	return t.overflow.overlap(a, b)
}

// overlap is Overlap if one of the sets is in the table.
func (w *overflowTable) overlap(a, b Set) bool {
	var one, other [1]uint64
	x, y := w.words(a, &one), w.words(b, &other)
	for i := range min(len(x), len(y)) {
		if x[i]&y[i] != 0 {
			return true
		}
	}
	return false
}

// Subset reports whether all streams of a are in b.
func (t *Streams) Subset(a, b Set) bool {
	if (a|b)&overflowBit == 0 {
		return a&^b == 0
	}
	return t.overflow.subset(a, b)
}

// subset is Subset if one of the sets is in the table.
func (w *overflowTable) subset(a, b Set) bool {
	var one, other [1]uint64
	x, y := w.words(a, &one), w.words(b, &other)
	for i, word := range x {
		if i < len(y) {
			word &^= y[i]
		}
		if word != 0 {
			return false
		}
	}
	return true
}

// NeedsCollect reports whether there are so many sets that Collect is due. It takes constant time.
func (t *Streams) NeedsCollect() bool {
	return len(t.overflow.places) >= max(minCollect, t.overflow.collectAt)
}

// Collect drops the sets that are not in inUse, which must be all sets that the allocator holds, also in local
// variables.
func (t *Streams) Collect(inUse iter.Seq[Set]) {
	w := &t.overflow
	keep := make([]bool, len(w.sets))
	for _, s := range w.singles {
		keep[uint32(s)] = keep[uint32(s)] || s != 0
	}
	visited := 0
	for s := range inUse {
		visited++
		if s&overflowBit != 0 {
			keep[uint32(s)] = true
		}
	}
	maps.DeleteFunc(w.places, func(_ string, at uint32) bool {
		if !keep[at] {
			w.sets[at] = nil
			w.unused = append(w.unused, at)
		}
		return !keep[at]
	})
	slices.Sort(w.unused) // so that equal histories give equal indexes
	left := len(w.places)
	w.collectAt = left + max(minCollect, left, visited/perSet)
}

// allOverflow is All for a set in the overflow table.
func (t *Streams) allOverflow(of Set, yield func(driver.Stream) bool) {
	for id := range t.overflow.numbers(of) {
		if s := t.streams[id]; s != nil && !yield(s) {
			return
		}
	}
}

// numbers visits the IDs of the streams of a set in the table, in ascending order.
func (w *overflowTable) numbers(of Set) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range w.sets[uint32(of)] {
			for ; word != 0; word &= word - 1 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// words returns a set's bits: in one, or those of the table, which must not be changed.
func (w *overflowTable) words(s Set, one *[1]uint64) bitmap {
	if s&overflowBit != 0 {
		return w.sets[uint32(s)]
	}
	one[0] = uint64(s)
	return one[:]
}

// single returns the set of one stream whose ID is firstOverflow or higher.
func (w *overflowTable) single(id int) Set {
	for id-firstOverflow >= len(w.singles) {
		w.singles = append(w.singles, 0)
	}
	s := &w.singles[id-firstOverflow]
	if *s == 0 {
		bit := make(bitmap, id/64+1)
		bit[id/64] = 1 << (id % 64)
		*s = w.set(bit)
	}
	return *s
}

// union returns the union of two sets of which at least one is in the table.
func (w *overflowTable) union(a, b Set) Set {
	if a == b || b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	var one, other [1]uint64
	x, y := w.words(a, &one), w.words(b, &other)
	if len(x) < len(y) {
		a, x, y = b, y, x
	}
	w.scratch = append(w.scratch[:0], x...)
	for i, word := range y {
		w.scratch[i] |= word
	}
	if slices.Equal(w.scratch, x) {
		return a
	}
	return w.set(w.scratch)
}

// set returns the Set with these bits, which do not fit in a word. It keeps a copy.
func (w *overflowTable) set(of bitmap) Set {
	w.key = w.key[:0]
	for _, word := range of {
		w.key = binary.LittleEndian.AppendUint64(w.key, word)
	}
	at, known := w.places[string(w.key)]
	if known {
		return overflowBit | Set(at)
	}
	if w.places == nil {
		w.places = map[string]uint32{}
	}
	at = slots.Unused(&w.sets, &w.unused)
	w.sets[at] = slices.Clone(of)
	w.places[string(w.key)] = at
	return overflowBit | Set(at)
}
