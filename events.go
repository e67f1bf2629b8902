package ashlar

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/timeline"
)

// DefaultEventLevel is the level of events that are given none.
const DefaultEventLevel = 2

// An EventOption says more of an event.
type EventOption struct {
	level int // 0: not said
	flops float64
}

// Level gives an event a level, 1 or more: it is recorded if the session's level is not below. It panics for less.
func Level(n int) EventOption {
	if n < 1 {
		panic(fmt.Sprintf("ashlar: an event of level %d: levels count from 1", n))
	}
	return EventOption{level: n}
}

// FLOPs gives an event the number of floating-point operations of its work, from which its rate is told.
func FLOPs(n float64) EventOption { return EventOption{flops: n} }

// An Event is a piece of a session's work that has begun. The nil Event is one that is not recorded.
type Event struct {
	name    string
	session *Session
	number  int // of the session's, from 0
	stream  driver.Stream
	span    timeline.Span
}

// Event begins a named piece of work on the current device, which is over at its End: what the session queues there between the
// two is timed by the device's own clock. Events nest, and an event that has not ended is a scope. Above the session's level it
// costs nothing and returns nil.
//
//	defer s.Event("attention", ashlar.FLOPs(4e12)).End()
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
	if s.enter("Event "+name) != nil {
		return nil
	}
	t := s.seat()
	if t.lane == nil {
		t.lane = t.device.recorder.Lane(s.name)
	}
	e := &Event{name: name, session: s, number: s.begun, stream: t.stream, span: t.lane.Begin(t.stream, name, level, flops)}
	s.events = append(s.events, e) // entered until it ends
	s.begun++
	return e
}

// End ends the event. Those that were begun within it and have not ended count as unfinished. Ending an event again, or one that
// a scope or another event around it has ended, is nothing.
func (e *Event) End() {
	if e == nil {
		return
	}
	s := e.session
	if s.enter("Event.End") != nil {
		return
	}
	defer s.guard.leave()
	if !slices.Contains(s.events, e) {
		return
	}
	e.span.End(e.stream)
	s.dropEvents(e.number)
}

// dropEvents gives up the events that have not ended, from a number on: they hold the session no longer, and none that begins
// later lies in them.
func (s *Session) dropEvents(from int) {
	for n := len(s.events) - 1; n >= 0 && s.events[n].number >= from; n-- {
		s.events[n].span.Abandon()
		s.events = s.events[:n]
		s.guard.leave()
	}
}

// SetEventLevel has the session record events of this level and below from now on; levels count from 1, and 0 or less
// records none. A session begins with Config.EventLevel.
func (s *Session) SetEventLevel(level int) error {
	if err := s.enter("SetEventLevel"); err != nil {
		return err
	}
	defer s.guard.leave()
	s.level.Store(int64(max(level, 0)))
	return nil
}
