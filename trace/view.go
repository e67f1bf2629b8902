package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A View is the state of a recorder at one instant.
type View struct {
	Trace       *Trace // up to that instant
	Annotations []Annotation
	Stacks      *Stacks // of Trace, Block and Segment; nil without stacks

	blocks   blockTable
	segments segmentList
}

// Block returns the stack of the request for the block at p, or 0. The block may be allocated, or freed and still in
// use.
func (v *View) Block(p driver.Pointer) StackID {
	l, _ := v.blocks.get(p)
	return l.stack
}

// Segment returns the stack under which the segment, or the first of a run of mapped pages, at p was allocated, or 0.
func (v *View) Segment(p driver.Pointer) StackID { return v.segments.get(p) }

// A moment is a copy of the tables of a recorder, with the position of its entries.
type moment struct {
	total    int64   // number of entries recorded so far
	kept     int     // number of entries in the ring
	lost     []Event // entries of the ring that were overwritten since then, oldest first
	gaps     []int64
	notes    []Annotation
	blocks   blockTable
	segments segmentList
}

// capture copies the current state. The caller holds mu.
func (r *Recorder) capture() {
	r.captured = &moment{
		total: r.total, kept: len(r.events), gaps: slices.Clone(r.gaps), notes: r.annotations(),
		segments: slices.Clone(r.segments),
		blocks:   blockTable{slots: slices.Clone(r.blocks.slots), n: r.blocks.n},
	}
}

// save keeps an entry that is about to be overwritten, if a View still needs it. The caller holds mu.
func (r *Recorder) save(e Event) {
	if at := r.captured; at != nil && len(at.lost) < at.kept {
		at.lost = append(at.lost, e)
	}
}

// View calls describe, which must make the allocator describe its segments. It returns the state of the recorder just
// before the allocator reported the description (mem.ActionSnapshot). The entry of that report is not in the trace,
// because PyTorch reads the trace before the snapshot; a later View has it. Events that are recorded until View returns
// do not change the result: entries that they overwrite are included. If there are several reports, the last one
// counts: take one snapshot at a time. Without a report, View returns the state when describe returns, and no goroutine
// may allocate or free until then.
func (r *Recorder) View(describe func()) *View {
	r.viewing.Lock()
	defer r.viewing.Unlock()
	r.mu.Lock()
	r.freezing, r.captured = true, nil
	r.mu.Unlock()
	defer func() { // also if describe panics
		r.mu.Lock()
		r.freezing, r.captured = false, nil
		r.mu.Unlock()
	}()
	describe()
	r.mu.Lock()
	if r.captured == nil {
		r.capture()
	}
	at := r.captured
	t := r.copyTrace(append(at.lost, r.ring()...)[:at.kept])
	t.Gaps = gapsOf(at.gaps, at.total-int64(at.kept))
	callers := r.callers // its entries never change
	r.freezing, r.captured = false, nil
	r.mu.Unlock()
	v := &View{Trace: t, Annotations: at.notes}
	v.blocks, v.segments = at.blocks, at.segments
	x := newResolver(callers, r.options.Depth)
	x.events(t)
	for i := range v.blocks.slots {
		v.blocks.slots[i].stack = x.of(v.blocks.slots[i].stack)
	}
	for i := range v.segments {
		v.segments[i].stack = x.of(v.segments[i].stack)
	}
	t.Stacks, v.Stacks = x.stacks.Table(), x.stacks.Table()
	return v
}

// AllocationStack returns the call stack of the request for the block in which p lies, innermost frame first: PyTorch's
// getContextForPointer and _allocation_traceback. The block is allocated, or freed and still in use. The stack is nil
// if there is no such block, or if it was requested while the recorder was stopped or kept no stacks (see
// ContextState). It is quickest for the address at which the block begins.
func (r *Recorder) AllocationStack(p driver.Pointer) []Frame {
	r.mu.Lock()
	l, ok := r.blocks.holding(p)
	x := newResolver(r.callers, r.options.Depth)
	r.mu.Unlock()
	if !ok || l.stack == 0 {
		return nil
	}
	return x.frames(l.stack)
}

// Trace returns a copy of what was recorded, oldest first. Stream handles are the device's stream numbers. It looks up
// the functions, files and lines of the stacks; a stack begins with the caller of the allocators. The tables also list
// streams, pools and metadata of overwritten entries.
func (r *Recorder) Trace() *Trace {
	r.mu.Lock()
	t, callers := r.copyTrace(r.ring()), r.callers
	r.mu.Unlock()
	x := newResolver(callers, r.options.Depth)
	x.events(t)
	t.Stacks = x.stacks.Table()
	return t
}

// events resolves the stacks of all events.
func (x *resolver) events(t *Trace) {
	for i := range t.Events {
		t.Events[i].Stack = x.of(t.Events[i].Stack)
	}
}

// gapsOf converts gaps to indices of entries, given the number of entries that were recorded before the first one.
func gapsOf(gaps []int64, oldest int64) (all []int) {
	for _, total := range gaps {
		if total > oldest {
			all = append(all, int(total-oldest))
		}
	}
	return all
}

// ring returns a copy of the entries, oldest first. The caller holds mu.
func (r *Recorder) ring() []Event {
	return append(slices.Clone(r.events[r.next:]), r.events[:r.next]...)
}

// copyTrace makes a trace of entries, with the recorder's stack numbers. The caller holds mu.
func (r *Recorder) copyTrace(events []Event) *Trace {
	t := &Trace{
		Device:     r.options.Device,
		Events:     events,
		Streams:    slices.Sorted(slices.Values(r.streams.Values)),
		Pools:      slices.Clone(r.pools.Values[:min(len(r.pools.Values), maxPools)]),
		PoolsKnown: true,
		Gaps:       gapsOf(r.gaps, r.oldest()),
	}
	order := make([]uint32, len(t.Streams))
	for i, handle := range r.streams.Values {
		n, _ := slices.BinarySearch(t.Streams, handle)
		order[i] = uint32(n)
	}
	for i := range t.Events {
		t.Events[i].Stream = order[t.Events[i].Stream]
	}
	r.labels.split(t)
	return t
}
