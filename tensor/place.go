package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Place is where tensors are made: a device, an allocator, a backend, a stream, and optionally a scope. On, Scope,
// WithAllocOptions and WithAllocator return places that share all but the stream, the scope, the options or the
// allocator. A Place is safe for concurrent use.
type Place struct {
	state    *deviceState
	stream   driver.Stream
	scope    *Scope            // nil: the caller releases the tensors made here
	options  *mem.AllocOptions // of allocations; nil if there are none
	unscoped *Place            // without the scope; nil if there is none
	stripped *Place            // without scope and options; nil if there are none
}

// A deviceState is shared by the places of one device and one allocator that were made from one NewPlace.
type deviceState struct {
	device    driver.Device
	visible   driver.Visible // nil unless Go code can reach the memory
	alloc     mem.Allocator
	mover     mem.Mover     // alloc, if it may move blocks
	graphs    driver.Graphs // nil unless streams capture
	backend   backend.Backend
	live      *liveStorages // of all places with the same root
	root      *deviceState  // that of the NewPlace from which the place was made
	closeFunc func() error
}

// Config holds the parts of a Place. Device, Allocator and Backend are required. The caller closes them, unless the
// function Close does.
type Config struct {
	Device    driver.Device
	Allocator mem.Allocator   // of the device's memory
	Backend   backend.Backend // of the device
	Stream    driver.Stream   // nil: the device's default stream
	Sites     bool            // record the calls that made each storage, for Leaks: 1 to 2 µs each
	SitesBy   string          // the setting that turns Sites on, for leak reports; empty: "tensor.Config{Sites: true}"
	Close     func() error    // called by Place.Close; may be nil
}

// NewPlace returns a place. It panics if a required part of c is nil.
func NewPlace(c Config) *Place {
	if c.Device == nil || c.Allocator == nil || c.Backend == nil {
		panic("tensor: NewPlace needs a device, an allocator and a backend")
	}
	if c.Stream == nil {
		c.Stream = c.Device.DefaultStream()
	}
	h := &deviceState{
		device: c.Device, visible: c.Device.Visible(), alloc: c.Allocator, backend: c.Backend,
		closeFunc: c.Close, live: &liveStorages{},
	}
	h.root = h
	h.mover, _ = c.Allocator.(mem.Mover)
	h.graphs = c.Device.Graphs()
	h.live.sites, h.live.sitesBy = c.Sites, cmp.Or(c.SitesBy, "tensor.Config{Sites: true}")
	return &Place{state: h, stream: c.Stream}
}

// On returns the same place with another stream of its device. A tensor remembers the place at which it was made.
// Before the stream is closed, move the tensors that are still needed (To, with another place), or pass a place to each
// later use.
func (p *Place) On(s driver.Stream) *Place {
	if p.scope != nil && p.scope.onStream != nil {
		p.scope.onStream(s)
	}
	return p.state.place(s, p.scope, p.options)
}

// WithAllocOptions returns the same place with options for the memory allocated there: tensors, storages, results of
// operations and their temporary memory. They replace the options of p. With NoRetry an allocation that finds no room
// does not reclaim dropped storages either. Places made from the returned one have the options too. Tensors do not
// remember them: an operation that is given no place uses none.
func (p *Place) WithAllocOptions(o mem.AllocOptions) *Place {
	return p.state.place(p.stream, p.scope, &o)
}

// WithAllocator returns the same place with another allocator of its device's memory, such as a layer over the present
// one: tensors and temporary memory made there come from it and are freed to it. Tensors of both places are on one
// device. The caller closes the allocator, after the last of its blocks was freed. It panics if a is nil.
func (p *Place) WithAllocator(a mem.Allocator) *Place {
	if a == nil {
		panic("tensor: WithAllocator of no allocator")
	}
	h := *p.state
	h.alloc = a
	h.mover, _ = a.(mem.Mover)
	return h.place(p.stream, p.scope, p.options)
}

