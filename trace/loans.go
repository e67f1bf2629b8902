package trace

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
)

// A loan is what is known of an allocated block, or freed and still used by others.
type loan struct {
	ptr    driver.Pointer // zero in an empty slot
	size   int64          // requested bytes
	stream driver.StreamID
	stack  StackID
}

// A loanTable finds loans by address: an open table with linear probing, at most half full. Who is taken out leaves no
// mark, since those behind move up, so it allocates only to grow.
type loanTable struct {
	slots []loan // a power of two, or none
	n     int
}

// home is the slot at which the search for an address begins: the upper bits of a product, so that multiples of large
// powers of two spread.
func (t *loanTable) home(p driver.Pointer) int {
	return int(uint64(p) * 0x9e3779b97f4a7c15 >> (64 - bits.Len(uint(len(t.slots)-1))))
}

// find returns the slot of an address, or the empty one where it would be. There are slots.
func (t *loanTable) find(p driver.Pointer) int {
	i := t.home(p)
	for t.slots[i].ptr != p && t.slots[i].ptr != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// put adds a loan, in place of an older one at its address.
func (t *loanTable) put(l loan) {
	if l.ptr == 0 {
		return
	}
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = make([]loan, max(256, 2*len(old)))
		for i := range old {
			if old[i].ptr != 0 {
				t.slots[t.find(old[i].ptr)] = old[i]
			}
		}
	}
	slot := &t.slots[t.find(l.ptr)]
	if slot.ptr == 0 {
		t.n++
	}
	*slot = l
}

func (t *loanTable) get(p driver.Pointer) (loan, bool) {
	if t.n == 0 || p == 0 {
		return loan{}, false
	}
	l := t.slots[t.find(p)]
	return l, l.ptr != 0
}

// holding returns the loan in which p lies. It looks at all loans if none begins at p.
func (t *loanTable) holding(p driver.Pointer) (loan, bool) {
	l, ok := t.get(p)
	for i := 0; i < len(t.slots) && !ok; i++ {
		l = t.slots[i]
		ok = l.ptr != 0 && l.ptr <= p && p-l.ptr < driver.Pointer(l.size)
	}
	return l, ok
}

// take is get, and takes the loan out.
func (t *loanTable) take(p driver.Pointer) (loan, bool) {
	if t.n == 0 || p == 0 {
		return loan{}, false
	}
	hole := t.find(p)
	l := t.slots[hole]
	if l.ptr == 0 {
		return loan{}, false
	}
	t.n--
	// Whatever is behind, up to the next empty slot, moves up if its search would pass the hole.
	mask := len(t.slots) - 1
	for i := (hole + 1) & mask; t.slots[i].ptr != 0; i = (i + 1) & mask {
		if home := t.home(t.slots[i].ptr); (i-home)&mask >= (i-hole)&mask {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = loan{}
	return l, true
}

func (t *loanTable) clear() {
	clear(t.slots)
	t.n = 0
}

func (t *loanTable) forgetStacks() {
	for i := range t.slots {
		t.slots[i].stack = 0
	}
}

// A segmentList is the memory that the driver gave, in the pieces in which it gave it, with the stacks under which they
// were got; by address, without overlap.
type segmentList []segmentStack

type segmentStack struct {
	ptr   driver.Pointer
	size  int64
	stack StackID
}

// at returns the index of the first piece that ends after p.
func (l segmentList) at(p driver.Pointer) int {
	return sort.Search(len(l), func(i int) bool { return l[i].ptr+driver.Pointer(l[i].size) > p })
}

// get returns the stack of the piece that begins at p.
func (l segmentList) get(p driver.Pointer) StackID {
	if i := l.at(p); i < len(l) && l[i].ptr == p {
		return l[i].stack
	}
	return 0
}

// add enters memory that was got in one piece, in place of what was known there.
func (l *segmentList) add(p driver.Pointer, size int64, stack StackID) {
	l.drop(p, size)
	*l = slices.Insert(*l, l.at(p), segmentStack{p, size, stack})
}

// drop takes out memory that was given back, which may be parts of pieces, and returns the stack of that at p.
func (l *segmentList) drop(p driver.Pointer, size int64) (stack StackID) {
	from, end := l.at(p), p+driver.Pointer(size)
	var left [2]segmentStack
	n, to := 0, from
	for ; to < len(*l) && (*l)[to].ptr < end; to++ {
		piece := (*l)[to]
		if piece.ptr <= p {
			stack = piece.stack
		}
		if piece.ptr < p {
			left[n] = segmentStack{piece.ptr, int64(p - piece.ptr), piece.stack}
			n++
		}
		if after := piece.ptr + driver.Pointer(piece.size); after > end {
			left[n] = segmentStack{end, int64(after - end), piece.stack}
			n++
		}
	}
	*l = slices.Replace(*l, from, to, left[:n]...)
	return stack
}
