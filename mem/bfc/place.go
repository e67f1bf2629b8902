package bfc

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A want is a request under way.
type want struct {
	stream      driver.Stream
	asked, size int64  // bytes; rounded
	bound       uint64 // stamps of blocks that may be taken; 0: all
	freedBefore func() uint64
	note        Note
	hasty       bool // no segment is given back for it
	tentative   bool // a refusal is not counted or told

	busy  error // why a block that fits was not taken: a stream captures
	cause error // why the device gave no segment
}

// fetch finds a block, in TensorFlow's order: a free one, a new segment, one made of blocks above the safe frontier, a new
// segment in the place of unused ones. It returns 0 and no error if there is no room.
func (a *Allocator) fetch(w *want) (ref, error) {
	w.busy, w.cause = nil, nil
	a.mergeTimed(0)
	for step := range 4 {
		room, err := true, error(nil)
		switch step {
		case 1:
			room, err = a.extend(w)
		case 2:
			room = w.bound == 0 && a.mergeTimed(w.size)
		case 3:
			if room = !w.hasty && a.collect(w); room {
				room, err = a.extend(w)
			}
		}
		if err != nil {
			return 0, err
		}
		if room {
			if n, err := a.find(w); n != 0 || err != nil {
				return n, err
			}
		}
	}
	return 0, w.busy
}

// find takes the first free block in order that fits, was freed early enough, and for which the stream can wait.
func (a *Allocator) find(w *want) (ref, error) {
	origin := a.streams.Register(w.stream)
	n := a.bins.seek(a.records, w.size, 0)
	for n != 0 {
		r := &a.records[n]
		if w.bound == 0 || r.freedAt <= w.bound {
			err := a.streams.Wait(w.stream, r.past)
			if err == nil {
				a.lend(n, w, origin)
				return n, nil
			}
			if !errors.Is(err, driver.ErrCapturing) {
				return 0, err
			}
			w.busy = err
		}
		n = a.bins.seek(a.records, r.size, r.ptr+1)
	}
	return 0, nil
}

// lend hands a free block out, less what is cut off its end.
func (a *Allocator) lend(n ref, w *want, origin reuse.Set) {
	a.unshelve(n)
	if size := a.records[n].size; size >= 2*w.size || size-w.size >= a.waste {
		if size > w.size {
			a.split(n, w.size)
		}
	}
	r := &a.records[n]
	r.asked = w.asked
	r.past = reuse.InUse(origin)
	r.stream = w.stream.ID()
	r.gen = max(1, r.gen+1) // in four billion loans it comes round
	r.state = live
	a.countLoan(r)
	a.tell(mem.ActionAlloc, r.stream, r.ptr, r.asked)
	a.tellMetadata("MemoryAllocation", r, w.note)
}
