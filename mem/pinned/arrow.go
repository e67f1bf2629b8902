package pinned

import "fmt"

// An ArrowAllocator serves page-locked memory to Apache Arrow: it has the methods of memory.Allocator in
// github.com/apache/arrow-go/v18/arrow/memory, so that the buffers of arrays and records can be copied to the device as
// they are. Slices begin at a multiple of 64 bytes and are zeroed, as those of Arrow's own allocators. Safe for
// concurrent use.
//
// The interface has no errors. Like Arrow's allocators this one panics if there is no room; the panic's value is the
// error of Alloc, so that who recovers can match it.
//
// To say that a stream uses a buffer, find its block: b, ok := a.Find(buffer.Bytes()), then a.Record(b, s).
type ArrowAllocator struct {
	a *Allocator
}

// Arrow returns an allocator for Arrow whose memory is a's.
func Arrow(a *Allocator) ArrowAllocator { return ArrowAllocator{a} }

// arrowAlignment is what Arrow's format recommends and its allocators keep.
const arrowAlignment = 64

// Allocate returns size zero bytes, with a capacity of all that the block has. None have no block.
func (x ArrowAllocator) Allocate(size int) []byte {
	if size == 0 {
		return []byte{}
	}
	b := x.alloc(int64(size))
	if address(b.bytes)%arrowAlignment != 0 { // of an unusual driver
		x.a.Free(b)
		b = x.alloc(int64(size) + arrowAlignment - 1)
	}
	shift := int(-address(b.bytes) % arrowAlignment)
	p := b.bytes[shift : shift+size]
	clear(p)
	return p
}

func (x ArrowAllocator) alloc(size int64) Block {
	b, err := x.a.Alloc(size)
	if err != nil {
		panic(err)
	}
	return b
}

// Reallocate returns size bytes that begin as b does and go on with zeros, and takes b back. If b's block is large
// enough, it stays.
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

// Free takes back what Allocate or Reallocate returned, or a part of it. A slice without capacity is of no block. It
// panics if b lies in no live block of the allocator.
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
