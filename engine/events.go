package engine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/timeline"
)

// DefaultEventLevel is the level of events without the option Level.
const DefaultEventLevel = 2

// An EventOption is an optional property of an event.
type EventOption struct {
	level int // 0: not set
	flops float64
}

// Level sets an event's level, 1 or more: the event is recorded if the session's level is at least that. It panics if n
// is less than 1.
func Level(n int) EventOption {
	if n < 1 {
		panic(fmt.Sprintf("engine: an event of level %d: levels count from 1", n))
	}
	return EventOption{level: n}
}

// FLOPs sets the number of floating-point operations of an event's work, from which its rate is computed.
func FLOPs(n float64) EventOption { return EventOption{flops: n} }

// An Event is a piece of a session's work that has begun. An event that is not recorded is nil.
type Event struct {
	name    string
	session *Session
	number  int // of the session's, from 0
	stream  driver.Stream
	span    timeline.Span
}

// openEvents are a session's events that have not ended. They have a lock of their own and do not enter the session's
// guard: recording must not change what else a session does, and a goroutine may end without ending its events.
type openEvents struct {
	mu     sync.Mutex
	list   []*Event // the outermost first
	begun  int      // events so far
	closed bool     // with the session
}

// Event begins a named piece of work on the current device. Its End ends it: the device's clock times the work that the
// session queues there between the two. Events nest. If the level is above the session's, and after the session's
// Close, Event does nothing and returns nil.
//
//	defer s.Event("attention", engine.FLOPs(4e12)).End()
//
// An open event does not own the session: any goroutine may use or close the session. An event that has not ended is
// recorded as unfinished, and the error of Session.Close or Engine.Close names it.
func (s *Session) Event(name string, opts ...EventOption) *Event {
	level, flops := DefaultEventLevel, 0.0
	for _, o := range opts {
		if o.level != 0 {
			level = o.level
		}
		if o.flops != 0 {
			flops = o.flops
		}
	}
	if int64(level) > s.level.Load() {
		return nil
	}
	return s.event(name, level, flops)
}

func (s *Session) event(name string, level int, flops float64) *Event {
	open := &s.events
	open.mu.Lock()
	defer open.mu.Unlock()
	if open.closed {
		return nil
	}
	t := s.currentDevice()
	if t.lane == nil {
		t.lane = t.device.recorder.Lane(s.name)
	}
	span := t.lane.Begin(t.stream, name, level, flops)
	e := &Event{name: name, session: s, number: open.begun, stream: t.stream, span: span}
	open.list = append(open.list, e)
	open.begun++
	return e
}

// End ends the event. Events that began within it and have not ended count as unfinished. End is a no-op if the event
// has ended, by End or because a scope, an enclosing event or the session ended.
func (e *Event) End() {
	if e == nil {
		return
	}
	open := &e.session.events
	open.mu.Lock()
	defer open.mu.Unlock()
	if !slices.Contains(open.list, e) {
		return
	}
	e.span.End(e.stream)
	open.drop(e.number)
}

// drop abandons the unended events whose number is from or more, and returns their names. The caller holds mu.
func (o *openEvents) drop(from int) (names []string) {
	for n := len(o.list) - 1; n >= 0 && o.list[n].number >= from; n-- {
		o.list[n].span.Abandon()
		names = append(names, o.list[n].name)
		o.list = o.list[:n]
	}
	slices.Reverse(names)
	return names
}

// mark returns the argument with which dropFrom abandons the events that begin from now on.
func (o *openEvents) mark() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.begun
}

func (o *openEvents) dropFrom(mark int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(mark)
}

// close abandons all unended events, and returns their names. No more begin.
func (o *openEvents) close() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.drop(0)
}

// SetEventLevel makes the session record events of this level and below from now on. Levels count from 1; 0 or less
// records none. A session begins with Config.EventLevel.
func (s *Session) SetEventLevel(level int) error {
	if err := s.enter("SetEventLevel"); err != nil {
		return err
	}
	defer s.guard.leave()
	s.level.Store(int64(max(level, 0)))
	return nil
}
