package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A Stream is a stream of a simulated device. It is safe for concurrent use.
type Stream struct {
	d        *Device
	timeline *timeline
	closed   bool
}

// NewStream returns a new stream with the lowest number that is free. Priorities have no effect, and foreign streams
// are not supported.
func (d *Device) NewStream(opts driver.StreamOptions) (driver.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallNewStream, d.cost(CallNewStream, 0)); err != nil {
		return nil, err
	}
	if opts.Foreign != 0 {
		return nil, d.fail(CallNewStream, driver.ErrUnsupported, "streams of a simulated device have no handles")
	}
	s := &Stream{d: d}
	if n := len(d.idle); n > 0 {
		s.timeline = d.timelines[d.idle[n-1]]
		s.timeline.held = d.opts.Completion == OnDemand
		d.idle = d.idle[:n-1]
	} else {
		s.timeline = d.newTimeline()
	}
	return s, nil
}

// DefaultStream returns the stream with the number 0.
func (d *Device) DefaultStream() driver.Stream { return d.standard }

// ID returns the stream's number.
func (s *Stream) ID() driver.StreamID { return s.timeline.id }

// begin starts a call on the stream. A captured call costs as much as the same call for 0 bytes. The caller holds the
// lock.
func (s *Stream) begin(c Call, size int64, args ...uint64) error {
	if s.timeline.branch != nil {
		size = 0
	}
	if err := s.d.begin(c, s.d.cost(c, size), args...); err != nil {
		return err
	}
	s.d.addToHash(uint64(s.timeline.id))
	if s.closed {
		return s.d.fail(c, driver.ErrClosed, fmt.Sprintf("stream %d is closed", s.timeline.id))
	}
	return nil
}

// beginNow is begin for a call that cannot be captured.
func (s *Stream) beginNow(c Call, size int64, args ...uint64) error {
	if err := s.begin(c, size, args...); err != nil {
		return err
	}
	return s.d.notCapturing(c, s.timeline)
}

// do makes the accesses of a piece of work and queues it, or records it if the stream captures.
func (d *Device) do(tl *timeline, w work, reads, writes []driver.Range) error {
	if tl.branch != nil {
		tl.branch.record(d, w, reads, writes)
		return nil
	}
	if err := d.claim(w.access(d, tl), reads, writes); err != nil {
		return err
	}
	if w.call == CallCopy && overlap(d.reads, d.writes) {
		return d.fail(CallCopy, driver.ErrInvalid, overlapping(reads[0], writes[0]))
	}
	d.record()
	w.src, w.dst = d.reads, d.writes
	d.submit(tl, w)
	return nil
}

// Copy queues a copy of n bytes.
func (s *Stream) Copy(dst, src driver.Pointer, n int64) error {
	notNegative(CallCopy, n)
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.begin(CallCopy, n, uint64(dst), uint64(src), uint64(n)); err != nil {
		return err
	}
	from, to := driver.Range{Ptr: src, Size: n}, driver.Range{Ptr: dst, Size: n}
	if from.Overlaps(to) {
		return d.fail(CallCopy, driver.ErrInvalid, overlapping(from, to))
	}
	return d.do(s.timeline, work{call: CallCopy}, []driver.Range{from}, []driver.Range{to})
}

func overlapping(src, dst driver.Range) string {
	return fmt.Sprintf("[%#x, +%d) and [%#x, +%d) overlap", dst.Ptr, dst.Size, src.Ptr, src.Size)
}

// overlap reports whether two lists of pieces share bytes, perhaps of one page at several addresses.
func overlap(a, b []piece) bool {
	for _, p := range a {
		for _, q := range b {
			if p.object == q.object && p.off < q.off+q.n && q.off < p.off+p.n {
				return true
			}
		}
	}
	return false
}

// CopyIn queues a copy of src's bytes as they are now.
func (s *Stream) CopyIn(dst driver.Pointer, src []byte) error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int64(len(src))
	if err := s.beginNow(CallCopyIn, n, uint64(dst), uint64(n)); err != nil {
		return err
	}
	return d.do(s.timeline, work{call: CallCopyIn, data: src}, nil, []driver.Range{{Ptr: dst, Size: n}})
}

// CopyOut completes the work queued so far and copies. It returns the errors of the stream's kernels, too.
func (s *Stream) CopyOut(dst []byte, src driver.Pointer) error {
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int64(len(dst))
	if err := s.beginNow(CallCopyOut, n, uint64(src), uint64(n)); err != nil {
		return err
	}
	if err := d.claim((&work{call: CallCopyOut}).access(d, tl), []driver.Range{{Ptr: src, Size: n}}, nil); err != nil {
		return err
	}
	d.record()
	from := slices.Clone(d.reads) // draining runs other work
	d.waited(CallCopyOut, d.drain(tl, tl.queued))
	tl.queued++
	tl.done++
	gather(dst, from)
	d.markSeen(tl, tl.queued)
	return tl.takeError(nil)
}

