package layer

import (
	"cmp"
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// An Aligner allocates blocks at addresses that are multiples of more bytes than the allocator below promises. See
// NewAligner.
type Aligner struct {
	inner    mem.Allocator
	to, from int64
	above    int64
	blockTable[struct{}]
}

// AlignerOptions are options of NewAligner. The zero value aligns every block, over an allocator that promises 256
// bytes.
type AlignerOptions struct {
	From  int64 // bytes: alignment of the allocator below; 0 means 256, as CUDA does
	Above int64 // bytes: smaller requests keep the alignment of the allocator below
}

// NewAligner returns an allocator whose blocks start at multiples of to bytes, for huge pages or direct I/O. It
// requests to - From more bytes from a and skips the front. It is RMM's aligned_resource_adaptor. Both alignments must
// be powers of two, and to not the smaller one; anything else panics, as does an Alloc for which a does not keep From.
//
// Aligner is no Mover: a moved block would not be aligned. A warm call takes one short lock.
func NewAligner(a mem.Allocator, to int64, opts AlignerOptions) *Aligner {
	opts.From = cmp.Or(opts.From, 256)
	for _, n := range [...]int64{to, opts.From} {
		if n <= 0 || n&(n-1) != 0 {
			panic(fmt.Sprintf("layer: Aligner to %d over %d bytes: %d is not a power of two", to, opts.From, n))
		}
	}
	if to < opts.From || opts.Above < 0 {
		panic(fmt.Sprintf("layer: Aligner to %d over %d bytes, of requests from %d on: want to >= From, Above >= 0",
			to, opts.From, opts.Above))
	}
	return &Aligner{
		inner: a, to: to, from: opts.From, above: opts.Above,
		blockTable: blockTable[struct{}]{name: "Aligner"},
	}
}

// Alloc implements mem.Allocator. The error is that of the allocator below.
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
		panic(fmt.Sprintf("layer: Aligner: the allocator below returned %#x, which is no multiple of %d", uint64(b.Ptr),
			a.from))
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

// Unwrap implements mem.Wrapper. A snapshot found below has the larger, unaligned blocks.
func (a *Aligner) Unwrap() mem.Allocator { return a.inner }

// errTooLarge is the error for a request that would pass the end of an int64 with what an adaptor adds to it.
func errTooLarge(size int64) error { return &mem.OutOfMemory{Requested: size, TooLarge: true} }
