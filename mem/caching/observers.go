package caching

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/mem"
)

// A hook is a registered function, with a name if it has one.
type hook[F any] struct {
	name string
	id   *byte // identifies the registration
	call F
}

// hooks are the registered functions of one kind, in order. Each change makes a new slice, so that a goroutine may call
// the functions of the old one without a lock.
type hooks[F any] []hook[F]

func (h *hooks[F]) add(name string, call F) (id *byte) {
	id = new(byte)
	*h = append(slices.Clip(*h), hook[F]{name, id, call})
	return id
}

func (h *hooks[F]) remove(id *byte) {
	*h = slices.DeleteFunc(slices.Clone(*h), func(one hook[F]) bool { return one.id == id })
}

func (h hooks[F]) all() []F {
	calls := make([]F, len(h))
	for i := range h {
		calls[i] = h[i].call
	}
	return calls
}

func (h hooks[F]) names() []string {
	names := make([]string, len(h))
	for i := range h {
		names[i] = h[i].name
	}
	return names
}

// Observe sets the observer that receives every event; nil removes it. The observer runs under the allocator's locks,
// in one order for all streams. It must be quick and must not call the allocator.
func (a *Allocator) Observe(observer mem.Observer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	a.observer = observer
	a.setSlowPath(slowObserver, observer != nil)
}

// OnLowMemory adds a callback that is called when a request finds no free block, before the driver is asked, and after
// the callbacks added before it. It frees blocks and returns whether it freed any. It runs without locks on the
// goroutine of the request. Like the names in PyTorch's registry of FreeMemoryCallbacks, a name can be used once: a
// name in use panics. remove removes the callback and its name; a request that is under way may still call it once.
// Calling remove again is a no-op.
func (a *Allocator) OnLowMemory(name string, callback func() (freed bool)) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.lowMemory.names(), name) {
		panic(fmt.Sprintf("caching: OnLowMemory: there is a callback named %q already", name))
	}
	id := a.lowMemory.add(name, callback)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lowMemory.remove(id)
	}
}

// LowMemoryCallbacks returns the names of the callbacks of OnLowMemory, in the order of the calls.
func (a *Allocator) LowMemoryCallbacks() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lowMemory.names()
}

// OnOutOfMemory adds an observer of out-of-memory errors. It runs before Alloc returns the error, without locks, on the
// goroutine of the request.
func (a *Allocator) OnOutOfMemory(observer func(*mem.OutOfMemory)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.oomObservers = append(slices.Clip(a.oomObservers), observer)
}

// OnRejection adds an observer of requests that Config.ThrowOnOOM rejects: PyTorch's OomRejectionObserver, whose
// arguments are the error's Device, Segment, Reserved and Total. It runs without locks on the goroutine of the
// request, before the observers of OnOutOfMemory, which are called too. remove removes it; a request that is under way
// may still call it. Calling remove again is a no-op.
func (a *Allocator) OnRejection(observer func(*mem.OutOfMemory)) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.rejectionObservers.add("", observer)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.rejectionObservers.remove(id)
	}
}
