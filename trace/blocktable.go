package trace

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/ashlar-go/ashlar/driver"
)

// A knownBlock is the recorded data of a block that is allocated, or freed and still used by other streams.
type knownBlock struct {
	ptr    driver.Pointer // zero in an empty slot
	size   int64          // requested bytes
	stream driver.StreamID
	stack  StackID
}

// A blockTable finds blocks by address. It is a hash table with linear probing, at most half full. Removal moves later
// entries up and leaves no mark, so the table allocates only to grow.
type blockTable struct {
	slots []knownBlock // a power of two, or none
	n     int
}

// slotOf returns the slot at which the search for an address begins: the upper bits of a product, so that multiples of
// large powers of two are spread over the table.
func (t *blockTable) slotOf(p driver.Pointer) int {
	return int(uint64(p) * 0x9e3779b97f4a7c15 >> (64 - bits.Len(uint(len(t.slots)-1))))
}

// find returns the slot of an address, or the empty slot where it belongs. The table must have slots.
func (t *blockTable) find(p driver.Pointer) int {
	i := t.slotOf(p)
	for t.slots[i].ptr != p && t.slots[i].ptr != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// put adds a block and replaces an older one at its address.
func (t *blockTable) put(l knownBlock) {
	if l.ptr == 0 {
		return
	}
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = make([]knownBlock, max(256, 2*len(old)))
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

func (t *blockTable) get(p driver.Pointer) (knownBlock, bool) {
	if t.n == 0 || p == 0 {
		return knownBlock{}, false
	}
	l := t.slots[t.find(p)]
	return l, l.ptr != 0
}

// holding returns the knownBlock in which p lies. It searches all blocks if none begins at p.
func (t *blockTable) holding(p driver.Pointer) (knownBlock, bool) {
	l, ok := t.get(p)
	for i := 0; i < len(t.slots) && !ok; i++ {
		l = t.slots[i]
		ok = l.ptr != 0 && l.ptr <= p && p-l.ptr < driver.Pointer(l.size)
	}
	return l, ok
}

// take returns a block and removes it.
func (t *blockTable) take(p driver.Pointer) (knownBlock, bool) {
	if t.n == 0 || p == 0 {
		return knownBlock{}, false
	}
	hole := t.find(p)
	l := t.slots[hole]
	if l.ptr == 0 {
		return knownBlock{}, false
	}
	t.n--
	// The entries behind, up to the next empty slot, move up if their search would pass the hole.
	mask := len(t.slots) - 1
	for i := (hole + 1) & mask; t.slots[i].ptr != 0; i = (i + 1) & mask {
		if home := t.slotOf(t.slots[i].ptr); (i-home)&mask >= (i-hole)&mask {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = knownBlock{}
	return l, true
}

func (t *blockTable) clear() {
	clear(t.slots)
	t.n = 0
}

func (t *blockTable) forgetStacks() {
	for i := range t.slots {
		t.slots[i].stack = 0
	}
}

// A segmentList holds the pieces of memory that the driver returned, with their stacks, by address and without overlap.
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

// add adds a piece of memory and replaces any that overlaps it.
func (l *segmentList) add(p driver.Pointer, size int64, stack StackID) {
	l.drop(p, size)
	*l = slices.Insert(*l, l.at(p), segmentStack{p, size, stack})
}

// drop removes memory that was freed, which may be parts of pieces, and returns the stack of the piece at p.
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
