//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// A mark is an event. Ticks count the events recorded on a stream: tick t is the t-th event. Events that may not be
// done yet are in a ring, in order: ring[i] is tick passed+1+i. When one is found done, it and all before it leave the
// ring, and their events return to the device's pool. If no work was queued since the last mark, Mark returns the last
// mark again.

// marks are the events of a stream.
type marks struct {
	passed atomic.Uint64 // ticks up to this one are done: read without a lock, written with mu held

	mu      sync.Mutex // a leaf, except for events.mu; only recordAgain makes a call that can block with it held
	last    uint64     // the tick of the last mark: written with the stream's mu held too
	ring    []marked   // its length is a power of two, or 0
	head, n int        // index of the first entry, and number of entries
	waiting *wait      // see sync.go
}

// marked is a mark that may not be done.
type marked struct {
	event   *event
	capture *capture // the capture in which it was taken, or nil
}

// at returns the i-th mark of the ring.
func (m *marks) at(i int) *marked { return &m.ring[(m.head+i)&(len(m.ring)-1)] }

// push adds the next tick. m.mu is held.
func (m *marks) push(e marked) {
	if m.n == len(m.ring) {
		grown := make([]marked, max(16, 2*m.n))
		for i := range m.n {
			grown[i] = *m.at(i)
		}
		m.ring, m.head = grown, 0
	}
	m.n++
	*m.at(m.n - 1) = e
	m.last++
}

// advance records that all ticks up to tick are done, and returns their events to the pool. m.mu is held.
func (m *marks) advance(pool *events, tick uint64) {
	for passed := m.passed.Load(); passed < tick && m.n > 0; passed++ {
		e := m.at(0).event
		*m.at(0) = marked{}
		m.head = (m.head + 1) & (len(m.ring) - 1)
		m.n--
		if e.past = true; e.users == 0 {
			pool.put(e)
		}
	}
	if tick > m.passed.Load() {
		m.passed.Store(tick)
	}
}

// An event is a CUevent. While it is in a ring, or in use, the stream's marks.mu guards it.
type event struct {
	handle cu.Event
	users  int  // number of calls that are about to use the handle
	past   bool // it has left the ring: the last user returns it to the pool
}

// events is the pool of a device's unused events.
type events struct {
	mu   sync.Mutex // a leaf
	free []*event
}

func (p *events) put(e *event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, e)
}

// event returns an event to record. Events have no time, which makes them cheaper, and a wait for one sleeps. Between
// enter and leave.
func (d *device) event(call string) (*event, error) {
	d.events.mu.Lock()
	if n := len(d.events.free); n > 0 {
		e := d.events.free[n-1]
		d.events.free = d.events.free[:n-1]
		d.events.mu.Unlock()
		e.past = false
		return e, nil
	}
	d.events.mu.Unlock()
	h, r := d.lib.EventCreate(cu.EventDisableTiming | cu.EventBlockingSync)
	if r != cu.Success {
		return nil, d.fail(call, r, "an event")
	}
	return &event{handle: h}, nil
}

// Mark records an event if work was queued since the last one, or if other code may have queued some.
func (s *stream) Mark() (driver.Mark, error) {
	const call = "Stream.Mark"
	if err := s.beginOrder(call); err != nil {
		return driver.Mark{}, err
	}
	defer s.end()
	return s.mark(call)
}

