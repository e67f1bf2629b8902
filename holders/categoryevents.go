package holders

import (
	"slices"
	"sort"

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

// eventCounts has the counts before each event. It keeps those before each chunk of countChunk events, and notes the
// events of the chunks that were used last.
type eventCounts struct {
	trace         *trace.Trace
	stacks        *stackPhases
	events        int
	allocs, frees bool    // the recording has their stacks
	steps         []int32 // the events with which annotated steps began, ascending
	spans         []span  // see annotated
	before        []countState
	noted         [notedChunks]*notedChunk // by number, modulo notedChunks
	entries       *trace.Reader
}

const (
	countChunk  = 4096 // events
	countGroup  = 16   // events of a chunk between two counts
	notedChunks = 256
)

// A countState is what the notes and counts of later events depend on.
type countState struct {
	counts
	after bool // a backward pass came after the last forward pass
}

// A notedChunk has the notes of a chunk, and the counts before each group of countGroup events.
type notedChunk struct {
	number int
	notes  [countChunk]note
	groups [countChunk / countGroup]counts
}

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
func (x *eventCounts) phaseOf(event int32) phase {
	return phase(x.chunk(int(event) / countChunk).notes[event%countChunk] & notePhase)
}

// countsBefore returns the counts of the events before one.
func (x *eventCounts) countsBefore(event int32) counts {
	var n counts
	if int(event) == x.events {
		n = x.before[len(x.before)-1].counts
	} else {
		c := x.chunk(int(event) / countChunk)
		at := event % countChunk
		group := at / countGroup
		n = c.groups[group]
		for _, e := range c.notes[group*countGroup : at] {
			n.add(e)
		}
	}
	steps, _ := slices.BinarySearch(x.steps, event) // those that began at an earlier event
	n.steps = int32(steps)
	return n
}

// scan counts all events.
func (x *inference) scan() {
	x.trace, x.events = x.h.Trace, x.h.Trace.Len()
	x.entries = x.trace.Reader(trace.FieldStack, trace.FieldAction)
	x.allocs, x.frees = x.recordsStacks()
	x.spans = x.annotated()
	for _, s := range x.spans {
		if s.phase == phaseStep {
			x.steps = append(x.steps, int32(s.first))
		}
	}
	slices.Sort(x.steps)
	x.before = append(make([]countState, 0, x.events/countChunk+2), countState{})
	for i := 0; i*countChunk < x.events; i++ {
		x.before = append(x.before, x.slot(i).fill(&x.eventCounts, i))
	}
	x.trains = x.before[len(x.before)-1].autograd > 0
}

// chunk returns a chunk with its notes.
func (x *eventCounts) chunk(number int) *notedChunk {
	c := x.slot(number)
	if c.number != number {
		c.fill(x, number)
	}
	return c
}

// slot returns the memory for the notes of a chunk, which may have those of another one.
func (x *eventCounts) slot(number int) *notedChunk {
	c := &x.noted[number%notedChunks]
	if *c == nil {
		*c = &notedChunk{number: -1}
	}
	return *c
}

// fill notes the events of a chunk, before which the state is known. It returns the state after them.
func (c *notedChunk) fill(x *eventCounts, number int) countState {
	first := number * countChunk
	state, spans := x.before[number], cursorAt(x.spans, first)
	n := min(countChunk, x.events-first)
	for i := range n {
		if i%countGroup == 0 {
			c.groups[i/countGroup] = state.counts
		}
		c.notes[i] = x.note(x.entries.At(first+i), spans.at(first+i), &state)
	}
	c.number = number
	return state
}

// note returns how an event with the phase of an annotation counts, and counts it.
func (x *eventCounts) note(e *trace.Event, annotated phase, state *countState) note {
	if e.Action != mem.ActionAlloc && e.Action != mem.ActionFreeRequested {
		return 0
	}
	known := e.Action == mem.ActionAlloc && x.allocs || e.Action == mem.ActionFreeRequested && x.frees
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
	if p == phaseForward && state.after {
		t |= notePass
	}
	state.after = p == phaseBackward || state.after && p != phaseForward
	state.add(t)
	return t
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
	for i := 0; i < x.events && !(allocs && frees); i++ {
		if e := x.entries.At(i); e.Stack != 0 {
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

// cursorAt returns a cursor for the events from one on.
func cursorAt(spans []span, event int) spanCursor {
	begun := sort.Search(len(spans), func(i int) bool { return spans[i].first > event })
	return spanCursor{spans, begun}
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
