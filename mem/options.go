package mem

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/driver"
)

// AllocOptions are wishes for one request, as TensorFlow's AllocationAttributes are. The zero value wishes nothing.
type AllocOptions struct {
	// NoRetry: fail as soon as neither the cache nor the device has room, without waiting for others' frees, giving
	// cached memory back, moving blocks, or asking whoever might spill.
	NoRetry bool

	// Logged: whoever asks will log the block itself, with what it is for; a log of all requests leaves this one out.
	Logged bool

	// Tentative: the caller asks again, or elsewhere, if there is no room. A refusal then does not count as out of
	// memory, observers are not told of it, and its error need not explain it. It is TensorFlow's
	// verbose_failure=false.
	Tentative bool

	// RoundUp, if not 0, has what is asked for rounded up to a multiple of so many bytes, before the allocator rounds
	// as it always does: memory beyond the end is the caller's. It is BMEngine's round_up_bytes. A negative number
	// panics.
	RoundUp int64

	// FreedBefore, if not nil, is asked how far the timing counter of an allocator that keeps one has safely come:
	// memory whose free has a smaller count, or the same, may be allocated for this request. See mem/bfc.
	FreedBefore func() uint64

	// Key, if not nil, says who asks: a thread of a foreign runtime, a tenant, whatever the caller tells apart. Scopes
	// of private pools catch requests by it, such as caching.Pool.BeginKey. It must be comparable. A layer that hands
	// out blocks which it holds itself passes such a request on.
	Key any
}

// Join returns the wishes of o and of more together. RoundUp, FreedBefore and Key are those of o, if it has any.
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

// OptionsAllocator is an allocator, or a layer over one, that knows AllocOptions.
type OptionsAllocator interface {
	Allocator

	// AllocWith is Alloc with wishes.
	AllocWith(s driver.Stream, size int64, o AllocOptions) (Block, error)
}

// Rounded returns size as RoundUp rounds it, and the other wishes: what allocators begin with. A size that is not
// positive, or beyond all that can be had, stays as it is.
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

// AllocWith is a.Alloc with wishes. A layer that is not OptionsAllocator does without them, and so does what is below
// it; all adaptors of this package are. Sizes are rounded up over any layer. Without wishes it is a.Alloc, and costs no
// more.
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
