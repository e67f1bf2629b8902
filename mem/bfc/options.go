package bfc

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Options are the options of Request, like TensorFlow's AllocationAttributes and the frame around an operation. The
// zero value requests nothing special.
type Options struct {
	// FreedBefore is that of mem.AllocOptions. It bounds the stamps of the blocks that may be taken; nil, and a result
	// of 0, allow all. It is called for each attempt, without locks.
	FreedBefore func() uint64
	// Wait makes a request without room wait until other blocks are freed.
	Wait bool
	// Note is part of the allocation's metadata.
	Note Note
}

// AllocWith implements mem.OptionsAllocator. With NoRetry it does not wait, regardless of Config.Retry, and releases
// no unused segment, where TensorFlow does. It ignores Logged.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	w := request{stream: s, requested: size, freedBefore: o.FreedBefore, noRetry: o.NoRetry, tentative: o.Tentative}
	if o.NoRetry {
		return a.serve(w, nil)
	}
	return a.serve(w, a.cfg.Retry)
}

// Request is Alloc with options. With Options.Wait it waits for memory until ctx ends, and otherwise it ignores ctx;
// it ignores Config.Retry in both cases.
func (a *Allocator) Request(ctx context.Context, s driver.Stream, size int64, opts Options) (mem.Block, error) {
	w := request{stream: s, requested: size, freedBefore: opts.FreedBefore, note: opts.Note}
	if !opts.Wait {
		return a.serve(w, nil)
	}
	return a.serve(w, func() (context.Context, context.CancelFunc) { return ctx, func() {} })
}

// AllocWait is Alloc that waits for memory until ctx ends. The error is then a *mem.OutOfMemory that matches the
// context's cause too.
func (a *Allocator) AllocWait(ctx context.Context, s driver.Stream, size int64) (mem.Block, error) {
	return a.Request(ctx, s, size, Options{Wait: true})
}

// Limit returns the bound of bytes in segments: Config.Limit, or the value that New chose for 0.
func (a *Allocator) Limit() int64 { return a.cfg.Limit }

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }

var _ mem.OptionsAllocator = (*Allocator)(nil)
