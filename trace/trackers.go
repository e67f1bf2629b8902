package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
)

// A tracker is told of events. It is known by its address.
type tracker struct{ observe mem.Observer }

// AttachTracker lets a function hear of each event of the attached allocator, in order, before the event enters the ring
// and whether or not it does: also while the recorder is stopped, and of actions that are skipped. It is PyTorch's
// attachAllocatorTraceTracker. Trackers are called in the order in which they were attached, under the allocator's locks
// and the recorder's: they are quick, and call neither. Detach ends it; it returns when the tracker is called no more.
func (r *Recorder) AttachTracker(observe mem.Observer) (detach func()) {
	t := &tracker{observe}
	r.attaching.Lock()
	defer r.attaching.Unlock()
	r.mu.Lock()
	r.trackers = append(slices.Clip(r.trackers), t)
	r.mu.Unlock()
	r.observe(true)
	return func() { r.detachTracker(t) }
}

func (r *Recorder) detachTracker(t *tracker) {
	r.attaching.Lock()
	defer r.attaching.Unlock()
	r.mu.Lock()
	r.trackers = slices.DeleteFunc(slices.Clone(r.trackers), func(x *tracker) bool { return x == t })
	listens := r.listens()
	r.mu.Unlock()
	r.observe(listens)
}

// An OutOfMemoryObserver hears of a request that found no room: of how many bytes on which device, and the error, which
// matches mem.ErrNoMemory. In most cases that is a *mem.OutOfMemory, whose Allocated and Free are the last two arguments
// of PyTorch's observers.
type OutOfMemoryObserver func(device int, size int64, err error)

// An oomObserver is known by its address.
type oomObserver struct{ observe OutOfMemoryObserver }

// AttachOutOfMemoryObserver lets a function hear of requests of the attached allocator that found no room, recorded or
// not, before the caller gets the error: on its goroutine and without locks, so it may take a snapshot. It is PyTorch's
// attachOutOfMemoryObserver. Detach ends it.
func (r *Recorder) AttachOutOfMemoryObserver(observe OutOfMemoryObserver) (detach func()) {
	o := &oomObserver{observe}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oom = append(slices.Clip(r.oom), o)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.oom = slices.DeleteFunc(slices.Clone(r.oom), func(x *oomObserver) bool { return x == o })
	}
}

// outOfMemory tells the observers. The caller holds no lock.
func (r *Recorder) outOfMemory(size int64, err error) {
	r.mu.Lock()
	observers := r.oom
	r.mu.Unlock()
	for _, o := range observers {
		o.observe(r.options.Device, size, err)
	}
}
