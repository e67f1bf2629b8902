package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
)

// A tracker receives events. Its address identifies it.
type tracker struct{ observe mem.Observer }

// AttachTracker registers a function that receives every event of the attached allocator, in order, before the event is
// recorded. It also receives events of skipped actions and events while the recorder is stopped. It is PyTorch's
// attachAllocatorTraceTracker. Trackers are called in the order of their registration, under the locks of the allocator
// and of the recorder: they must be quick and call neither. Calling detach removes the tracker. After detach returns,
// the tracker is not called again.
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

// An OutOfMemoryObserver receives failed requests: the device, the size in bytes, and the error, which matches
// mem.ErrNoMemory. In most cases the error is a *mem.OutOfMemory, whose Allocated and Free are the last two arguments
// of PyTorch's observers.
type OutOfMemoryObserver func(device int, size int64, err error)

// An oomObserver is identified by its address.
type oomObserver struct{ observe OutOfMemoryObserver }

// AttachOutOfMemoryObserver registers a function that is called when a request of the attached allocator fails, even
// while the recorder is stopped. It is called before the caller gets the error, on the caller's goroutine and without
// locks, so it may take a snapshot. It is PyTorch's attachOutOfMemoryObserver. Calling detach removes it.
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

// outOfMemory calls the observers. The caller holds no lock.
func (r *Recorder) outOfMemory(size int64, err error) {
	r.mu.Lock()
	observers := r.oom
	r.mu.Unlock()
	for _, o := range observers {
		o.observe(r.options.Device, size, err)
	}
}
