package pinned

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A piece is page-locked memory: see the design comment of pinned.go.
type piece struct {
	pool *pool // under Allocator.mu
	segment

	// Under Allocator.mu. While the piece is pending, addWaits owns uses.
	tag       uint64 // in Allocator.active
	requested int64  // bytes of the last request
	state     state
	captured  bool            // recorded on a stream that captured
	uses      []driver.Stream // recorded, without repetition
	key       any             // of the last request
	served    bool            // key is set: it had a request

	waits int // marks that are not reached yet; under Allocator.waiting
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

func (r *piece) block() mem.Block {
	return mem.Block{Ptr: driver.Pointer(address(r.mem)), Size: r.size(), Tag: r.tag}
}

// pieceOf returns the piece of a block that is live, pending or captured, or else nil. The caller holds mu.
func (a *Allocator) pieceOf(b mem.Block) *piece {
	if entry := a.active.Get(b.Tag); entry != nil && (*entry).block() == b {
		return *entry
	}
	return nil
}

// wipe zeroes the memory of a new block, unless the last request for it had the same key.
func (a *Allocator) wipe(b mem.Block, key any) {
	a.mu.Lock()
	r := a.live(b)
	same := r.served && r.key == key
	r.key, r.served = key, true
	a.mu.Unlock()
	if !same {
		clear(r.mem) // no other goroutine and no stream uses it
	}
}

// live returns the piece of a live block, or nil if b is not live. The caller holds mu.
func (a *Allocator) live(b mem.Block) *piece {
	if r := a.pieceOf(b); r != nil && r.state == live {
		return r
	}
	return nil
}

// Bytes returns the memory of a live block, which lies outside Go's heap. Its length is the requested size, its
// capacity is b.Size. The memory must not be used after Free, nor while queued work uses it. Bytes of the zero Block is
// nil. Bytes panics if b is not a live block of this allocator.
func (a *Allocator) Bytes(b mem.Block) []byte {
	if b == (mem.Block{}) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.live(b)
	if r == nil {
		panic(fmt.Sprintf("pinned: Bytes of a block that is not live (%d bytes at %#x)", b.Size, uint64(b.Ptr)))
	}
	return r.mem[:r.requested]
}

// Find returns the live block in which p lies as a whole, for callers that keep only bytes. The slice may begin
// anywhere in the block; it must not be empty.
func (a *Allocator) Find(p []byte) (mem.Block, bool) {
	if len(p) == 0 {
		return mem.Block{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.find(address(p), len(p))
	if r == nil {
		return mem.Block{}, false
	}
	return r.block(), true
}

// find returns the live piece in which size bytes at an address lie, or nil. The start of a block is found in constant
// time. The caller holds mu.
func (a *Allocator) find(at uintptr, size int) *piece {
	r := a.byStart[at]
	if r == nil {
		i, _ := a.search(at)
		if i == 0 {
			return nil
		}
		r = a.byAddress[i-1] // the last one that begins below
	}
	if r.state != live || at-address(r.mem)+uintptr(size) > uintptr(len(r.mem)) {
		return nil
	}
	return r
}

// insert adds a piece under its address. The caller holds mu.
func (a *Allocator) insert(r *piece) {
	i, _ := a.search(address(r.mem))
	a.byAddress = slices.Insert(a.byAddress, i, r)
	a.byStart[address(r.mem)] = r
}

// remove removes a piece before its memory is freed, because the driver may allocate the address again before its call
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
