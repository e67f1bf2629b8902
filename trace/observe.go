package trace

import (
	"runtime"

	"github.com/ashlar-go/ashlar/mem"
)

// Observe reports an event to the trackers and then records it. The allocator calls it under its locks. Observe calls
// only the trackers and the clock.
func (r *Recorder) Observe(e mem.Event) {
	r.mu.Lock()
	r.observeLocked(&e, nil)
	r.mu.Unlock()
}

// observeLocked is Observe with the lock held. For a block that was moved, moved is the data of the block before the
// move: the block keeps the stack of its request.
func (r *Recorder) observeLocked(e *mem.Event, moved *knownBlock) {
	for _, t := range r.trackers {
		t.observe(*e)
	}
	if !r.recording && r.layer == nil || e.Action >= mem.NumActions {
		return
	}
	var own, first StackID
	if moved != nil {
		own = moved.stack
	} else if r.recording && r.captures[e.Action] {
		own = r.callers.of(r.pcs[:runtime.Callers(3, r.pcs)]) // from Observe or its equivalent on
	}
	if r.layer != nil || r.context > ContextNever {
		first = r.follow(e, own)
	}
	if !r.recording {
		return
	}
	if e.Action == mem.ActionSnapshot && r.freezing {
		r.capture()
	}
	if !r.skip[e.Action] {
		r.enter(e, r.entryStack(e.Action, own, first), r.labels.current())
	}
}

// follow updates the tables of blocks and segments. For a free it returns the stack under which the block was requested
// or the segment was allocated.
func (r *Recorder) follow(e *mem.Event, own StackID) StackID {
	switch e.Action {
	case mem.ActionAlloc:
		r.blocks.put(knownBlock{ptr: e.Ptr, size: e.Size, stream: e.Stream, stack: own})
	case mem.ActionFreeRequested:
		l, _ := r.blocks.get(e.Ptr)
		return l.stack
	case mem.ActionFreeCompleted:
		l, _ := r.blocks.take(e.Ptr)
		return l.stack
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		r.segments.add(e.Ptr, e.Size, own)
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		return r.segments.drop(e.Ptr, e.Size)
	}
	return 0
}

// entryStack returns the stack for the entry of an event: own is the stack of the event, first that of the request or
// the segment allocation if the event is a free.
func (r *Recorder) entryStack(a mem.Action, own, first StackID) StackID {
	switch r.context {
	case ContextAll:
		return own
	case ContextAlloc:
		switch a {
		case mem.ActionFreeRequested, mem.ActionFreeCompleted:
			return first
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			if !r.callers.isRequest(own) {
				return first
			}
		}
		return own
	}
	return 0
}

// enter adds an entry to the ring buffer.
func (r *Recorder) enter(e *mem.Event, stack StackID, label uint32) {
	var entry *Event
	switch {
	case len(r.events) < r.max:
		r.events = append(r.events, Event{})
		entry = &r.events[len(r.events)-1]
	default:
		entry = &r.events[r.next]
		r.save(*entry)
		if r.next++; r.next == r.max {
			r.next = 0
		}
	}
	r.total++
	if r.options.Clock != nil {
		entry.TimeUS = r.options.Clock()
	}
	entry.Ptr, entry.Size = e.Ptr, e.Size
	entry.Stack, entry.Metadata, entry.Action = stack, label, e.Action
	entry.Stream = r.streams.Of(e.Stream)
	entry.Pool = 0
	if pool := r.pools.Of(e.Pool); pool < maxPools {
		entry.Pool = uint16(pool)
	}
}
