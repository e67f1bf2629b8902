package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
)

// A watching converts events to ops while they are read.
type watching struct {
	c    *converter
	last Event // not converted yet, unless it is done
	n    int   // events
	done bool  // the last one was converted with the one before, or there is none

	requests, completions int // of frees
}

// begin begins to watch. Most recordings have both requests and completions of frees. This one is assumed to.
func (w *watching) begin(o ProgramOptions) {
	w.c = newConverter(&Trace{PoolsKnown: true}, o)
	w.c.requests, w.c.completions = 1, 1
	w.done = true
}

// watch takes the next events.
func (w *watching) watch(events []Event) {
	last := &w.last
	for i := range events {
		e := &events[i]
		switch e.Action {
		case mem.ActionFreeRequested:
			w.requests++
		case mem.ActionFreeCompleted:
			w.completions++
		}
		w.done = !w.done && w.c.entry(w.n-1, last, e)
		last = e
		w.n++
	}
	w.last = *last
}

// end converts the last event. It returns false if the events must be converted anew.
func (w *watching) end(t *Trace, opts ProgramOptions) bool {
	c := w.c
	if c == nil || w.requests == 0 || w.completions == 0 || len(t.Gaps) > 0 {
		return false
	}
	if !w.done {
		c.entry(w.n-1, &w.last, nil)
		w.done = true
	}
	c.t, c.opts = t, opts
	if t.PoolsKnown && len(t.Pools) > 0 {
		c.p.Pools = slices.Clone(t.Pools)
	}
	c.number()
	c.resolveReleases(false)
	return true
}

// A LifetimesWatcher derives lifetimes while events are read: its Watch is for ColumnsWriter.Watch. Numbers of streams,
// pools and stacks in the events do not matter. Not safe for concurrent use. The zero value is ready.
type LifetimesWatcher struct{ watching }

// Watch takes the next events.
func (w *LifetimesWatcher) Watch(events []Event) {
	if w.c == nil {
		w.begin(ProgramOptions{})
		w.c.lives = newLifetimes()
	}
	w.watch(events)
}

// Lifetimes returns the lifetimes that Trace.Lifetimes returns for the events that were watched, or nil if they must be
// derived anew. It must be called once.
func (w *LifetimesWatcher) Lifetimes(t *Trace, opts ProgramOptions) *Lifetimes {
	if w.n != t.Len() || !t.PoolsKnown && opts.PoolOf != nil || !w.end(t, opts) {
		return nil
	}
	c := w.c
	for i := range c.prelude {
		op := &c.prelude[i]
		e := t.At(op.entry)
		op.Stream, op.Pool = c.stream(&e), c.pool(op.entry, &e)
	}
	if c.finish() != nil {
		return nil // Trace.Lifetimes returns the error
	}
	return c.lifetimes()
}

// A ProgramWatcher derives a program while events are read, without keeping the events or the ops: memory use depends
// on the number of distinct addresses. Not safe for concurrent use.
type ProgramWatcher struct {
	Options ProgramOptions // only Attempts counts before the end

	// Op, if not nil, is called with each op in order, except those of the prelude. Stream and Pool are those of the
	// events.
	Op func(op Op)

	watching
}

// Watch takes the next events.
func (w *ProgramWatcher) Watch(events []Event) {
	if w.c == nil {
		w.begin(w.Options)
		w.c.each = w.Op
		if w.c.each == nil {
			w.c.each = func(Op) {}
		}
	}
	w.watch(events)
}

// Program returns the program that ToProgram returns for the events that were watched, but with the ops of the prelude
// only; or nil if it must be derived anew. It must be called once. Numbers are those that replace the numbers of the
// events, and t is their trace, without events. Op gets the last ops during the call. PoolOf is not called: blocks of
// recordings without pools have the default one.
func (w *ProgramWatcher) Program(t *Trace, n Numbers, opts ProgramOptions) (*Program, error) {
	opts.PoolOf = nil
	if opts.NoGarbageCollection || !w.end(t, opts) {
		return nil, nil
	}
	for i := range w.c.prelude {
		w.c.replace(&w.c.prelude[i].Op, n)
	}
	err := w.c.finish()
	return w.c.p, err
}

// Replace replaces the numbers of an op that Op received by those of the program. It must be called after Program.
func (w *ProgramWatcher) Replace(op *Op, n Numbers) { w.c.replace(op, n) }

// replace replaces the numbers of an op of an event by those of the program.
func (c *converter) replace(op *Op, n Numbers) {
	e := Event{Stream: op.Stream, Pool: op.Pool}
	switch op.Kind {
	case OpAlloc:
		n.Replace(&e)
		op.Stream, op.Pool = c.stream(&e), c.pool(0, &e)
	case OpTry: // of the default pool
		n.Replace(&e)
		op.Stream = c.stream(&e)
	}
}
