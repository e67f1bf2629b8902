package bfc

import (
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
)

// numBins is the number of bins: bin b holds the free blocks of 256<<b bytes up to twice that, the last all larger
// ones.
const numBins = 21

// binOf returns the bin of a size, and binSize the smallest size of a bin.
func binOf(size int64) int { return min(numBins-1, bits.Len64(uint64(size)/unit)-1) }
func binSize(b int) int64  { return unit << b }

// bins are the free blocks, by size and then by address. Each bin is a treap: a search tree by (size, address), and a
// heap by a hash of the block's index, so its depth is that of a random tree. The nodes are the blocks themselves, so
// nothing is allocated.
type bins struct {
	roots [numBins]ref
	used  uint32 // bit b: bin b is not empty
}

// less orders blocks by size, then address.
func less(x *block, size int64, ptr driver.Pointer) bool {
	return x.size < size || x.size == size && x.ptr < ptr
}

// weight returns the key in the heap. It is a bijection, so no two blocks have the same key.
func weight(n ref) uint32 {
	h := uint32(n) * 0x9e3779b1
	h ^= h >> 15
	h *= 0x85ebca77
	return h ^ h>>13
}

// insert adds a free block to its bin.
func (b *bins) insert(records []block, n ref) {
	r := &records[n]
	bin := binOf(r.size)
	at := &b.roots[bin]
	for *at != 0 && weight(*at) > weight(n) {
		at = records[*at].child(!less(&records[*at], r.size, r.ptr))
	}
	// Split the subtree below at the new node.
	rest := *at
	*at = n
	low, high := &r.left, &r.right
	for rest != 0 {
		x := &records[rest]
		if less(x, r.size, r.ptr) {
			*low, low = rest, &x.right
			rest = *low
		} else {
			*high, high = rest, &x.left
			rest = *high
		}
	}
	*low, *high = 0, 0
	b.used |= 1 << bin
}

// remove removes a block from its bin.
func (b *bins) remove(records []block, n ref) {
	r := &records[n]
	bin := binOf(r.size)
	at := &b.roots[bin]
	for *at != n {
		at = records[*at].child(!less(&records[*at], r.size, r.ptr))
	}
	low, high := r.left, r.right
	for low != 0 && high != 0 {
		if weight(low) > weight(high) {
			*at, at = low, &records[low].right
			low = *at
		} else {
			*at, at = high, &records[high].left
			high = *at
		}
	}
	*at = low | high
	r.left, r.right = 0, 0
	if b.roots[bin] == 0 {
		b.used &^= 1 << bin
	}
}

// child returns the left or the right child.
func (r *block) child(left bool) *ref {
	if left {
		return &r.left
	}
	return &r.right
}

// lowerBound returns the first free block that is not before (size, ptr), or 0. TensorFlow searches the bins from that
// of the size upward, in this order, for the first block that is large enough, and finds the same block.
func (b *bins) lowerBound(records []block, size int64, ptr driver.Pointer) ref {
	bin := binOf(size)
	var found ref
	for n := b.roots[bin]; n != 0; {
		if x := &records[n]; less(x, size, ptr) {
			n = x.right
		} else {
			found, n = n, x.left
		}
	}
	if found != 0 {
		return found
	}
	above := b.used >> bin >> 1 << 1 << bin
	if above == 0 {
		return 0
	}
	n := b.roots[bits.TrailingZeros32(above)]
	for records[n].left != 0 {
		n = records[n].left
	}
	return n
}

// largest returns the last free block, or 0.
func (b *bins) largest(records []block) ref {
	if b.used == 0 {
		return 0
	}
	n := b.roots[bits.Len32(b.used)-1]
	for records[n].right != 0 {
		n = records[n].right
	}
	return n
}
