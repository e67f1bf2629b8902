package bfc

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// A request is a call of Alloc.
type request struct {
	stream          driver.Stream
	requested, size int64  // bytes; rounded
	bound           uint64 // only blocks with stamps up to this may be taken; 0: all
	freedBefore     func() uint64
	note            Note
	noRetry         bool // release no segments for it
	tentative       bool // do not count or report a failure

	capturing error // the error if a block that fits was not taken because a stream captures
	cause     error // the device's error for a segment
}

// findOrGrow allocates a block, in TensorFlow's order: a free block, a new segment, a block merged above the safe
// frontier, a new segment in place of unused ones. It returns 0 and no error if there is no room.
func (a *Allocator) findOrGrow(w *request) (ref, error) {
	w.capturing, w.cause = nil, nil
	a.mergeTimed(0)
	for step := range 4 {
		room, err := true, error(nil)
		switch step {
		case 1:
			room, err = a.addSegment(w)
		case 2:
			room = w.bound == 0 && a.mergeTimed(w.size)
		case 3:
			if room = !w.noRetry && a.collect(w); room {
				room, err = a.addSegment(w)
			}
		}
		if err != nil {
			return 0, err
		}
		if room {
			if n, err := a.findFree(w); n != 0 || err != nil {
				return n, err
			}
		}
	}
	return 0, w.capturing
}

// findFree takes the first free block in order that fits, was freed early enough, and whose users the stream can wait
// for.
func (a *Allocator) findFree(w *request) (ref, error) {
	origin := a.streams.Register(w.stream)
	n := a.bins.lowerBound(a.blocks, w.size, 0)
	for n != 0 {
		r := &a.blocks[n]
		if w.bound == 0 || r.freedAt <= w.bound {
			err := a.streams.Wait(w.stream, r.deps)
			if err == nil {
				a.allocateBlock(n, w, origin)
				return n, nil
			}
			if !errors.Is(err, driver.ErrCapturing) {
				return 0, err
			}
			w.capturing = err
		}
		n = a.bins.lowerBound(a.blocks, r.size, r.ptr+1)
	}
	return 0, nil
}

// allocateBlock makes a free block live, and splits its end off.
func (a *Allocator) allocateBlock(n ref, w *request, origin reuse.Set) {
	a.removeFromBin(n)
	if size := a.blocks[n].size; size >= 2*w.size || size-w.size >= a.waste {
		if size > w.size {
			a.split(n, w.size)
		}
	}
	r := &a.blocks[n]
	r.requested = w.requested
	r.deps = reuse.InUse(origin)
	r.stream = w.stream.ID()
	r.generation = max(1, r.generation+1) // wraps after four billion allocations
	r.state = live
	stats.CountAlloc(&a.stats, r.size, r.requested)
	a.notify(mem.ActionAlloc, r.stream, r.ptr, r.requested)
	a.notifyMetadata("MemoryAllocation", r, w.note)
}
