package holders

import "github.com/ashlar-go/ashlar/mem"

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

// scan sets the phases of the events and counts them.
func (x *inference) scan() {
	events := x.h.Trace.Events
	x.phases = make([]phase, len(events))
	x.counts = make([]counts, len(events)+1)
	allocs, frees := x.recordsStacks()
	spans := spanCursor{spans: x.annotated()}
	var n counts
	after := false // a backward pass came after the last forward pass
	for i := range events {
		annotated := spans.at(i)
		n.steps = spans.steps
		if e := &events[i]; e.Action == mem.ActionAlloc || e.Action == mem.ActionFreeRequested {
			known := e.Action == mem.ActionAlloc && allocs || e.Action == mem.ActionFreeRequested && frees
			p, inside := x.stacks.of(e.Stack, known)
			if !known {
				p = annotated
			}
			x.phases[i] = p
			if known && !inside && p != phaseBackward {
				n.outside++
			}
			if p == phaseForward && after {
				n.passes++
			}
			after = p == phaseBackward || after && p != phaseForward
			n.add(p)
			if e.Action == mem.ActionAlloc {
				n.allocs++
			}
		}
		x.counts[i+1] = n
	}
	x.trains = n.autograd > 0
}

// add counts an event of a phase.
func (c *counts) add(p phase) {
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
}

// recordsStacks reports whether the recording has stacks of allocations and of frees.
func (x *inference) recordsStacks() (allocs, frees bool) {
	for i := range x.h.Trace.Events {
		e := &x.h.Trace.Events[i]
		if e.Stack != 0 {
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
	begun int   // how many began
	steps int32 // how many of these are steps
}

// at returns the phase of an event.
func (c *spanCursor) at(event int) phase {
	for c.begun < len(c.spans) && c.spans[c.begun].first <= event {
		if c.spans[c.begun].phase == phaseStep {
			c.steps++
		}
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
