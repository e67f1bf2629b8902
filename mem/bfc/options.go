package bfc

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Options say more of a request, as TensorFlow's AllocationAttributes and the frame around an operation do. The zero value
// says nothing.
type Options struct {
	// FreedBefore is that of mem.AllocOptions. It bounds the stamps of blocks that may be taken: those up to it, or all if it
	// is nil or returns 0. It is called for each attempt, without locks.
	FreedBefore func() uint64
	// Wait has a request without room wait for others to free.
	Wait bool
	// Note goes into the metadata of the allocation.
	Note Note
}

// AllocWith implements mem.OptionsAllocator. With NoRetry it waits for nobody, whatever Config.Retry says, and no unused segment is
// given back for it, where TensorFlow gives those back all the same. Logged means nothing here.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	w := request{stream: s, requested: size, freedBefore: o.FreedBefore, noRetry: o.NoRetry, tentative: o.Tentative}
	if o.NoRetry {
		return a.serve(w, nil)
	}
	return a.serve(w, a.cfg.Retry)
}

// Request is Alloc with options. If they say so it waits for memory until ctx ends, and not otherwise, whatever Config.Retry
// says: then ctx is not used.
func (a *Allocator) Request(ctx context.Context, s driver.Stream, size int64, opts Options) (mem.Block, error) {
	w := request{stream: s, requested: size, freedBefore: opts.FreedBefore, note: opts.Note}
	if !opts.Wait {
		return a.serve(w, nil)
	}
	return a.serve(w, func() (context.Context, context.CancelFunc) { return ctx, func() {} })
}

// AllocWait is Alloc that waits, where there is no room, for others to free, until ctx ends. The error then is a
// *mem.OutOfMemory still, and matches what ctx ended for too.
func (a *Allocator) AllocWait(ctx context.Context, s driver.Stream, size int64) (mem.Block, error) {
	return a.Request(ctx, s, size, Options{Wait: true})
}

// Limit returns Config.Limit, or what stands for it if that is 0: bytes in segments at most.
func (a *Allocator) Limit() int64 { return a.cfg.Limit }

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

// FrameworkStats implements mem.FrameworkReporter: Figures by TensorFlow's names, but for the fragmentation.
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
