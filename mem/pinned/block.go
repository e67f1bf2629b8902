package pinned

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
)

// A Block is an allocated block of page-locked memory. Copies denote the same block. The memory lies outside Go's heap.
type Block struct {
	bytes      []byte
	rec        *piece
	generation uint64
}

// Bytes returns the memory. Its length is the requested size, its capacity all usable bytes. It must not be used after
// Free, nor while queued work uses it.
func (b Block) Bytes() []byte { return b.bytes }

// Size returns the usable bytes, at least the requested size.
func (b Block) Size() int64 { return int64(cap(b.bytes)) }

// A record is a piece of page-locked memory.
type piece struct {
	owner *Allocator
	pool  *pool // under owner.mu
	segment

	// Under owner.mu. While the record is pending, addWaits owns uses.
	generation uint64
	requested  int64 // bytes of the last request
	state      state
	captured   bool            // recorded on a stream that captured
	uses       []driver.Stream // recorded, without repetition

	waits int // marks that are not reached yet; under owner.waiting
}

type state uint8

const (
	live state = iota
	pending
	captured
	cached
	returning
	returned
)

func (r *piece) size() int64 { return int64(len(r.mem)) }

func (r *piece) block() Block {
	return Block{bytes: r.mem[:r.requested], rec: r, generation: r.generation}
}

// isLive reports whether b is live. The caller holds mu.
func (a *Allocator) isLive(b Block) bool {
	return b.rec != nil && b.rec.owner == a && b.rec.generation == b.generation && b.rec.state == live
}

// Find returns the live block in which p lies as a whole, for callers that keep only bytes. The slice may begin
// anywhere in the block; it must not be empty.
func (a *Allocator) Find(p []byte) (Block, bool) {
	if len(p) == 0 {
		return Block{}, false
	}
	return a.find(address(p), len(p))
}

// find returns the live block in which size bytes at an address lie. The start of a block is found in constant time.
func (a *Allocator) find(at uintptr, size int) (Block, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.byStart[at]
	if r == nil {
		i, _ := a.search(at)
		if i == 0 {
			return Block{}, false
		}
		r = a.byAddress[i-1] // the last one that begins below
	}
	if r.state != live || at-address(r.mem)+uintptr(size) > uintptr(len(r.mem)) {
		return Block{}, false
	}
	return r.block(), true
}

// insert adds a record under its address. The caller holds mu.
func (a *Allocator) insert(r *piece) {
	i, _ := a.search(address(r.mem))
	a.byAddress = slices.Insert(a.byAddress, i, r)
	a.byStart[address(r.mem)] = r
}

// remove removes a record before its memory is freed, because the driver may allocate the address again before its call
// returns. The caller holds mu.
func (a *Allocator) remove(r *piece) {
	r.state = returning
	i, _ := a.search(address(r.mem))
	a.byAddress = slices.Delete(a.byAddress, i, i+1)
	delete(a.byStart, address(r.mem))
}

func (a *Allocator) search(at uintptr) (int, bool) {
	return slices.BinarySearchFunc(a.byAddress, at, func(r *piece, at uintptr) int {
		return cmp.Compare(address(r.mem), at)
	})
}

// address returns the address of a slice. The memory is outside Go's heap, so that it stays there.
func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
