package holders

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// counts are numbers of events.
type counts struct {
	autograd int32 // of the backward pass, without repeated forward passes
	backward int32 // of the backward pass, with them
	forward  int32
	outside  int32 // outside of the backward pass
	passes   int32 // forward passes that began after a backward pass
	notStep  int32 // outside of steps of optimizers
	allocs   int32
	steps    int32 // annotated steps of optimizers that began
}

func (c counts) minus(d counts) counts {
	return counts{
		c.autograd - d.autograd, c.backward - d.backward, c.forward - d.forward, c.outside - d.outside,
		c.passes - d.passes, c.notStep - d.notStep, c.allocs - d.allocs, c.steps - d.steps,
	}
}

// eventCounts has the counts before each event: one byte for each event, and the counts before each group.
type eventCounts struct {
	events int
	notes  []note
	groups []counts // before each group of countGroup events, and those of all events
	steps  []int32  // the events with which annotated steps began, ascending
}

// countGroup is the number of events of a group.
const countGroup = 16

// A note is how an event counts: its phase, and bits.
type note uint8

const (
	notePhase   note = 1<<3 - 1
	noteCounted note = 1 << 3 // an allocation, or the request of a free
	noteAlloc   note = 1 << 4
	noteOutside note = 1 << 5
	notePass    note = 1 << 6
)

// phaseOf returns the phase of an event.
func (x *eventCounts) phaseOf(event int32) phase { return phase(x.notes[event] & notePhase) }

// countsBefore returns the counts of the events before one.
func (x *eventCounts) countsBefore(event int32) counts {
	group := event / countGroup
	n := x.groups[group]
	for _, e := range x.notes[group*countGroup : event] {
		n.add(e)
	}
	steps, _ := slices.BinarySearch(x.steps, event) // those that began at an earlier event
	n.steps = int32(steps)
	return n
}

// scan sets the phases of the events and counts them.
func (x *inference) scan() {
	x.events = x.h.Trace.Len()
	x.notes = make([]note, x.events)
	x.groups = make([]counts, x.events/countGroup+1)
	allocs, frees := x.recordsStacks()
	spans := spanCursor{spans: x.annotated()}
	for _, s := range spans.spans {
		if s.phase == phaseStep {
			x.steps = append(x.steps, int32(s.first))
		}
	}
	slices.Sort(x.steps)
	var n counts
	after := false // a backward pass came after the last forward pass
	reader := x.h.Trace.Reader(trace.FieldStack, trace.FieldAction)
	for i := range x.events {
		if i%countGroup == 0 {
			x.groups[i/countGroup] = n
		}
		annotated := spans.at(i)
		e := reader.At(i)
		if e.Action != mem.ActionAlloc && e.Action != mem.ActionFreeRequested {
			continue
		}
		known := e.Action == mem.ActionAlloc && allocs || e.Action == mem.ActionFreeRequested && frees
		p, inside := x.stacks.of(e.Stack, known)
		if !known {
			p = annotated
		}
		t := note(p) | noteCounted
		if e.Action == mem.ActionAlloc {
			t |= noteAlloc
		}
		if known && !inside && p != phaseBackward {
			t |= noteOutside
		}
		if p == phaseForward && after {
			t |= notePass
		}
		after = p == phaseBackward || after && p != phaseForward
		x.notes[i] = t
		n.add(t)
	}
	if x.events%countGroup == 0 {
		x.groups[x.events/countGroup] = n
	}
	x.trains = n.autograd > 0
}

// add counts an event.
func (c *counts) add(t note) {
	if t&noteCounted == 0 {
		return
	}
	p := phase(t & notePhase)
	switch p {
	case phaseBackward:
		c.autograd++
		c.backward++
	case phaseRecompute:
		c.backward++
	case phaseForward:
		c.forward++
	}
	if p != phaseStep {
		c.notStep++
	}
	c.allocs += int32(t & noteAlloc / noteAlloc)
	c.outside += int32(t & noteOutside / noteOutside)
	c.passes += int32(t & notePass / notePass)
}

// recordsStacks reports whether the recording has stacks of allocations and of frees.
func (x *inference) recordsStacks() (allocs, frees bool) {
	reader := x.h.Trace.Reader(trace.FieldStack, trace.FieldAction)
	for i := 0; i < x.h.Trace.Len() && !(allocs && frees); i++ {
		if e := reader.At(i); e.Stack != 0 {
			allocs = allocs || e.Action == mem.ActionAlloc
			frees = frees || e.Action == mem.ActionFreeRequested
		}
	}
	return allocs, frees
}

// A span is a section of events that an annotation of an optimizer marks. It may be empty: last is first-1.
type span struct {
	first, last int
	phase       phase
}

// annotated returns the sections that annotations of optimizers mark, in order. An Optimizer.step that contains an
// Optimizer.zero_grad runs the passes too, so it is left out.
func (x *inference) annotated() (spans []span) {
	var open []span
	for _, m := range x.h.marks() {
		p := optimizerPhase(m.name)
		switch {
		case p == phaseOther:
		case m.start:
			for i := range open {
				open[i].phase = phaseOther
			}
			open = append(open, span{first: m.event + m.tied, phase: p})
		case len(open) > 0:
			last := open[len(open)-1]
			open = open[:len(open)-1]
			if last.last = m.event - 1; last.phase != phaseOther {
				spans = append(spans, last)
			}
		}
	}
	return spans
}

// A spanCursor finds the spans of ascending events.
type spanCursor struct {
	spans []span
	begun int // how many began
}

// at returns the phase of an event.
func (c *spanCursor) at(event int) phase {
	for c.begun < len(c.spans) && c.spans[c.begun].first <= event {
		c.begun++
	}
	if c.begun > 0 && c.spans[c.begun-1].last >= event {
		return c.spans[c.begun-1].phase
	}
	return phaseOther
}

// optimizerPhase returns the phase of an annotation.
func optimizerPhase(name string) phase {
	switch {
	case optimizerStep.MatchString(name):
		return phaseStep
	case optimizerZero.MatchString(name):
		return phaseZero
	}
	return phaseOther
}