// mark is Mark between begin and end.
func (s *stream) mark(call string) (driver.Mark, error) {
	if s.work == s.marked && !s.shared {
		return driver.Mark{Stream: s.id, Tick: s.marks.last}, nil
	}
	if !s.hold() {
		return driver.Mark{}, othersError(call, s)
	}
	defer s.unhold()
	capture, err := s.capture, error(nil)
	if capture == nil {
		capture, err = s.foreignCapture(call)
	}
	if err != nil {
		return driver.Mark{}, err
	}
	if capture != nil {
		capture.mu.Lock()
		defer capture.mu.Unlock()
		if capture.ended.Load() { // Graphs.End is about to clear s.capture
			capture = nil
		}
	}
	e, err := s.d.event(call)
	if err != nil {
		return driver.Mark{}, err
	}
	if r := s.d.lib.EventRecord(e.handle, s.handle); r != cu.Success {
		s.d.events.put(e)
		return driver.Mark{}, s.d.fail(call, r, "record an event on stream %d", s.id)
	}
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if s.marks.n > 0 && s.marks.n == len(s.marks.ring) {
		s.dropReached()
	}
	s.marks.push(marked{e, capture})
	s.marked = s.work
	if capture != nil && capture == s.capture {
		s.noteMark()
	}
	return driver.Mark{Stream: s.id, Tick: s.marks.last}, nil
}

// dropReached removes reached marks from a full ring, so that marks that are never queried do not make it grow.
// s.marks.mu is held.
func (s *stream) dropReached() {
	for m := &s.marks; m.n > 0; {
		if done, err := s.poll("Stream.Mark", m.passed.Load()+1); !done || err != nil {
			return
		}
	}
}

// poll reports whether tick is done. Between enter and leave, with s.marks.mu held.
func (s *stream) poll(call string, tick uint64) (bool, error) {
	m := &s.marks
	passed := m.passed.Load()
	if tick <= passed {
		return true, nil
	}
	at, err := s.newest(call, tick)
	if err != nil || at != nil && at.capture != nil {
		return false, err
	}
	if at != nil {
		switch r := s.d.lib.EventQuery(at.event.handle); r {
		case cu.Success:
		case cu.NotReady:
			return false, nil
		case cu.CapturedEvent, cu.InvalidValue:
			return false, s.pollCaptured(call, at, r)
		default:
			return false, s.d.fail(call, r, "an event of stream %d", s.id)
		}
	}
	m.advance(&s.d.events, tick)
	return true, nil
}

// pollCaptured handles an event that could not be queried, with result r. On a stream of other code, a capture may have
// begun between the question for captures and the record of the event. The event is then recorded again. s.marks.mu is
// held.
func (s *stream) pollCaptured(call string, at *marked, r cu.Result) error {
	if !s.capturable() {
		return s.d.fail(call, r, "an event of stream %d", s.id)
	}
	if !s.hold() {
		return nil
	}
	defer s.unhold()
	if err := s.recordAgain(call, at); err != nil || at.capture != nil {
		return err
	}
	if r := s.d.lib.EventQuery(at.event.handle); r != cu.Success && r != cu.NotReady {
		return s.d.fail(call, r, "an event of stream %d", s.id)
	}
	return nil
}

// newest returns the mark to query for tick, which has not passed: its own, or an earlier one if its own was recorded
// in a capture that has ended and so did no work; nil if there is none. If its capture is not nil, that is in progress.
// The mark is valid while s.marks.mu is held. Between enter and leave.
func (s *stream) newest(call string, tick uint64) (*marked, error) {
	for i := int(tick-s.marks.passed.Load()) - 1; i >= 0; i-- {
		at := s.marks.at(i)
		switch {
		case at.capture == nil:
			return at, nil
		case at.capture.id != 0:
			return at, s.update(call, at)
		case !at.capture.ended.Load():
			return at, nil
		}
	}
	return nil, nil
}

// update records the event of a mark again if the capture of other code in which it was taken has ended. s.marks.mu is
// held.
func (s *stream) update(call string, at *marked) error {
	if !s.hold() {
		return nil
	}
	defer s.unhold()
	goesOn, r := at.capture.active(s.d.lib)
	switch {
	case r != cu.Success:
		return s.d.fail(call, r, "the capture on stream %d", s.id)
	case goesOn:
		return nil
	}
	return s.recordAgain(call, at)
}

