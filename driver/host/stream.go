package host

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/order"
)

// A stream is a queue of work and the goroutine that does it. The calls that queue memory work are in work.go.
type stream struct {
	d  *device
	id driver.StreamID

	mu     sync.Mutex
	filled sync.Cond // the queue got work, or closing was set: the worker waits for it
	moved  sync.Cond // a tick was done, or a context ended: everyone else waits for it
	queue  []work
	queued uint64        // the tick of the last work queued
	done   atomic.Uint64 // the tick of the last work done: written with mu held
	err    error         // the first of queued work that no Sync has returned

	closing bool // no more work is accepted
	closed  bool // and all is done: the worker has ended, or is about to

	capture *capture      // records the work, which is then not queued; nil: none
	branch  *order.Branch // of the capture, whose mu guards it
	entered uint64        // the first tick in it

	// The worker's own.
	batch []work // taken from the queue; those before next are done
	next  int
	gone  chan struct{} // closed when the worker has ended
}

// work is one piece of a stream's work. It takes one tick, except as capture.go describes.
type work struct {
	call  string
	do    func() error
	ticks uint64
}

// newStream starts a stream whose ticks continue from tick.
func newStream(d *device, id driver.StreamID, tick uint64) *stream {
	s := &stream{d: d, id: id, queued: tick, gone: make(chan struct{})}
	s.filled.L, s.moved.L = &s.mu, &s.mu
	s.done.Store(tick)
	go s.run()
	return s
}

func (s *stream) ID() driver.StreamID { return s.id }

// run does work until the stream closes and the queue is empty.
func (s *stream) run() {
	ended := false
	defer func() {
		if ended {
			close(s.gone)
		} else {
			go s.run() // a kernel ended this goroutine: the rest of the work needs another
		}
	}()
	debug.SetPanicOnFault(true)
	for s.fetch() {
		w := s.batch[s.next]
		s.batch[s.next] = work{}
		s.next++
		s.perform(w)
	}
	ended = true
}

// fetch makes sure that there is work in the batch. It returns false if there will be none: the stream is closed then.
func (s *stream) fetch() bool {
	if s.next < len(s.batch) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closing {
			s.closed = true
			return false
		}
		s.filled.Wait()
	}
	s.batch, s.queue, s.next = s.queue, s.batch[:0], 0
	return true
}

// perform does one piece of work and counts it as done, also if it fails.
func (s *stream) perform(w work) {
	err := failure(w.call, nil) // in case it ends the goroutine
	defer func() {
		s.mu.Lock()
		if s.err == nil {
			s.err = err
		}
		s.done.Add(w.ticks)
		s.mu.Unlock()
		s.moved.Broadcast()
	}()
	err = attempt(w.call, w.do)
}

// attempt does work, and returns its error, or an error for its panic.
func attempt(call string, do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = failure(call, v)
		}
	}()
	return do()
}

// failure returns the error for the value of a panic; nil means that the work ended the goroutine.
func failure(call string, v any) error {
	if f, ok := v.(interface{ Addr() uintptr }); ok { // see debug.SetPanicOnFault
		return &driver.Error{
			Call: call, Code: ErrFault,
			Detail: fmt.Sprintf("at %#x: unmapped while work on it was queued, or the machine is out of memory",
				f.Addr()),
		}
	}
	if v == nil {
		return &driver.Error{Call: call, Code: ErrPanic, Detail: "it ended its goroutine"}
	}
	return &driver.Error{Call: call, Code: ErrPanic, Detail: fmt.Sprint(v)}
}

// add queues work and returns its tick. uses is the memory that the work touches, which the caller has checked; a
// capture keeps it with the work.
func (s *stream) add(call string, do func() error, uses ...span) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return 0, s.closedError(call)
	}
	if s.capturing() && s.recordTask(task{call, do, slices.Clone(uses)}) {
		return s.queued, nil
	}
	return s.put(call, do), nil
}

// addNow is add for work that cannot be captured, for example because the caller waits for it.
func (s *stream) addNow(call string, do func() error) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return 0, s.closedError(call)
	}
	if s.capturing() {
		return 0, s.capturingError(call)
	}
	return s.put(call, do), nil
}

// put queues work. s.mu is held.
func (s *stream) put(call string, do func() error) uint64 {
	s.queue = append(s.queue, work{call, do, 1})
	s.queued++
	s.filled.Signal()
	return s.queued
}

