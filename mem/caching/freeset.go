package caching

import (
	"github.com/ashlar-go/ashlar/mem/internal/sizebins"
)

// A freeSet holds the free blocks of one stream and pool in the order (size, address), the order of best fit.
//
// Sizes fall into bins: one for each multiple of 512 bytes below 32 KiB, then 32 to each power of two. A bitmap of two
// levels finds the next nonempty bin in two instructions. A bin is a B+tree. Its root is usually a leaf with a few
// entries, so an operation on a small set takes a few nanoseconds. A bin with many blocks becomes a deeper tree, so
// operations stay O(log n). Nodes are recycled, also the only leaf of a bin that becomes empty: a set allocates only to
// grow beyond its largest size so far, and what it keeps does not depend on how many sizes it has seen.
//
// The trees are not rebalanced on removal: a leaf is removed when it is empty, and an inner node when its last child is
// removed.
//
// The last inserted entry, the hot entry, stays outside of the trees, because it is often the next to be removed: a
// freed block merges with the rest that was split off from it, and the next request splits the same block again. A
// caller that walks through the set inserts the hot entry first (insertHot).
type freeSet struct {
	bins  *[numBins]*node // nil until used (many sets have only the hot entry); nil for each empty bin
	used  sizebins.Set    // the nonempty bins
	n     int
	hot   entry    // outside of the trees; its word is 0 if there is none
	spare [2]*node // recycled leaves and inner nodes, linked by next
}

const (
	unit     = minBlockSize
	numBins  = sizebins.NumBins
	fan      = 64 // entries in a node
	maxDepth = 10 // a node splits after at least fan/2 insertions, and 32^10 exceeds any number of entries
)

// An entry is a free block: its address, and a word with its size in units of 512 bytes in the upper bits and its
// blockRef in the lower bits. It takes 16 bytes.
type entry struct {
	ptr  uint64
	word uint64
}

const (
	refBits = 32 // bits of a word for the blockRef; the size is above
	maxRef  = 1<<refBits - 1
)

func makeEntry(size int64, ptr uint64, ref blockRef) entry {
	return entry{ptr, uint64(size)/unit<<refBits | uint64(ref)}
}

func (e *entry) size() int64 { return int64(e.word >> refBits * unit) }

func (e *entry) ref() blockRef { return blockRef(e.word & maxRef) }

// less compares an entry with a key: a size in units, and an address.
func (e *entry) less(units, ptr uint64) bool {
	u := e.word >> refBits
	return u < units || u == units && e.ptr < ptr
}

// A cursor is a position in a freeSet. The zero cursor is the end.
type cursor struct {
	leaf *node
	i    int
	bin  int
}

func (c cursor) ok() bool { return c.leaf != nil }

func (c cursor) entry() *entry { return &c.leaf.keys[c.i] }

// binOf returns the bin of a size in bytes.
func binOf(size int64) int { return sizebins.Of(uint64(size) / unit) }

// lowerBound returns the first entry in the trees that is not less than (size, 0).
func (s *freeSet) lowerBound(size int64) cursor {
	b := binOf(size)
	if s.used.Has(b) {
		nd := s.bins[b]
		units := uint64(size) / unit
		nd = nd.descend(units, 0)
		if i := nd.search(units, 0); i < nd.n {
			return cursor{nd, i, b}
		}
		if nd.next != nil {
			return cursor{nd.next, 0, b}
		}
	}
	return s.firstFrom(b + 1)
}

func (s *freeSet) firstFrom(b int) cursor {
	b = s.used.Next(b)
	if b == numBins {
		return cursor{}
	}
	nd := s.bins[b]
	for nd.kids != nil {
		nd = nd.kids[0]
	}
	return cursor{nd, 0, b}
}

// first and last return the ends of the set.
func (s *freeSet) first() cursor {
	s.insertHot()
	return s.firstFrom(0)
}

// lastUpTo returns the last entry of the bins up to b.
func (s *freeSet) lastUpTo(b int) cursor {
	b = s.used.Prev(b)
	if b < 0 {
		return cursor{}
	}
	nd := s.bins[b]
	for nd.kids != nil {
		nd = nd.kids[nd.n-1]
	}
	return cursor{nd, nd.n - 1, b}
}

func (s *freeSet) last() cursor {
	s.insertHot()
	return s.lastUpTo(numBins - 1)
}

// next returns the entry after c, and prev the one before.
func (s *freeSet) next(c cursor) cursor {
	if c.i+1 < c.leaf.n {
		return cursor{c.leaf, c.i + 1, c.bin}
	}
	if c.leaf.next != nil {
		return cursor{c.leaf.next, 0, c.bin}
	}
	return s.firstFrom(c.bin + 1)
}

func (s *freeSet) prev(c cursor) cursor {
	if c.i > 0 {
		return cursor{c.leaf, c.i - 1, c.bin}
	}
	if c.leaf.prev != nil {
		return cursor{c.leaf.prev, c.leaf.prev.n - 1, c.bin}
	}
	return s.lastUpTo(c.bin - 1)
}

// insert adds a free block.
func (s *freeSet) insert(size int64, ptr uint64, ref blockRef) {
	if s.hot.word != 0 {
		s.insertTree(s.hot)
	}
	s.n++
	s.hot = makeEntry(size, ptr, ref)
}

// insertHot inserts the hot entry into its tree.
func (s *freeSet) insertHot() {
	if s.hot.word != 0 {
		s.insertTree(s.hot)
		s.hot = entry{}
	}
}

// best returns the first entry that is not less than (size, 0) and, unless it is the hot one, its position. If there is
// none, it returns a zero entry.
func (s *freeSet) best(size int64) (entry, cursor) {
	hot := s.hot.word != 0 && s.hot.size() >= size
	var c cursor
	if !s.used.Empty() {
		c = s.lowerBound(size)
	}
	if !c.ok() {
		if hot {
			return s.hot, c
		}
		return entry{}, c
	}
	e := *c.entry()
	if hot && s.hot.less(e.word>>refBits, e.ptr) {
		return s.hot, cursor{}
	}
	return e, c
}

// takeBest removes the entry that best returned.
func (s *freeSet) takeBest(c cursor) {
	if c.ok() {
		s.removeAt(c)
		return
	}
	s.n--
	s.hot = entry{}
}

// removeAt removes the entry at a cursor. The cursor is then invalid.
func (s *freeSet) removeAt(c cursor) {
	nd := c.leaf
	if nd.n == 1 && (nd.prev != nil || nd.next != nil || s.bins[c.bin] != nd) {
		e := nd.keys[0]
		s.removeTree(e.size(), e.ptr)
		return
	}
	s.n--
	nd.n--
	copy(nd.keys[c.i:nd.n], nd.keys[c.i+1:nd.n+1])
	if nd.n == 0 {
		s.emptyBin(c.bin)
	}
}

// remove removes an entry, and reports whether it existed.
func (s *freeSet) remove(size int64, ptr uint64) bool {
	if s.hot.ptr == ptr && s.hot.word != 0 && s.hot.size() == size {
		s.n--
		s.hot = entry{}
		return true
	}
	return s.removeTree(size, ptr)
}
