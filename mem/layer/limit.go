package layer

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A Limiter limits the bytes of live blocks that are allocated through it. See NewLimiter.
type Limiter struct {
	Pass
	limit atomic.Int64
	live  atomic.Int64 // allocated bytes, including requests in progress
}

// NewLimiter returns an allocator that allocates blocks of a while their sizes (Block.Size, not the requested sizes)
// add up to at most bytes, and refuses other requests with a *mem.LimitError. Blocks that a caches do not count.
//
// A request counts from its start. So of two concurrent requests that fit only one at a time, one may be refused
// although the other then fails below. A block that is larger than requested, and so exceeds the limit, is freed at
// once. A refused request does not change the count. A negative limit panics.
func NewLimiter(a mem.Allocator, bytes int64) *Limiter {
	l := &Limiter{Pass: Pass{a}}
	l.SetLimit(bytes)
	return l
}

// SetLimit replaces the limit. Blocks that are live stay live, even those over a lower limit. A negative limit panics.
func (l *Limiter) SetLimit(bytes int64) {
	if bytes < 0 {
		panic(fmt.Sprintf("layer: Limiter of %d bytes: it must not be negative", bytes))
	}
	l.limit.Store(bytes)
}

// Limit returns the limit in bytes.
func (l *Limiter) Limit() int64 { return l.limit.Load() }

// HasLimit returns true: a limit of 0 allows nothing. See mem.LimitOf.
func (l *Limiter) HasLimit() bool { return true }

// Live returns the allocated bytes, including requests in progress.
func (l *Limiter) Live() int64 { return l.live.Load() }

// Alloc implements mem.Allocator. The error is a *mem.LimitError if the limit refuses the request, or that of the
// allocator below.
func (l *Limiter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	check.Stream("layer: Limiter: Alloc", s)
	if size <= 0 {
		return l.Below.Alloc(s, size)
	}
	if live, ok := l.reserve(size); !ok {
		return mem.Block{}, l.refusal(size, size, live)
	}
	b, err := l.Below.Alloc(s, size)
	if err == nil && b.Size == size {
		return b, nil
	}
	return l.adjust(size, b, err)
}

// AllocWith implements mem.OptionsAllocator.
func (l *Limiter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("layer: Limiter: Alloc", s)
	if size <= 0 {
		return mem.AllocWith(l.Below, s, size, o)
	}
	if live, ok := l.reserve(size); !ok {
		return mem.Block{}, l.refusal(size, size, live)
	}
	b, err := mem.AllocWith(l.Below, s, size, o)
	return l.adjust(size, b, err)
}

// adjust counts the full size of the block that a request for size bytes got, or frees it if that exceeds the limit.
// The request was counted before.
func (l *Limiter) adjust(size int64, b mem.Block, err error) (mem.Block, error) {
	if err != nil {
		l.live.Add(-size)
		return mem.Block{}, err
	}
	if extra := b.Size - size; extra != 0 {
		if live, ok := l.reserve(extra); !ok {
			l.Below.Free(b)
			l.live.Add(-size)
			return mem.Block{}, l.refusal(size, b.Size, live-size)
		}
	}
	return b, nil
}

func (l *Limiter) refusal(want, block, live int64) *mem.LimitError {
	return &mem.LimitError{Want: want, Block: block, Live: live, Limit: l.limit.Load()}
}

// reserve counts n more bytes unless that would exceed the limit. It returns the bytes counted before.
func (l *Limiter) reserve(n int64) (int64, bool) {
	for {
		live, limit := l.live.Load(), l.limit.Load()
		if n > 0 && (live > math.MaxInt64-n || live+n > limit) {
			return live, false
		}
		if !l.live.CompareAndSwap(live, live+n) {
			continue
		}
		if n <= 0 || live+n <= l.limit.Load() {
			return live, true
		}
		l.live.Add(-n) // SetLimit may have lowered the limit in the meantime
	}
}

// Free implements mem.Allocator. The bytes count until the allocator below has taken the block back.
func (l *Limiter) Free(b mem.Block, used ...driver.Stream) {
	l.Below.Free(b, used...)
	if l.live.Add(-b.Size) < 0 {
		l.live.Add(b.Size)
		panic(fmt.Sprintf("layer: Limiter: Free of %d bytes at %#x: more than was allocated through this limit", b.Size,
			b.Ptr))
	}
}
