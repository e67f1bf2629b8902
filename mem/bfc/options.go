package bfc

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Options are optional properties of a request, as in TensorFlow's AllocationAttributes and the frame around an
// operation.
type Options struct {
	// FreedBefore is that of mem.AllocOptions: the upper bound of the stamps of usable blocks. All blocks are usable if
	// it is nil or returns 0. It is called for each attempt, without locks.
	FreedBefore func() uint64
	// Wait makes a request without room wait until other blocks are freed.
	Wait bool
	// Note goes into the metadata of the allocation.
	Note Note
}

// AllocWith implements mem.OptionsAllocator. With NoRetry a request ignores Config.Retry and does not wait, and no
// unused segment is released for it; TensorFlow would release them. Logged has no effect.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	w := request{stream: s, requested: size, freedBefore: o.FreedBefore, noRetry: o.NoRetry, tentative: o.Tentative}
	if o.NoRetry {
		return a.serve(w, nil)
	}
	return a.serve(w, a.cfg.Retry)
}

// Request is Alloc with options. With Options.Wait it waits for memory until ctx ends. Otherwise it does not wait, ctx
// is not used, and Config.Retry is ignored.
func (a *Allocator) Request(ctx context.Context, s driver.Stream, size int64, opts Options) (mem.Block, error) {
	w := request{stream: s, requested: size, freedBefore: opts.FreedBefore, note: opts.Note}
	if !opts.Wait {
		return a.serve(w, nil)
	}
	return a.serve(w, func() (context.Context, context.CancelFunc) { return ctx, func() {} })
}

// AllocWait is Alloc that waits, if there is no room, until other blocks are freed or ctx ends. The error is then a
// *mem.OutOfMemory that also matches the cause of ctx's end.
func (a *Allocator) AllocWait(ctx context.Context, s driver.Stream, size int64) (mem.Block, error) {
	return a.Request(ctx, s, size, Options{Wait: true})
}

// Limit returns the bound of the bytes in segments: Config.Limit, or its default.
func (a *Allocator) Limit() int64 { return a.cfg.Limit }

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

// FrameworkStats implements mem.FrameworkReporter: Figures by TensorFlow's names, without the fragmentation.
func (a *Allocator) FrameworkStats() mem.FrameworkStats {
	f := a.Figures()
	return mem.FrameworkStats{
		NumAllocs: f.Allocs, BytesInUse: f.InUse, PeakBytesInUse: f.PeakInUse, LargestAllocSize: f.LargestAlloc,
		BytesLimit: &f.Limit, BytesReserved: f.Pool, PeakBytesReserved: f.PeakPool, BytesReservableLimit: &f.Limit,
		LargestFreeBlockBytes: f.LargestFree, PoolBytes: f.Pool, PeakPoolBytes: f.PeakPool,
	}
}

var _ interface {
	mem.OptionsAllocator
	mem.FrameworkReporter
} = (*Allocator)(nil)
