package layer

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// An Aligner allocator allocates addresses that are multiples of more than the layer below promises. See Align.
type Aligner struct {
	inner    mem.Allocator
	to, from int64
	above    int64
	blockTable[struct{}]
}

// AlignOptions say what Align does not have to do. The zero value aligns every block, over layers that promise 256
// bytes.
type AlignerOptions struct {
	From  int64 // bytes: what the layer below aligns to; 0 means 256, as CUDA does
	Above int64 // bytes: smaller requests are left as the layer below aligns them
}

// Align returns an allocator whose blocks start at multiples of to bytes, for huge pages, direct I/O or hardware that
// wants them so: it asks a for to - From bytes more and leaves out the front. It is RMM's aligned_resource_adaptor.
// Both alignments are powers of two and to is not the smaller one; anything else panics, and so does an Alloc for which
// the layer below does not keep From.
//
// Aligner is no Mover: where a block would be moved to is not aligned, so blocks stay where they are. A warm call takes
// one short lock.
func NewAligner(a mem.Allocator, to int64, opts AlignerOptions) *Aligner {
	if opts.From == 0 {
		opts.From = 256
	}
	for _, n := range [...]int64{to, opts.From} {
		if n <= 0 || n&(n-1) != 0 {
			panic(fmt.Sprintf("layer: Aligner to %d over %d bytes: %d is not a power of two", to, opts.From, n))
		}
	}
	if to < opts.From || opts.Above < 0 {
		panic(fmt.Sprintf("layer: Aligner to %d over %d bytes, of requests from %d on: want to >= From, Above >= 0",
			to, opts.From, opts.Above))
	}
	return &Aligner{inner: a, to: to, from: opts.From, above: opts.Above, blockTable: blockTable[struct{}]{name: "Aligner"}}
}

// Alloc implements mem.Allocator. The error is that of the layer below.
func (a *Aligner) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (a *Aligner) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	to := a.to
	if size < a.above {
		to = a.from
	}
	if size > math.MaxInt64-(to-a.from) {
		return mem.Block{}, errTooLarge(size)
	}
	ask := size
	if size > 0 {
		ask += to - a.from
	}
	b, err := mem.AllocWith(a.inner, s, ask, o)
	if err != nil || b.Ptr == 0 {
		return mem.Block{}, err
	}
	front := int64(-b.Ptr & driver.Pointer(to-1))
	if front > b.Size-size {
		a.inner.Free(b)
		panic(fmt.Sprintf("layer: Aligner: the layer below returned %#x, which is no multiple of %d", uint64(b.Ptr), a.from))
	}
	return a.add(s.ID(), size, mem.Block{Ptr: b.Ptr + driver.Pointer(front), Size: b.Size - front}, b, struct{}{}), nil
}

// Free implements mem.Allocator.
func (a *Aligner) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	a.inner.Free(a.remove(b, used).below, used...)
}

// Unwrap implements mem.Wrapper. A snapshot found below has the blocks as they are there: longer, and not aligned.
func (a *Aligner) Unwrap() mem.Allocator { return a.inner }

// errTooLarge is the error for a request that would pass the end of an int64 with what an adaptor adds to it.
func errTooLarge(size int64) error { return &mem.OutOfMemory{Requested: size, TooLarge: true} }
