package mem

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/driver"
)

// AllocOptions are options of one request, as TensorFlow's AllocationAttributes are. The zero value requests nothing
// special.
type AllocOptions struct {
	// NoRetry fails the request as soon as neither the cache nor the device has room. The allocator does not wait for
	// frees, return cached memory, move blocks, or ask other code to free memory.
	NoRetry bool

	// Logged says that the caller logs the block itself, with its purpose. A log of all requests omits it.
	Logged bool

	// Tentative says that the caller tries again, or elsewhere, if there is no room. A refusal then does not count as
	// out of memory, is not reported to observers, and its error need not explain it. It is TensorFlow's
	// verbose_failure=false.
	Tentative bool

	// RoundUp, if not 0, rounds the requested size up to a multiple of so many bytes, before the allocator's own
	// rounding: the caller may use the additional memory. It is BMEngine's round_up_bytes. A negative number panics.
	RoundUp int64

	// FreedBefore, if not nil, returns the value that the timing counter of an allocator has safely reached: memory
	// whose free has that count or a smaller one may be allocated for this request. See mem/bfc.
	FreedBefore func() uint64

	// Key, if not nil, identifies the caller: a thread of a foreign runtime, a tenant. Scopes of private pools select
	// requests by it, such as caching.Pool.BeginKey. It must be comparable. A layer that caches blocks passes such a
	// request to the allocator below.
	Key any
}

// Join returns the options of o and more together. RoundUp, FreedBefore and Key are those of o, if it has any.
func (o AllocOptions) Join(more AllocOptions) AllocOptions {
	o.NoRetry = o.NoRetry || more.NoRetry
	o.Logged = o.Logged || more.Logged
	o.Tentative = o.Tentative || more.Tentative
	if o.RoundUp == 0 {
		o.RoundUp = more.RoundUp
	}
	if o.FreedBefore == nil {
		o.FreedBefore = more.FreedBefore
	}
	if o.Key == nil {
		o.Key = more.Key
	}
	return o
}

// OptionsAllocator is an allocator, or a layer over one, that supports AllocOptions.
type OptionsAllocator interface {
	Allocator

	// AllocWith is Alloc with options.
	AllocWith(s driver.Stream, size int64, o AllocOptions) (Block, error)
}

// Rounded returns size rounded up by RoundUp, and the other options. Allocators call it first. A size that is not
// positive, or too large for any device, is returned unchanged.
func (o AllocOptions) Rounded(size int64) (int64, AllocOptions) {
	unit := o.RoundUp
	if unit < 0 {
		panic(fmt.Sprintf("mem: AllocOptions.RoundUp is %d bytes: it must not be negative", unit))
	}
	o.RoundUp = 0
	if unit > 0 && size > 0 && size <= math.MaxInt64-unit {
		size = (size + unit - 1) / unit * unit
	}
	return size, o
}

// AllocWith is a.Alloc with options. If a is not an OptionsAllocator, the options are ignored, except that the size is
// rounded up. All layers of package layer are OptionsAllocators. Without options it is a.Alloc, at the same cost.
func AllocWith(a Allocator, s driver.Stream, size int64, o AllocOptions) (Block, error) {
	if o.RoundUp != 0 {
		size, o = o.Rounded(size)
	}
	if !o.NoRetry && !o.Logged && !o.Tentative && o.FreedBefore == nil && o.Key == nil {
		return a.Alloc(s, size)
	}
	if w, ok := a.(OptionsAllocator); ok {
		return w.AllocWith(s, size, o)
	}
	return a.Alloc(s, size)
}