// wait blocks until the tick is done.
func (s *stream) wait(tick uint64) {
	if s.done.Load() >= tick {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done.Load() < tick {
		s.moved.Wait()
	}
}

// drain blocks until the work queued so far is done. Captured work is not queued.
func (s *stream) drain() {
	s.mu.Lock()
	tick := s.queued
	if s.capturing() {
		tick = s.entered - 1
	}
	s.mu.Unlock()
	s.wait(tick)
}

// last returns the tick of the last work queued.
func (s *stream) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued
}

func (s *stream) Mark() (driver.Mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.Mark{}, s.closedError("Stream.Mark")
	}
	return driver.Mark{Stream: s.id, Tick: s.queued}, nil
}

func (s *stream) Reached(m driver.Mark) (bool, error) {
	s.checkMark("Stream.Reached", m)
	return s.done.Load() >= m.Tick, nil
}

// checkMark panics unless m is a mark of s.
func (s *stream) checkMark(call string, m driver.Mark) {
	if m.Stream != s.id {
		panic(fmt.Sprintf("driver/host: %s: a mark of stream %d, not of stream %d", call, m.Stream, s.id))
	}
	if m.Tick > s.done.Load() && m.Tick > s.last() {
		panic(fmt.Sprintf("driver/host: %s: tick %d of stream %d has not been queued", call, m.Tick, s.id))
	}
}

// WaitFor queues nothing if the mark is reached. A mark of a capture that has not ended draws s into the capture. A
// stream that is being closed still waits, so its marks come after the marks that it waits for.
func (s *stream) WaitFor(other driver.Stream, m driver.Mark) error {
	const call = "Stream.WaitFor"
	o := s.d.stream(call, other)
	o.checkMark(call, m)
	wait := o != s && o.done.Load() < m.Tick
	if wait {
		if c, from := o.captureOf(m.Tick); c != nil {
			return s.join(c, from, o, m.Tick)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return s.closedError(call)
	case !wait:
		return nil
	case s.capturing():
		return s.capturingError(call)
	}
	s.put(call, func() error { o.wait(m.Tick); return nil })
	return nil
}

// Sync returns the first error of the work that was queued, once. If ctx ends first, the error is a *driver.Error that
// matches ctx.Err(), and the work continues.
func (s *stream) Sync(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.closedError("Stream.Sync")
	}
	if s.capturing() {
		return s.capturingError("Stream.Sync")
	}
	if tick := s.queued; s.done.Load() < tick {
		defer context.AfterFunc(ctx, func() {
			s.mu.Lock() // so that the broadcast cannot fall between the check of ctx and the wait
			defer s.mu.Unlock()
			s.moved.Broadcast()
		})()
		for s.done.Load() < tick {
			if err := ctx.Err(); err != nil {
				return &driver.Error{
					Call: "Stream.Sync", Code: err,
					Detail: fmt.Sprintf("stream %d has %d pieces of work left", s.id, tick-s.done.Load()),
				}
			}
			s.moved.Wait()
		}
	}
	err := s.err
	s.err = nil
	return err
}

// Close does nothing to the default stream. It returns the error that the next Sync would return.
func (s *stream) Close() error {
	if s.id == 0 {
		return nil
	}
	s.mu.Lock()
	capturing := s.capturing()
	s.mu.Unlock()
	if capturing {
		return s.capturingError("Stream.Close")
	}
	s.shut()
	return s.end()
}

// shut ends a capture, and makes the stream refuse more work.
func (s *stream) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capturing() {
		s.capture.stop()
		s.leaveCapture()
	}
	s.closing = true
	s.filled.Signal()
}

// end waits for the work of a stream that accepts no more, and for the end of its goroutine.
func (s *stream) end() error {
	<-s.gone
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = nil
	return err
}

// ended reports whether the stream is closed, and returns its last tick.
func (s *stream) ended() (tick uint64, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued, s.closed
}

func (s *stream) closedError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: fmt.Sprintf("stream %d", s.id)}
}

// stream returns s as a stream of d, and panics if it is not one.
func (d *device) stream(call string, s driver.Stream) *stream {
	own, ok := s.(*stream)
	if !ok || own == nil || own.d != d {
		panic(fmt.Sprintf("driver/host: %s: not a stream of this device", call))
	}
	return own
}
