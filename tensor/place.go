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

// A Place is where tensors are made: a device, an allocator of its memory, what computes there, a stream, and perhaps a
// scope. Places of one device that were made from one another (On, Scope, WithAllocOptions) share everything but stream,
// scope and options. Safe for concurrent use.
type Place struct {
	home    *home
	stream  driver.Stream
	scope   *Scope            // nil: nobody but the caller releases what is made here
	options *mem.AllocOptions // of allocations; nil if there are none
	plain   *Place            // without the scope; nil if there is none
	bare    *Place            // without scope and options; nil if there are none
}

// A home is what the places of a device share.
type home struct {
	device  driver.Device
	visible driver.Visible // nil unless Go code can reach the memory
	alloc   mem.Allocator
	mover   mem.Mover     // alloc, if it may move blocks
	graphs  driver.Graphs // nil unless streams capture
	backend backend.Backend
	ledger  ledger
	closer  func() error
}

// Config says what a Place is made of. Device, Allocator and Backend are required, and belong to the caller unless Close
// says otherwise.
type Config struct {
	Device    driver.Device
	Allocator mem.Allocator   // of the device's memory
	Backend   backend.Backend // of the device
	Stream    driver.Stream   // nil: the device's default stream
	Sites     bool            // record the calls that made each storage, for Leaks: 1 to 2 µs each
	SitesBy   string          // how the place's user sets Sites, for reports of leaks; empty: "tensor.Config{Sites: true}"
	Close     func() error    // called by Place.Close; may be nil
}

// NewPlace returns a place. It panics if a required part of c is nil.
func NewPlace(c Config) *Place {
	if c.Device == nil || c.Allocator == nil || c.Backend == nil {
		panic("tensor: NewPlace without a device, an allocator or a backend")
	}
	if c.Stream == nil {
		c.Stream = c.Device.DefaultStream()
	}
	h := &home{device: c.Device, visible: c.Device.Visible(), alloc: c.Allocator, backend: c.Backend, closer: c.Close}
	h.mover, _ = c.Allocator.(mem.Mover)
	h.graphs = c.Device.Graphs()
	h.ledger.sites, h.ledger.sitesBy = c.Sites, cmp.Or(c.SitesBy, "tensor.Config{Sites: true}")
	return &Place{home: h, stream: c.Stream}
}

// On returns the same place with another stream of its device. Tensors remember the place that they were made at: who closes
// the stream moves those that are to be read or used afterwards (To, with another place), or names a place at each use.
func (p *Place) On(s driver.Stream) *Place {
	if p.scope != nil && p.scope.onStream != nil {
		p.scope.onStream(s)
	}
	return p.home.place(s, p.scope, p.options)
}

// WithAllocOptions returns the same place with options of the memory that is allocated at it: of tensors and storages, of
// results of operations that are given the place, and of what those need on the way. They replace those that p has. With
// NoRetry dropped storages are not looked for either where there is no room (see Leaks). Places that are made from the one
// returned have the options, too; tensors do not remember them: an operation that is given no place has none.
func (p *Place) WithAllocOptions(o mem.AllocOptions) *Place {
	return p.home.place(p.stream, p.scope, &o)
}

// place returns a place of the home. Scope and options may be nil.
func (h *home) place(s driver.Stream, scope *Scope, options *mem.AllocOptions) *Place {
	p := &Place{home: h, stream: s}
	if options != nil {
		p = &Place{home: h, stream: s, options: options, bare: p}
	}
	if scope != nil {
		p = &Place{home: h, stream: s, scope: scope, options: options, plain: p, bare: p.base()}
	}
	return p
}

// base returns p without scope and options: what tensors remember.
func (p *Place) base() *Place {
	if p.bare == nil {
		return p
	}
	return p.bare
}

// Unscoped returns p without its scope, but with its options: for what its maker releases by hand.
func (p *Place) Unscoped() *Place {
	if p.scope == nil {
		return p
	}
	return p.plain
}

// Device returns the device.
func (p *Place) Device() driver.Device { return p.home.device }

// Allocator returns the allocator of the device's memory.
func (p *Place) Allocator() mem.Allocator { return p.home.alloc }

// Backend returns what computes on the device.
func (p *Place) Backend() backend.Backend { return p.home.backend }

// Stream returns the stream that work on tensors of this place is queued to.
func (p *Place) Stream() driver.Stream { return p.stream }

// Queue returns the stream and the allocator as a backend wants them; where there is no room, that takes back the memory of
// dropped storages, as Alloc does.
func (p *Place) Queue() backend.Queue {
	return backend.Queue{Stream: p.stream, Scratch: thrifty{p}}
}

// SameDevice reports whether both are places of one device.
func (p *Place) SameDevice(other *Place) bool { return p.home == other.home }

// String names the device as drivers are asked for it: "cuda:0", "host".
func (p *Place) String() string {
	info := p.home.device.Info()
	if info.Driver == "cuda" || info.Ordinal > 0 {
		return fmt.Sprintf("%s:%d", info.Driver, info.Ordinal)
	}
	return info.Driver
}

// Sync waits for the work queued on the place's stream, or until ctx ends, and returns what that and other finished work
// of the device found wrong: an error of the device, or a *backend.IndexError.
func (p *Place) Sync(ctx context.Context) error {
	if err := p.stream.Sync(ctx); err != nil {
		return fmt.Errorf("tensor: sync %v: %w", p, err)
	}
	return p.home.backend.Failed()
}

// Close waits for the device's default stream and this place's, closes what Config.Close was given for, and returns an
// error that matches ErrLeaked, and lists them, if storages of the place are alive: their memory is gone with the
// allocator. Closing twice is the second time an error of what is closed.
func (p *Place) Close() error {
	var errs []error
	for _, s := range []driver.Stream{p.home.device.DefaultStream(), p.stream} {
		errs = append(errs, s.Sync(context.Background()))
	}
	errs = append(errs, p.home.backend.Failed())
	if leaks := p.Leaks(); leaks.Count > 0 {
		errs = append(errs, &LeakError{leaks})
	}
	if p.home.closer != nil {
		errs = append(errs, p.home.closer())
	}
	return errors.Join(errs...)
}

// adopt gives a new owner to the place's scope, if it has one.
func (p *Place) adopt(t *Tensor) {
	if p.scope != nil {
		p.scope.add(t)
	}
}

// open panics if nothing can be made at p any more, before anything is.
func (p *Place) open(call string) {
	if p == nil {
		panic("tensor: " + call + " at no place")
	}
	if p.scope != nil {
		p.scope.mu.Lock()
		defer p.scope.mu.Unlock()
		p.scope.mustBeOpen(call)
	}
}

// or returns p, or what is meant by its absence.
func (p *Place) or(absent *Place) *Place {
	if p == nil {
		return absent
	}
	return p
}
