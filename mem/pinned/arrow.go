package pinned

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
)

// An ArrowAllocator serves page-locked memory to Apache Arrow: it has the methods of memory.Allocator in
// github.com/apache/arrow-go/v18/arrow/memory, so that the buffers of arrays and records can be copied to the device
// directly. Slices begin at a multiple of 64 bytes and are zeroed, as those of Arrow's own allocators. It is safe for
// concurrent use.
//
// The interface has no errors. Like Arrow's allocators, this one panics if there is no room; the panic's value is the
// error of Alloc, which callers can recover and match.
//
// To record that a stream uses a buffer, find its block: b, ok := a.Find(buffer.Bytes()), then a.RecordStream(b, s).
type ArrowAllocator struct {
	a *Allocator
}

// Arrow returns an allocator for Arrow whose memory is a's.
func Arrow(a *Allocator) ArrowAllocator { return ArrowAllocator{a} }

// arrowAlignment is the alignment that Arrow's format recommends and its allocators use.
const arrowAlignment = 64

// Allocate returns size zero bytes, whose capacity is the whole block. Zero bytes have no block.
func (x ArrowAllocator) Allocate(size int) []byte {
	if size == 0 {
		return []byte{}
	}
	b := x.alloc(int64(size))
	if b.Ptr%arrowAlignment != 0 { // only for an unusual driver
		x.a.Free(b)
		b = x.alloc(int64(size) + arrowAlignment - 1)
	}
	shift := int(-b.Ptr % arrowAlignment)
	p := x.a.Bytes(b)[shift : shift+size]
	clear(p)
	return p
}

func (x ArrowAllocator) alloc(size int64) mem.Block {
	b, err := x.a.Alloc(size)
	if err != nil {
		panic(err)
	}
	return b
}

// Reallocate returns size bytes that begin with the content of b, followed by zeros, and frees b. If b's block is large
// enough, it is reused.
func (x ArrowAllocator) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		p := b[:size]
		if size > len(b) {
			clear(p[len(b):])
		}
		return p
	}
	p := x.Allocate(size)
	copy(p, b)
	x.Free(b)
	return p
}

// Free frees the block of a slice that Allocate or Reallocate returned, or of a part of it. A slice without capacity is
// ignored. It panics if b lies in no live block of the allocator.
func (x ArrowAllocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	block, ok := x.a.Find(b[:1])
	if !ok {
		panic(fmt.Sprintf("pinned: Arrow: Free of %d bytes at %#x that are in no live block: "+
			"they were freed already, or another allocator's", len(b), address(b)))
	}
	x.a.Free(block)
}