// recordAgain records the event of a mark again after the end of the capture in which it was taken; in another capture
// it waits for the end of that one. Other code began the captures, and no event covers the work that it queued before.
// So the mark may be reached later than necessary, but never too early. If the stream's queue is full, recordAgain
// blocks with s.marks.mu held; only callers of this stream need that lock. Called between hold and unhold.
func (s *stream) recordAgain(call string, at *marked) error {
	capture, err := s.foreignCapture(call)
	if err != nil {
		return err
	}
	if capture == nil {
		if r := s.d.lib.EventRecord(at.event.handle, s.handle); r != cu.Success {
			return s.d.fail(call, r, "record an event on stream %d", s.id)
		}
	}
	at.capture = capture
	return nil
}

// Reached queries libcuda only for marks that were not found done before.
func (s *stream) Reached(m driver.Mark) (bool, error) {
	const call = "Stream.Reached"
	s.check(call, m)
	if m.Tick <= s.marks.passed.Load() {
		return true, nil
	}
	if err := s.d.enter(call); err != nil {
		if m.Tick <= s.marks.passed.Load() { // Close was called before
			return true, nil
		}
		return false, err
	}
	defer s.d.leave()
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return s.poll(call, m.Tick)
}

// check panics unless m is a mark of s.
func (s *stream) check(call string, m driver.Mark) {
	if m.Stream != s.id {
		panic(fmt.Sprintf("driver/cuda: %s: a mark of stream %d, not of stream %d", call, m.Stream, s.id))
	}
	if m.Tick <= s.marks.passed.Load() {
		return
	}
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if m.Tick > s.marks.last {
		panic(fmt.Sprintf("driver/cuda: %s: tick %d of stream %d has not been marked", call, m.Tick, s.id))
	}
}

// retain returns the event to wait for until tick is done, and prevents its reuse until release; nil if tick is done.
// The capture is the one that the event is part of, if it is in progress. Between enter and leave.
func (s *stream) retain(call string, tick uint64) (*event, *capture, error) {
	m := &s.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	if tick <= m.passed.Load() {
		return nil, nil, nil
	}
	at, err := s.newest(call, tick)
	switch {
	case err != nil:
		return nil, nil, err
	case at == nil:
		m.advance(&s.d.events, tick)
		return nil, nil, nil
	}
	at.event.users++
	return at.event, at.capture, nil
}

// release ends retain.
func (s *stream) release(e *event) {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if e.users--; e.users == 0 && e.past {
		s.d.events.put(e)
	}
}

// WaitFor queues nothing for a reached mark.
func (s *stream) WaitFor(other driver.Stream, m driver.Mark) error {
	const call = "Stream.WaitFor"
	o := s.d.ownStream(call, other)
	o.check(call, m)
	if o == s || m.Tick <= o.marks.passed.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return s.closedError(call)
		}
		return nil
	}
	if err := s.beginOrder(call); err != nil {
		return err
	}
	defer s.end()
	if !s.hold() {
		return othersError(call, s)
	}
	defer s.unhold()
	e, in, err := o.retain(call, m.Tick)
	if e == nil {
		return err
	}
	defer o.release(e)
	if s.capture != nil && in != s.capture {
		return s.refuseCapture(call) // libcuda would also refuse, and invalidate the capture
	}
	if in != nil && s.closing {
		return capturingError(call, fmt.Sprintf("stream %d captures, and stream %d is being closed", o.id, s.id))
	}
	draws := in != nil && s.capture == nil
	var before uint64
	if draws {
		if before, err = s.cover(call); err != nil {
			return err
		}
	}
	if r := s.d.lib.StreamWaitEvent(s.handle, e.handle); r != cu.Success {
		return s.d.fail(call, r, "stream %d for tick %d of stream %d", s.id, m.Tick, o.id)
	}
	if draws {
		in.join(s, before)
	}
	s.waited(o, m.Tick)
	return nil
}
