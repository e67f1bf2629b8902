package trace

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A loan is what is known of a block on loan, or freed and still used by others.
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

// A segmentList is where segments, or runs of mapped pages, begin, and with which stack they were got; by address.
type segmentList []segmentStack

type segmentStack struct {
	ptr   driver.Pointer
	stack StackID
}

func (l segmentList) at(p driver.Pointer) int {
	i, _ := slices.BinarySearchFunc(l, p, func(s segmentStack, p driver.Pointer) int { return cmp.Compare(s.ptr, p) })
	return i
}

// get returns the stack of the segment that begins at p.
func (l segmentList) get(p driver.Pointer) StackID {
	if i := l.at(p); i < len(l) && l[i].ptr == p {
		return l[i].stack
	}
	return 0
}

// add enters memory that was got in one piece, in place of what was known there.
func (l *segmentList) add(p driver.Pointer, size int64, stack StackID) {
	l.drop(p, size)
	*l = slices.Insert(*l, l.at(p), segmentStack{p, stack})
}

// drop forgets what begins in memory that was given back.
func (l *segmentList) drop(p driver.Pointer, size int64) {
	*l = slices.Delete(*l, l.at(p), l.at(p+driver.Pointer(size)))
}
