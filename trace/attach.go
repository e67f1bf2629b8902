package trace

import (
	"weak"

	"github.com/ashlar-go/ashlar/mem"
)

// An attachment is an allocator that a recorder is attached to. One of source and layer reports its events.
type attachment struct {
	source mem.Observable      // the layer that reports its own events; nil if layer does
	teller outOfMemoryReporter // the allocator itself, if it tells of its own errors; nil if layer does
	layer  *layer              // nil if the allocator does both itself
	listen bool                // events come
}

// An outOfMemoryReporter tells of requests that found no room, before Alloc returns, without locks. It cannot be asked to
// stop.
type outOfMemoryReporter interface {
	OnOutOfMemory(observer func(*mem.OutOfMemory))
}

// Attach lets the recorder observe a until Detach, and returns the allocator to use in its stead: a itself, if it reports
// its own events and out-of-memory errors, as mem/caching does. Otherwise it is a thin layer over a, which reports the
// errors of what passes through it, and the events too
//
//   - if no layer of a is mem.Observable, or
//   - if another than that describes what a holds (mem.Snapshotter): mem/magazine lends blocks again that for those below
//     are allocated all the time, and a pool of mem/caching is a part of what that reports.
//
// Then a block is an alloc, and its free a free_requested and a free_completed, whoever else still uses it; there are no
// segments; a block that a moves, or lifts to move it, is freed where it was and allocated where it is. A request that
// finds no room is an oom. Who does not use the layer is not heard of in either case: an Engine has a recorder under all that
// it does by DeviceConfig.Wrap: r.Attach.
//
// A layer of a that is Observable has one observer: it has the recorder's while that listens, and afterwards none. Others
// become trackers of the recorder. A second recorder that is attached to it takes it away from the first, which does not
// know; so the first is detached before.
//
// Allocated blocks may be freed through either, though only what passes through a layer is seen by it. After Detach the
// layer goes on to pass everything on, at the cost of an atomic load. A recorder is attached to one allocator at a time;
// anything else panics.
func (r *Recorder) Attach(a mem.Allocator) mem.Allocator {
	r.attaching.Lock()
	defer r.attaching.Unlock()
	if r.attached != nil {
		panic("trace: Attach of a recorder that is attached already")
	}
	x := &attachment{}
	x.source, _ = mem.Find[mem.Observable](a)
	if s, ok := mem.Find[mem.Snapshotter](a); ok && any(s) != any(x.source) {
		x.source = nil
	}
	if x.source != nil {
		x.teller, _ = a.(outOfMemoryReporter)
	}
	if x.teller == nil {
		x.layer = &layer{inner: a, recorder: r, reports: x.source == nil}
	}
	r.mu.Lock()
	r.forget()
	r.miss()
	if x.source == nil {
		r.layer = x.layer
	}
	listens := r.listens()
	r.mu.Unlock()
	r.attached = x
	if x.layer != nil {
		x.layer.attached.Store(true)
	} else {
		r.reportTo(x.teller)
	}
	r.observe(listens)
	if x.layer != nil {
		return x.layer
	}
	return a
}

// Detach ends Attach: entries stay, and the allocator is as fast as it was. It does nothing if nothing is attached.
func (r *Recorder) Detach() {
	r.attaching.Lock()
	defer r.attaching.Unlock()
	if r.attached == nil {
		return
	}
	r.mu.Lock()
	recording := r.recording
	r.recording = false // first, as in Stop
	r.miss()
	r.forget()
	r.mu.Unlock()
	r.observe(false)
	if l := r.attached.layer; l != nil {
		l.attached.Store(false)
	}
	r.attached = nil
	r.mu.Lock()
	r.forget()
	r.recording, r.layer = recording, nil
	r.mu.Unlock()
}

// observe lets events come from what is attached, or not. The caller holds attaching.
func (r *Recorder) observe(on bool) {
	x := r.attached
	if x == nil || x.listen == on {
		return
	}
	x.listen = on
	if on {
		r.mu.Lock()
		r.forget()
		r.mu.Unlock()
	}
	switch {
	case x.source == nil:
		x.layer.listening.Store(on)
	case on:
		x.source.Observe(r.Observe)
	default:
		x.source.Observe(nil)
	}
}

// reportTo lets an allocator tell of its out-of-memory errors, once for all times that it is attached. The allocator keeps
// what it tells for good, so that does not keep the recorder. The caller holds attaching.
func (r *Recorder) reportTo(t outOfMemoryReporter) {
	for _, known := range r.told {
		if known == t {
			return
		}
	}
	r.told = append(r.told, t)
	known := weak.Make(r)
	t.OnOutOfMemory(func(err *mem.OutOfMemory) {
		r := known.Value()
		if r == nil {
			return
		}
		r.attaching.Lock()
		here := r.attached != nil && r.attached.teller == t
		r.attaching.Unlock()
		if here {
			r.outOfMemory(err.Requested, err)
		}
	})
}