// place returns a place of the device. Scope and options may be nil.
func (h *deviceState) place(s driver.Stream, scope *Scope, options *mem.AllocOptions) *Place {
	p := &Place{state: h, stream: s}
	if options != nil {
		p = &Place{state: h, stream: s, options: options, stripped: p}
	}
	if scope != nil {
		p = &Place{state: h, stream: s, scope: scope, options: options, unscoped: p, stripped: p.strip()}
	}
	return p
}

// strip returns p without scope and options: the place that a tensor remembers.
func (p *Place) strip() *Place {
	if p.stripped == nil {
		return p
	}
	return p.stripped
}

// Unscoped returns p without its scope but with its options, for tensors that the caller releases.
func (p *Place) Unscoped() *Place {
	if p.scope == nil {
		return p
	}
	return p.unscoped
}

// Device returns the device.
func (p *Place) Device() driver.Device { return p.state.device }

// Allocator returns the allocator of the device's memory.
func (p *Place) Allocator() mem.Allocator { return p.state.alloc }

// Backend returns the backend that computes on the device.
func (p *Place) Backend() backend.Backend { return p.state.backend }

// Stream returns the stream to which work on the place's tensors is queued.
func (p *Place) Stream() driver.Stream { return p.stream }

// Queue returns the stream and the allocator in the form that backends take. The allocator reclaims dropped storages if
// there is no room, as Alloc does.
func (p *Place) Queue() backend.Queue {
	return backend.Queue{Stream: p.stream, Scratch: reclaimingAllocator{p}}
}

// SameDevice reports whether both places are on one device.
func (p *Place) SameDevice(other *Place) bool { return p.state.root == other.state.root }

// String returns the device in the notation of driver.Open: "cuda:0", "host".
func (p *Place) String() string {
	info := p.state.device.Info()
	if info.Driver == "cuda" || info.Ordinal > 0 {
		return fmt.Sprintf("%s:%d", info.Driver, info.Ordinal)
	}
	return info.Driver
}

// Sync waits for the work queued on the place's stream, or until ctx ends. It returns the failure of that or of other
// finished work on the device: a device error or a *backend.IndexError.
func (p *Place) Sync(ctx context.Context) error {
	if err := p.stream.Sync(ctx); err != nil {
		return fmt.Errorf("tensor: sync %v: %w", p, err)
	}
	return p.state.backend.Failed()
}

// Close waits for the device's default stream and the place's own, and then calls Config.Close. If storages of the
// place are live, the returned error matches ErrLeaked and lists them; their memory goes with the allocator. A second
// Close returns the errors of the closed parts.
func (p *Place) Close() error {
	var errs []error
	for _, s := range []driver.Stream{p.state.device.DefaultStream(), p.stream} {
		errs = append(errs, s.Sync(context.Background()))
	}
	errs = append(errs, p.state.backend.Failed())
	if leaks := p.Leaks(); leaks.Count > 0 {
		errs = append(errs, &LeakError{leaks})
	}
	if p.state.closeFunc != nil {
		errs = append(errs, p.state.closeFunc())
	}
	return errors.Join(errs...)
}

// Reclaim runs Go's garbage collector, frees the device's storages that were dropped without Release, and returns their
// number. Deleters and functions of OnRelease are called as after a release. An allocation that finds no room does the
// same.
func (p *Place) Reclaim() int { return p.state.live.reclaim() }

// addToScope adds a new owner to the place's scope, if it has one.
func (p *Place) addToScope(t *Tensor) {
	if p.scope != nil {
		p.scope.add(t)
	}
}

// mustBeOpen panics if p is nil or its scope is closed.
func (p *Place) mustBeOpen(call string) {
	if p == nil {
		panic("tensor: " + call + " at no place")
	}
	if p.scope != nil {
		p.scope.mu.Lock()
		defer p.scope.mu.Unlock()
		p.scope.mustBeOpen(call)
	}
}

// orDefault returns p, or the default if p is nil.
func (p *Place) orDefault(absent *Place) *Place {
	if p == nil {
		return absent
	}
	return p
}
