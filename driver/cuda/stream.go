//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/order"
)

// A stream is a CUstream with the marks taken on it.
type stream struct {
	d      *device
	id     driver.StreamID
	handle cu.Stream
	shared bool // other code queues work to the handle too: work does not count that, and Close leaves the handle alone

	ending sync.Mutex   // held by Close, which waits for the work; locked before mu
	using  sync.RWMutex // read-locked by waits on the handle that do not hold mu; locked with mu held and closed false

	mu      sync.Mutex // held over every call that queues work, so that ticks are in the order of the work
	closing bool       // new work is refused
	closed  bool       // and all work is done
	gone    bool       // and its resources are freed: the ID may be reused. Guarded by device.streamsMu
	work    uint64     // pieces of work queued or captured through this stream
	marked  uint64     // how many of them the last tick covers

	capture *capture      // of which the stream is part, or nil
	branch  *order.Branch // of the capture; the parts that other streams read are also guarded by the capture's mu
	covered uint64        // the tick of the last cover: it follows all work queued outside captures until then
	dirty   bool          // work may have been queued since

	marks marks

	streamExtras
}

// newStream returns a stream whose ticks continue from tick.
func newStream(d *device, id driver.StreamID, handle cu.Stream, shared bool, tick uint64) *stream {
	s := &stream{d: d, id: id, handle: handle, shared: shared, covered: tick}
	s.marks.last = tick
	s.marks.passed.Store(tick)
	return s
}

// NewStream creates a stream, or adopts a foreign one. It reuses the ID of a closed stream and continues its ticks, so
// that the marks of the closed stream stay reached.
func (d *device) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	const call = "NewStream"
	if err := d.enter(call); err != nil {
		return nil, err
	}
	defer d.leave()
	handle, shared := cu.Stream(o.Foreign), o.Foreign != 0
	if shared {
		if err := d.checkForeign(call, handle); err != nil {
			return nil, err
		}
	} else {
		var r cu.Result
		handle, r = d.lib.StreamCreate(cu.StreamNonBlocking, max(d.first, min(o.Priority, d.last)))
		if r != cu.Success {
			return nil, d.fail(call, r, "")
		}
	}
	d.streamsMu.Lock()
	defer d.streamsMu.Unlock()
	for i, old := range d.streams {
		if old.gone {
			d.streams[i] = newStream(d, old.id, handle, shared, old.marks.last)
			return d.streams[i], nil
		}
	}
	s := newStream(d, driver.StreamID(len(d.streams)), handle, shared, 0)
	d.streams = append(d.streams, s)
	return s, nil
}

// checkForeign fails unless handle is a stream of this device's context. libcuda crashes if the handle was never a
// stream's.
func (d *device) checkForeign(call string, handle cu.Stream) error {
	switch handle {
	case cu.LegacyStream:
		return nil
	case cu.PerThreadStream:
		return invalidError(call, "handle 2 is the per-thread default stream, another one on every thread, and goroutines"+
			" move between threads: want a stream with a handle of its own")
	}
	ctx, r := d.lib.StreamContext(handle)
	switch {
	case r.Missing() != "":
		return nil
	case r != cu.Success:
		return d.fail(call, r, "foreign stream %#x", uintptr(handle))
	case ctx != d.ctx:
		return invalidError(call, "foreign stream %#x is of another context than the primary one of device %d",
			uintptr(handle), d.info.Ordinal)
	}
	return nil
}

func (s *stream) ID() driver.StreamID { return s.id }

// begin prepares for queueing work: until end, the context is current and the stream is locked. It fails if the stream,
// or its device, is closed or being closed.
func (s *stream) begin(call string) error {
	err := s.beginOrder(call)
	if err == nil && s.closing {
		s.end()
		err = s.closedError(call)
	}
	return err
}

// beginOrder is begin for calls that order streams: they are permitted while the stream is being closed.
func (s *stream) beginOrder(call string) error {
	if err := s.d.enter(call); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.end()
		return s.closedError(call)
	}
	return nil
}

// end undoes begin.
func (s *stream) end() {
	s.mu.Unlock()
	s.d.leave()
}

// Close waits for the stream's work and destroys the stream. It does not destroy a foreign stream. For the default
// stream it is a no-op. It fails while the stream captures. If the wait fails, the stream stays open.
func (s *stream) Close() error {
	const call = "Stream.Close"
	if s == s.d.zero {
		return nil
	}
	if err := s.d.enter(call); err != nil {
		if s.isClosed() {
			return nil
		}
		return err
	}
	defer s.d.leave()
	s.ending.Lock()
	defer s.ending.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	err := s.refuseCapture(call)
	if err == nil {
		err = s.finish(call)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.using.Lock() // closed prevents new waits on the handle: this waits for those under way
	defer s.using.Unlock()
	if !s.shared {
		err = s.d.fail(call, s.d.lib.StreamDestroy(s.handle), "stream %d", s.id)
	}
	s.d.streamsMu.Lock()
	defer s.d.streamsMu.Unlock()
	s.gone = err == nil // otherwise the device's Close tries again
	return err
}

// finish refuses new work, waits for all work and waits queued so far, and closes the stream. The caller holds s.mu,
// which finish releases while it waits.
func (s *stream) finish(call string) error {
	s.closing = true
	for {
		work, tick := s.work, s.marks.last // on a shared stream, a new mark may follow work that is not counted
		s.mu.Unlock()
		r := s.d.lib.StreamSynchronize(s.handle)
		s.mu.Lock()
		if r != cu.Success {
			s.closing = false
			return s.d.fail(call, r, "stream %d", s.id)
		}
		if work == s.work && tick == s.marks.last {
			break
		}
	}
	s.closed = true
	s.markAllDone()
	s.closeExtras()
	return nil
}

// waitForAll waits for all work queued on the handle, which is not destroyed during the call. The caller holds s.mu,
// which waitForAll unlocks.
func (s *stream) waitForAll() cu.Result {
	s.using.RLock()
	defer s.using.RUnlock()
	s.mu.Unlock()
	return s.d.lib.StreamSynchronize(s.handle)
}

// isClosed reports whether the stream is closed, by its own Close or the device's.
func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// markAllDone records that all marks are reached.
func (s *stream) markAllDone() {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	s.marks.advance(&s.d.events, s.marks.last)
}

func (s *stream) closedError(call string) error {
	return closedError(call, fmt.Sprintf("stream %d", s.id))
}
