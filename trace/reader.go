package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Len returns the number of events, whichever form they have.
func (t *Trace) Len() int { return max(len(t.Events), t.Columns.Len()) }

// TimeUS returns the time of an event.
func (t *Trace) TimeUS(i int) int64 {
	if t.Columns != nil {
		return t.Columns.TimeUS(i)
	}
	return t.Events[i].TimeUS
}

// ptr returns the address of an event.
func (t *Trace) ptr(i int) driver.Pointer {
	if t.Columns != nil {
		return t.Columns.Ptr(i)
	}
	return t.Events[i].Ptr
}

// At returns an event. A Reader is quicker for successive ones.
func (t *Trace) At(i int) Event {
	if t.Columns != nil {
		return t.Columns.At(i)
	}
	return t.Events[i]
}

// Find returns the indices of the events with one of some actions.
func (t *Trace) Find(actions ...mem.Action) (found []int32) {
	if t.Columns != nil {
		return t.Columns.find(actions)
	}
	for i := range t.Events {
		if slices.Contains(actions, t.Events[i].Action) {
			found = append(found, int32(i))
		}
	}
	return found
}

// EachTime calls f for the times of all events in order, some at a time, with the index of the first.
func (t *Trace) EachTime(f func(first int, us []uint64)) {
	if t.Columns != nil {
		t.Columns.each(FieldTime, f)
		return
	}
	us := make([]uint64, min(len(t.Events), chunkEvents))
	for i := 0; i < len(t.Events); i += len(us) {
		part := us[:min(len(us), len(t.Events)-i)]
		for j := range part {
			part[j] = uint64(t.Events[i+j].TimeUS)
		}
		f(i, part)
	}
}

// A Reader reads the events of a trace, which may have Events or Columns. It is quick for events in ascending or
// descending order. Not safe for concurrent use.
type Reader struct {
	events  []Event // all, or a part of the columns
	first   int     // the index of events[0]
	columns *Columns
	fields  fieldSet
	scratch []uint64
}

// readerEvents is the number of events that a Reader unpacks at a time, besides one that follows them.
const readerEvents = 512

// Reader returns a reader of some fields of the events, or of all if none are named. Other fields may have any value.
// Fewer fields are quicker.
func (t *Trace) Reader(fields ...Field) *Reader {
	if t.Columns == nil {
		return &Reader{events: t.Events}
	}
	r := &Reader{columns: t.Columns}
	for _, f := range fields {
		r.fields[f] = true
	}
	if len(fields) == 0 {
		r.fields = allFields
	}
	return r
}

// At returns an event, which must not be changed. It is valid until the next call.
func (r *Reader) At(i int) *Event {
	if n := i - r.first; uint(n) >= uint(len(r.events)) {
		r.load(i)
	}
	return &r.events[i-r.first]
}

// Two returns an event and the next one, or nil for the one after the last. They are valid until the next call.
func (r *Reader) Two(i int) (e, next *Event) {
	if n := i - r.first; uint(n)+1 >= uint(len(r.events)) && r.columns != nil {
		r.load(i)
	}
	if n := i + 1 - r.first; n < len(r.events) {
		next = &r.events[n]
	}
	return &r.events[i-r.first], next
}

// load unpacks events around an index.
func (r *Reader) load(i int) {
	if r.columns == nil {
		panic("trace: an event that the recording lacks")
	}
	if r.scratch == nil {
		r.scratch = make([]uint64, readerEvents+1)
	}
	first := i / readerEvents * readerEvents
	n := min(readerEvents+1, r.columns.n-first)
	if cap(r.events) < n {
		r.events = make([]Event, n)
	}
	r.events, r.first = r.events[:n], first
	r.columns.read(first, r.events, &r.fields, r.scratch)
}

// Expanded returns a trace with Events in place of Columns, which shares all else with t.
func (t *Trace) Expanded() *Trace {
	if t.Columns == nil {
		return t
	}
	x := *t
	x.Events, x.Columns = t.Columns.Events(), nil
	return &x
}
