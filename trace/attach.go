package trace

import (
	"weak"

	"github.com/ashlar-go/ashlar/mem"
)

// An attachment is an allocator to which a recorder is attached. Either source or layer reports its events.
type attachment struct {
	source mem.Observable      // the layer that reports its own events; nil if layer does
	teller outOfMemoryReporter // the allocator itself, if it reports its own errors; nil if layer does
	layer  *layer              // nil if the allocator reports both itself
	listen bool                // events are being reported
}

// An outOfMemoryReporter reports failed requests before Alloc returns, without locks. Its observers cannot be removed.
type outOfMemoryReporter interface {
	OnOutOfMemory(observer func(*mem.OutOfMemory))
}

// Attach makes the recorder observe a until Detach, and returns the allocator to use in place of a: a itself, if it
// reports its own events and out-of-memory errors, as mem/caching does. Otherwise the result is a thin layer over a,
// which reports the errors of the requests that pass through it. The layer also reports the events
//
//   - if no layer of a is mem.Observable, or
//   - if a layer other than the observable one describes the memory of a (mem.Snapshotter): mem/magazine reuses blocks that remain
//     allocated for the layers below, and a pool of mem/caching is a part of the observable allocator.
//
// In these cases an allocation is recorded as alloc, a free as free_requested and immediately free_completed, even if
// other streams still use the block, and a failed request as oom. There are no segment events. A block that a moves is
// freed at its old address and allocated at the new one. Requests that bypass the layer are not recorded. To record
// everything that an Engine allocates, set DeviceConfig.Wrap to r.Attach.
//
// An Observable layer of a has one observer: the recorder's while it records, and none afterwards. Other observers must
// become trackers of the recorder. A second recorder attached to the same layer silently replaces the first, so detach
// the first one before.
//
// Blocks that are allocated may be freed through a or through the layer, but only frees through the layer are recorded.
// After Detach the layer still forwards all calls, at the cost of an atomic load. A recorder is attached to one
// allocator at a time; attaching it again panics.
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

// Detach ends Attach. Entries stay, and the allocator is as fast as before. It is a no-op if the recorder is not
// attached.
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

// observe starts or stops the events of the attached allocator. The caller holds attaching.
func (r *Recorder) observe(on bool) {
	x := r.attached
	if x == nil || x.listen == on {
		return
	}
	x.listen = on
	r.mu.Lock()
	if on {
		r.forget()
	}
	if x.source == nil {
		x.layer.listening.Store(on)
	}
	r.mu.Unlock()
	switch {
	case x.source == nil:
	case on:
		x.source.Observe(r.Observe)
	default:
		x.source.Observe(nil)
	}
}

// reportTo registers the recorder for an allocator's out-of-memory errors, once however often it is attached. The
// allocator keeps the function forever, so the function must not keep the recorder alive. The caller holds attaching.
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
