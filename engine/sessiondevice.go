package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/timeline"
)

// A sessionDevice is a session's part of one device: its streams, scope, caches and usage.
type sessionDevice struct {
	device     *device
	stream     driver.Stream
	borrowed   []driver.Stream // by BorrowStream
	scope      *tensor.Scope
	usage      usage
	lane       *timeline.Lane // nil before the first event; guarded by Session.events.mu
	copiesOnly bool           // a task's, on a device that is not its own: for what CopyTo makes

	mu         sync.Mutex                        // of changes to what follows; other goroutines change adopted alone
	caches     []*cache                          // those reserved; the last one is used first
	cacheIndex int                               // the nth cache is in use; 0: none
	adopted    map[driver.StreamID]driver.Stream // the program's own, that places of the session were put on
}

// newSessionDevice returns a session's part of the device, with a stream of its own. The tenant may be nil.
func (d *device) newSessionDevice(tenant *Tenant) (*sessionDevice, error) {
	stream, err := d.streams.Get()
	if err != nil {
		return nil, err
	}
	t := &sessionDevice{device: d, stream: stream, scope: d.place.On(stream).Scope()}
	if tenant != nil {
		t.usage.tenant = tenant.devices[d.index]
	}
	t.addStream(stream)
	t.scope.OnStream(t.adoptStream)
	return t, nil
}

// addStream routes a stream of the engine to the session.
func (t *sessionDevice) addStream(stream driver.Stream) {
	d := t.device
	d.allocator.setRoute(stream, t.cache(), &t.usage)
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.usedStreams) <= int(stream.ID()) {
		d.usedStreams = append(d.usedStreams, nil)
	}
	d.usedStreams[stream.ID()] = stream
}

// adoptStream routes a stream of the program to the session, unless it is routed to another session. The default stream
// is never routed: it is shared.
func (t *sessionDevice) adoptStream(stream driver.Stream) {
	if stream == nil || stream.ID() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.device.allocator.stream(stream.ID())
	before := n.route.Load()
	if before != nil && before.usage != nil && (before.stream == nil || before.stream == stream) {
		return
	}
	if n.route.CompareAndSwap(before, &route{usage: &t.usage, cache: t.cacheInUse(), stream: stream}) {
		if t.adopted == nil {
			t.adopted = map[driver.StreamID]driver.Stream{}
		}
		t.adopted[stream.ID()] = stream
	}
}

// updateAdopted changes the routes of adopted streams that are still the session's: to a cache, or to nothing if counts
// is false. The caller holds mu.
func (t *sessionDevice) updateAdopted(k *cache, counts bool) {
	for id, stream := range t.adopted {
		n := t.device.allocator.stream(id)
		now := n.route.Load()
		if now == nil || now.usage != &t.usage || now.stream != stream {
			delete(t.adopted, id)
			continue
		}
		var next *route
		if counts {
			next = &route{usage: &t.usage, cache: k, stream: stream}
		}
		n.route.CompareAndSwap(now, next)
	}
}

// useCache routes the session's requests to the nth cache, counted from 1; 0 is the device's allocator.
func (t *sessionDevice) useCache(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cacheIndex = n
	for _, stream := range t.streams() {
		t.device.allocator.setRoute(stream, t.cacheInUse(), &t.usage)
	}
	t.updateAdopted(t.cacheInUse(), true)
}

func (t *sessionDevice) setCaches(all []*cache) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caches = all
}

// cache returns the cache in use, or nil.
func (t *sessionDevice) cache() *cache {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cacheInUse()
}

func (t *sessionDevice) cacheInUse() *cache {
	if t.cacheIndex == 0 {
		return nil
	}
	return t.caches[t.cacheIndex-1]
}

// streams returns the session's streams, its own first and then the borrowed ones.
func (t *sessionDevice) streams() []driver.Stream {
	return append([]driver.Stream{t.stream}, t.borrowed...)
}

// sync waits for the work on the session's streams, or until ctx ends, and returns errors of that work.
func (t *sessionDevice) sync(ctx context.Context) error {
	var errs []error
	for _, stream := range t.borrowed {
		errs = append(errs, stream.Sync(ctx))
	}
	return errors.Join(append(errs, t.scope.Sync(ctx))...)
}

// close returns the session's streams and caches of a device. The scope is closed already.
func (t *sessionDevice) close() (errs []error) {
	d := t.device
	for _, stream := range t.streams() {
		d.allocator.setRoute(stream, nil, nil)
	}
	t.mu.Lock()
	t.updateAdopted(nil, false)
	t.mu.Unlock()
	for _, k := range slices.Backward(t.caches) {
		if err := k.abandon(); err != nil {
			errs = append(errs, fmt.Errorf("engine: device %d: %w", d.index, err))
		}
	}
	t.setCaches(nil)
	if a, ok := mem.Find[interface{ FreeSession() error }](d.allocator); ok {
		if err := d.allocator.whileOpen(a.FreeSession); err != nil && !errors.Is(err, driver.ErrClosed) {
			errs = append(errs, fmt.Errorf("engine: device %d: %w", d.index, err))
		}
	}
	for _, stream := range t.streams() {
		errs = append(errs, d.streams.Put(stream))
	}
	return errs
}
