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

// A seat is what a session has on one device.
type seat struct {
	device *device
	stream driver.Stream
	lent   []driver.Stream // by BorrowStream
	scope  *tensor.Scope
	usage  usage
	lane   *timeline.Lane // nil before the first event; guarded by Session.events.mu
	guest  bool           // a task's, on a device that is not its own: for what CopyTo makes

	mu      sync.Mutex                        // of changes to what follows; other goroutines change adopted alone
	caches  []*cache                          // those reserved; the last one is used first
	using   int                               // the nth cache is in use; 0: none
	adopted map[driver.StreamID]driver.Stream // the program's own, that places of the session were put on
}

// seat returns a place of a session on the device.
func (d *device) seat() (*seat, error) {
	stream, err := d.streams.Get()
	if err != nil {
		return nil, err
	}
	t := &seat{device: d, stream: stream, scope: d.place.On(stream).Scope()}
	t.take(stream)
	t.scope.OnStream(t.adopt)
	return t, nil
}

// take makes a stream the session's.
func (t *seat) take(stream driver.Stream) {
	d := t.device
	d.lanes.lead(stream, t.cache(), &t.usage)
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.seated) <= int(stream.ID()) {
		d.seated = append(d.seated, nil)
	}
	d.seated[stream.ID()] = stream
}

// adopt makes requests on a stream of the program's own the session's, unless they are another session's already. The
// default stream belongs to all.
func (t *seat) adopt(stream driver.Stream) {
	if stream == nil || stream.ID() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.device.lanes.of(stream.ID())
	before := n.lead.Load()
	if before != nil && before.usage != nil && (before.stream == nil || before.stream == stream) {
		return
	}
	if n.lead.CompareAndSwap(before, &lead{usage: &t.usage, cache: t.inUse(), stream: stream}) {
		if t.adopted == nil {
			t.adopted = map[driver.StreamID]driver.Stream{}
		}
		t.adopted[stream.ID()] = stream
	}
}

// readopt leads requests on the streams that were adopted, as far as they are the session's still, to a cache, or
// counts them no more. The caller holds mu.
func (t *seat) readopt(k *cache, counts bool) {
	for id, stream := range t.adopted {
		n := t.device.lanes.of(id)
		now := n.lead.Load()
		if now == nil || now.usage != &t.usage || now.stream != stream {
			delete(t.adopted, id)
			continue
		}
		var next *lead
		if counts {
			next = &lead{usage: &t.usage, cache: k, stream: stream}
		}
		n.lead.CompareAndSwap(now, next)
	}
}

// use leads the session's requests to the nth cache, counted from 1; 0 is the device's allocator.
func (t *seat) use(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.using = n
	for _, stream := range t.streams() {
		t.device.lanes.lead(stream, t.inUse(), &t.usage)
	}
	t.readopt(t.inUse(), true)
}

func (t *seat) setCaches(all []*cache) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caches = all
}

// cache returns the one in use, or nil.
func (t *seat) cache() *cache {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inUse()
}

func (t *seat) inUse() *cache {
	if t.using == 0 {
		return nil
	}
	return t.caches[t.using-1]
}

// streams returns all of the session's, its own first.
func (t *seat) streams() []driver.Stream { return append([]driver.Stream{t.stream}, t.lent...) }

// sync waits for the work on the session's streams, or until ctx ends, and returns what was found wrong.
func (t *seat) sync(ctx context.Context) error {
	var errs []error
	for _, stream := range t.lent {
		errs = append(errs, stream.Sync(ctx))
	}
	return errors.Join(append(errs, t.scope.Sync(ctx))...)
}

// close gives back what the session has on a device, when its scope is closed.
func (t *seat) close() (errs []error) {
	d := t.device
	for _, stream := range t.streams() {
		d.lanes.lead(stream, nil, nil)
	}
	t.mu.Lock()
	t.readopt(nil, false)
	t.mu.Unlock()
	for _, k := range slices.Backward(t.caches) {
		if err := k.abandon(); err != nil {
			errs = append(errs, fmt.Errorf("engine: device %d: %w", d.index, err))
		}
	}
	t.setCaches(nil)
	if a, ok := mem.Find[interface{ FreeSession() error }](d.lanes); ok {
		if err := d.lanes.during(a.FreeSession); err != nil && !errors.Is(err, driver.ErrClosed) {
			errs = append(errs, fmt.Errorf("engine: device %d: %w", d.index, err))
		}
	}
	for _, stream := range t.streams() {
		errs = append(errs, d.streams.Put(stream))
	}
	return errs
}
