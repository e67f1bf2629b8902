package trace

import "slices"

// A LifetimesWatcher derives lifetimes while events are read: its Watch is for ColumnsWriter.Watch. Numbers of streams,
// pools and stacks in the events do not matter. Not safe for concurrent use. The zero value is ready.
type LifetimesWatcher struct {
	c      *converter
	survey survey
	last   Event // not converted yet, unless there is none
	n      int   // events
	done   bool  // the last one was converted with the one before
}

// Watch takes the next events.
func (w *LifetimesWatcher) Watch(events []Event) {
	if w.c == nil {
		// Most recordings have both requests and completions of frees. This one is assumed to.
		w.c = newConverter(&Trace{PoolsKnown: true}, ProgramOptions{})
		w.c.lives = newLifetimes()
		w.c.requests, w.c.completions = 1, 1
		w.done = true // there is no last one
	}
	for i := range events {
		e := &events[i]
		w.survey.add(e)
		w.done = !w.done && w.c.entry(w.n-1, &w.last, e)
		w.last = *e
		w.n++
	}
}

// Lifetimes returns the lifetimes that Trace.Lifetimes returns for the events that were watched, or nil if they must be
// derived anew. It must be called once.
func (w *LifetimesWatcher) Lifetimes(t *Trace, opts ProgramOptions) *Lifetimes {
	c := w.c
	if c == nil || w.n != t.Len() || w.survey.requests == 0 || w.survey.completions == 0 || len(t.Gaps) > 0 ||
		!t.PoolsKnown && opts.PoolOf != nil {
		return nil
	}
	if !w.done {
		c.entry(w.n-1, &w.last, nil)
	}
	c.t, c.opts = t, opts
	if t.PoolsKnown && len(t.Pools) > 0 {
		c.p.Pools = slices.Clone(t.Pools)
	}
	c.number()
	c.resolveReleases(false)
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