// Fill queues the setting of n bytes.
func (s *Stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	notNegative(CallFill, n)
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.begin(CallFill, n, uint64(p), uint64(pattern), uint64(n)); err != nil {
		return err
	}
	return d.do(s.timeline, work{call: CallFill, fill: pattern}, nil, []driver.Range{{Ptr: p, Size: n}})
}

// Mark takes a tick of its own: of two marks with no work between them, the first can be reached before the second.
func (s *Stream) Mark() (driver.Mark, error) {
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.begin(CallMark, 0); err != nil {
		return driver.Mark{}, err
	}
	if tl.branch != nil {
		return tl.branch.mark(d), nil
	}
	d.submit(tl, work{call: CallMark})
	return driver.Mark{Stream: tl.id, Tick: tl.queued}, nil
}

// valid panics unless m is a mark of the timeline. call is as in ownStream.
func (tl *timeline) valid(call any, m driver.Mark) {
	if m.Stream != tl.id || m.Tick > tl.queued {
		panic(fmt.Sprintf("driver/sim: %v: the mark of stream %d at tick %d is not one of stream %d, which is at %d",
			call, m.Stream, m.Tick, tl.id, tl.queued))
	}
}

// Reached reports whether the work before m is complete; if so, the host knows, and later work is ordered after it.
func (s *Stream) Reached(m driver.Mark) (bool, error) {
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	tl.valid(CallReached, m)
	if tl.branch != nil && tl.branch.holds(m) && !d.closed {
		return false, nil // without a call of the device
	}
	if err := d.begin(CallReached, d.cost(CallReached, 0), uint64(m.Stream), m.Tick); err != nil {
		return false, err
	}
	if tl.done < m.Tick {
		return false, nil
	}
	d.addToHash(1)
	d.markSeen(tl, m.Tick)
	return true, nil
}

// WaitFor makes work queued here from now on come after m.
func (s *Stream) WaitFor(other driver.Stream, m driver.Mark) error {
	o := s.d.ownStream(CallWaitFor, other)
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	o.timeline.valid(CallWaitFor, m)
	if err := s.begin(CallWaitFor, 0, uint64(m.Stream), m.Tick); err != nil {
		return err
	}
	if o.timeline.branch != nil && o.timeline.branch.holds(m) {
		return d.waitInCapture(s, o.timeline.branch.capture, m)
	}
	if tl.branch != nil {
		return d.waitOutOfCapture(tl, m)
	}
	d.waitFor(tl, o.timeline, m.Tick)
	d.submit(tl, work{call: CallWaitFor, other: o.timeline, tick: m.Tick})
	return nil
}

// ownStream returns s as a stream of the device, and panics if it is not one. call is a Call, or the name of a method.
func (d *Device) ownStream(call any, s driver.Stream) *Stream {
	if o, ok := s.(*Stream); ok && o != nil && o.d == d {
		return o
	}
	panic(fmt.Sprintf("driver/sim: %v: the stream (%T) is nil or of another device", call, s))
}

// Sync completes the work queued so far, and returns the errors of its kernels. If there is work to complete and ctx
// has ended, it completes nothing and returns the error of ctx.
func (s *Stream) Sync(ctx context.Context) error {
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.beginNow(CallSync, 0); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil && tl.done < tl.queued {
		return err
	}
	d.waited(CallSync, d.drain(tl, tl.queued))
	d.markSeen(tl, tl.queued)
	return tl.takeError(nil)
}

// Close completes the stream's work and ends it. It returns the errors of kernels that no Sync has returned yet.
func (s *Stream) Close() error {
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == d.standard || s.closed || d.closed {
		return nil
	}
	if err := s.beginNow(CallCloseStream, 0); err != nil {
		return err
	}
	d.waited(CallCloseStream, d.drain(tl, tl.queued))
	d.markSeen(tl, tl.queued)
	s.closed = true
	tl.held = false
	i, _ := slices.BinarySearchFunc(d.idle, tl.id, func(a, b driver.StreamID) int { return int(b) - int(a) })
	d.idle = slices.Insert(d.idle, i, tl.id)
	return tl.takeError(nil)
}

// join joins two errors. If one is nil, it returns the other itself.
func join(a, b error) error {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return errors.Join(a, b)
}
