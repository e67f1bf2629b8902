package handover

import (
	"encoding/binary"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A Set is streams, by number. The zero Set is empty. Two are the same streams if they are equal.
type Set uint64

const far = 63 // streams from this number on are in sets of Streams.wide alone

// isWide is set of a Set that is a place in Streams.wide, and not the streams' bits.
const isWide Set = 1 << far

// A wide table has the sets with streams that a word has no bits for, each once. What is in nobody's hands any more is found
// by Sweep, which costs each new set little.
type wide struct {
	sets    []words           // by place; nil: unused
	places  map[string]uint32 // of each set, by its bytes
	unused  []uint32
	singles []Set // of one stream, by its number less far; 0: none yet
	sweepAt int   // sets
	scratch words
	key     []byte
}

// words are a set's bits, 64 streams a word. The last one is not 0.
type words []uint64

const (
	minSweep = 256 // new sets: fewer are not worth a look at all pasts
	perSet   = 16  // pasts that are looked at for each new set, at most
)

// Union is the streams of both sets.
func (t *Streams) Union(a, b Set) Set {
	if (a|b)&isWide == 0 {
		return a | b
	}
	return t.wide.union(a, b)
}

// Overlap reports whether a stream is in both sets.
func (t *Streams) Overlap(a, b Set) bool {
	if (a|b)&isWide == 0 {
		return a&b != 0
	}
	var one, other [1]uint64
	x, y := t.wide.words(a, &one), t.wide.words(b, &other)
	for i := range min(len(x), len(y)) {
		if x[i]&y[i] != 0 {
			return true
		}
	}
	return false
}

// Within reports whether all streams of a set are in another.
func (t *Streams) Within(a, b Set) bool {
	if (a|b)&isWide == 0 {
		return a&^b == 0
	}
	var one, other [1]uint64
	x, y := t.wide.words(a, &one), t.wide.words(b, &other)
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

// Crowded reports whether there are so many sets that Sweep is due. It takes no time.
func (t *Streams) Crowded() bool { return len(t.wide.places) >= max(minSweep, t.wide.sweepAt) }

// Sweep forgets the sets that are not among these: all that the allocator has anywhere, so it has none in a variable.
func (t *Streams) Sweep(inUse iter.Seq[Set]) {
	w := &t.wide
	keep := make([]bool, len(w.sets))
	for _, s := range w.singles {
		keep[uint32(s)] = keep[uint32(s)] || s != 0
	}
	looks := 0
	for s := range inUse {
		looks++
		if s&isWide != 0 {
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
	slices.Sort(w.unused) // the same history has the same places
	left := len(w.places)
	w.sweepAt = left + max(minSweep, left, looks/perSet)
}

// allWide is All of a set of the table.
func (t *Streams) allWide(of Set, yield func(driver.Stream) bool) {
	for id := range t.wide.numbers(of) {
		if s := t.known[id]; s != nil && !yield(s) {
			return
		}
	}
}

// numbers visits the numbers of the streams of a set of the table, ascending.
func (w *wide) numbers(of Set) iter.Seq[int] {
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

// words are a set's bits: in one, or those of the table, which stay as they are.
func (w *wide) words(s Set, one *[1]uint64) words {
	if s&isWide != 0 {
		return w.sets[uint32(s)]
	}
	one[0] = uint64(s)
	return one[:]
}

// single is the set of one stream that a word has no bit for.
func (w *wide) single(id int) Set {
	for id-far >= len(w.singles) {
		w.singles = append(w.singles, 0)
	}
	s := &w.singles[id-far]
	if *s == 0 {
		bit := make(words, id/64+1)
		bit[id/64] = 1 << (id % 64)
		*s = w.set(bit)
	}
	return *s
}

// union is that of two sets, of which one is in the table.
func (w *wide) union(a, b Set) Set {
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

// set is the set of bits that a word has no room for. It keeps a copy.
func (w *wide) set(of words) Set {
	w.key = w.key[:0]
	for _, word := range of {
		w.key = binary.LittleEndian.AppendUint64(w.key, word)
	}
	at, known := w.places[string(w.key)]
	if known {
		return isWide | Set(at)
	}
	if w.places == nil {
		w.places = map[string]uint32{}
	}
	if n := len(w.unused); n > 0 {
		at, w.unused = w.unused[n-1], w.unused[:n-1]
	} else {
		at = uint32(len(w.sets))
		w.sets = append(w.sets, nil)
	}
	w.sets[at] = slices.Clone(of)
	w.places[string(w.key)] = at
	return isWide | Set(at)
}
