package trace

import (
	"errors"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A layer reports the requests that pass through it to a recorder. It reports an Alloc after the layer below allocated
// the block and a Free before the layer below frees it, so that an address is never reported as allocated twice.
type layer struct {
	inner    mem.Allocator
	recorder *Recorder
	reports  bool // reports events, not only errors

	attached  atomic.Bool
	listening atomic.Bool // events are wanted; changes under the recorder's mu
}

// Alloc implements mem.Allocator. The error is that of the layer below.
func (l *layer) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := l.inner.Alloc(s, size)
	if err != nil || l.listening.Load() {
		l.allocated(s, size, b, err)
	}
	return b, err
}

// AllocWith implements mem.OptionsAllocator.
func (l *layer) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(l.inner, s, size, o)
	if err != nil && !o.Tentative || err == nil && l.listening.Load() {
		l.allocated(s, size, b, err)
	}
	return b, err
}

// allocated reports the outcome of a request.
func (l *layer) allocated(s driver.Stream, size int64, b mem.Block, err error) {
	switch {
	case err == nil:
		if b.Ptr != 0 {
			l.report(mem.Event{Action: mem.ActionAlloc, Stream: s.ID(), Ptr: b.Ptr, Size: size})
		}
	case errors.Is(err, mem.ErrNoMemory) && l.attached.Load():
		if l.reports && l.listening.Load() {
			e := mem.Event{Action: mem.ActionOOM, Stream: s.ID(), Size: size}
			var oom *mem.OutOfMemory
			var limit *mem.LimitError
			switch {
			case errors.As(err, &oom):
				e.Pool, e.Ptr, e.Size = oom.Pool, driver.Pointer(oom.Free), max(size, oom.Rounded)
			case errors.As(err, &limit):
				e.Ptr, e.Size = driver.Pointer(max(limit.Limit-limit.Live, 0)), max(size, limit.Block)
			}
			l.report(e)
		}
		l.recorder.outOfMemory(size, err)
	}
}

// Free implements mem.Allocator.
func (l *layer) Free(b mem.Block, used ...driver.Stream) {
	if l.listening.Load() && b.Ptr != 0 {
		check.Used("trace: Free", used)
		l.freed(b)
	}
	l.inner.Free(b, used...)
}

// heard reports whether an event counts. A goroutine may have seen listening set, and come here only after Stop or
// Detach: by then frees are no longer reported, and a block noted now would stay in the table. The caller holds the
// recorder's mu.
func (l *layer) heard() bool { return l.recorder.layer == l && l.listening.Load() }

// report reports an event that still counts.
func (l *layer) report(e mem.Event) {
	r := l.recorder
	r.mu.Lock()
	if l.heard() {
		r.observeLocked(&e, nil)
	}
	r.mu.Unlock()
}

// freed reports the free of a block. It returns the known data of the block, or the zero value if the event does not
// count.
func (l *layer) freed(b mem.Block) knownBlock {
	r := l.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.heard() {
		return knownBlock{}
	}
	was, known := r.blocks.get(b.Ptr)
	if !known { // it was allocated while nothing was recorded
		was = knownBlock{ptr: b.Ptr, size: b.Size}
	}
	e := mem.Event{Action: mem.ActionFreeRequested, Stream: was.stream, Ptr: b.Ptr, Size: was.size}
	r.observeLocked(&e, nil)
	e.Action = mem.ActionFreeCompleted
	r.observeLocked(&e, nil)
	return was
}

// Movable implements mem.Mover.
func (l *layer) Movable(b mem.Block, h mem.Holder) bool {
	if !l.reports {
		return mem.Movable(l.inner, b, h)
	}
	return mem.Movable(l.inner, b, &follower{layer: l, holder: h, at: b})
}

// A follower stands between a block's holder and the layer below, which moves the block, and reports the move. Between
// BeginMove and EndMove the block is reported as freed, because another block may be allocated at its old address
// before EndMove. The allocator below calls it under its locks, which guard the fields.
type follower struct {
	layer  *layer
	holder mem.Holder
	at     mem.Block
	lifted knownBlock // its ptr is 0 if the lift was not reported
}

// BeginMove implements mem.Holder.
func (f *follower) BeginMove() ([]driver.Stream, bool) {
	used, ok := f.holder.BeginMove()
	if ok && f.layer.listening.Load() {
		f.lifted = f.layer.freed(f.at)
	}
	return used, ok
}

// EndMove implements mem.Holder. It reports the move before it calls the holder, and so before any Free.
func (f *follower) EndMove(b mem.Block, s driver.Stream) {
	f.at = b
	if f.lifted.ptr != 0 {
		r := f.layer.recorder
		r.mu.Lock()
		if f.layer.heard() {
			r.observeLocked(&mem.Event{
				Action: mem.ActionAlloc, Stream: f.lifted.stream, Ptr: b.Ptr,
				Size: f.lifted.size,
			}, &f.lifted)
		}
		r.mu.Unlock()
	}
	f.lifted = knownBlock{}
	f.holder.EndMove(b, s)
}

// Unwrap implements mem.Wrapper.
func (l *layer) Unwrap() mem.Allocator { return l.inner }
