package dropin

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// SetLimit limits the bytes that a device's allocator reserves; 0 is no limit. It does not open the device: the limit
// of an unused device takes effect at its first use.
func (p *Process) SetLimit(ordinal int, bytes int64) (err error) {
	if uint(ordinal) >= uint(len(p.gpus)) || bytes < 0 {
		return fmt.Errorf("%w: a limit of %d bytes for device %d of %d", ErrInvalid, bytes, ordinal, len(p.gpus))
	}
	g := &p.gpus[ordinal]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready.Load() {
		if err := g.setLimit(bytes); err != nil {
			return err
		}
	}
	g.limit.Store(bytes)
	return nil
}

// EmptyCache returns a device's unused memory to the driver. If ordinal is -1, it does so for all devices that were
// used.
func (p *Process) EmptyCache(ordinal int) (err error) {
	if ordinal >= 0 {
		g, err := p.gpu(ordinal)
		if err != nil {
			return err
		}
		return g.emptyCache()
	}
	var errs []error
	for i := range p.gpus {
		if g := &p.gpus[i]; g.ready.Load() {
			errs = append(errs, g.emptyCache())
		}
	}
	return errors.Join(errs...)
}

func (g *gpu) emptyCache() error {
	for _, pool := range g.tagged.all() {
		if err := pool.EmptyCache(); err != nil {
			return err
		}
	}
	if t, ok := mem.Find[mem.Trimmer](g.alloc); ok {
		return t.EmptyCache()
	}
	return nil
}

// CacheInfo returns the bytes that are cached and free, and the size of the largest request that the device could
// serve.
func (p *Process) CacheInfo(ordinal int) (cached, largest int64, err error) {
	g, err := p.gpu(ordinal)
	if err != nil {
		return 0, 0, err
	}
	return raw.CacheInfo(g.dev)
}

// Stats are the statistics of a device.
type Stats struct {
	mem.Stats
	Limit  int64 // of reserved bytes; 0 is none
	Stalls int64 // how many allocations waited for the device; -1 if the backend does not count them
}

// Stats returns the statistics of a device. They are zero if the device was not used.
func (p *Process) Stats(ordinal int) (s Stats, err error) {
	if uint(ordinal) < uint(len(p.gpus)) {
		s.Limit, s.Stalls = p.gpus[ordinal].limit.Load(), -1
	}
	g, err := p.used(ordinal)
	if g == nil {
		return s, err
	}
	if a, ok := mem.Find[*paged.Allocator](g.alloc); ok {
		s.Stalls = a.PageStats().Stalls
	}
	s.Stats, err = raw.Stats(g.dev)
	return s, err
}

// ResetPeakStats sets every peak of a device to the current value.
func (p *Process) ResetPeakStats(ordinal int) (err error) {
	g, err := p.used(ordinal)
	if g == nil {
		return err
	}
	return raw.ResetPeakStats(g.dev)
}

// ResetAccumulatedStats sets the accumulated counters of a device to zero.
func (p *Process) ResetAccumulatedStats(ordinal int) (err error) {
	g, err := p.used(ordinal)
	if g == nil {
		return err
	}
	return raw.ResetAccumulatedStats(g.dev)
}

// A Segment is a range of addresses that is backed by memory.
type Segment struct {
	mem.SegmentInfo
	Handle uintptr // of its stream
}

// Snapshot returns the segments of a device, in the order of addresses, without those that are paused: they have no
// memory.
func (p *Process) Snapshot(ordinal int) (all []Segment, err error) {
	g, err := p.used(ordinal)
	if g == nil {
		return nil, err
	}
	segments, err := raw.Snapshot(g.dev)
	for _, s := range segments {
		if !s.Paused {
			all = append(all, Segment{s, g.handleOf(s.Stream)})
		}
	}
	return all, err
}

// An Event is one action of a device's allocator.
type Event struct {
	mem.Event
	Device int     // ordinal
	Handle uintptr // of its stream
}

// Observe calls fn for every later event of all devices, in place of the previous function; nil stops reporting. fn
// runs on the thread that caused the event, with the allocator locked: it must not call the Process.
func (p *Process) Observe(fn func(Event)) (err error) {
	p.mu.Lock()
	p.observer = fn
	p.mu.Unlock()
	var errs []error
	for i := range p.gpus {
		errs = append(errs, p.gpus[i].observeIfReady())
	}
	return errors.Join(errs...)
}

// observeIfReady is observe for a device that is open. A device that is being opened is waited for: it may have passed
// on the previous observer.
func (g *gpu) observeIfReady() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ready.Load() {
		return nil
	}
	return g.observe()
}

// observe passes the process's observer to the allocator. The caller holds g.mu.
func (g *gpu) observe() error {
	g.process.mu.Lock()
	fn := g.process.observer
	g.process.mu.Unlock()
	o, ok := mem.Find[mem.Observable](g.alloc)
	switch {
	case !ok && fn == nil:
		return nil
	case !ok:
		return fmt.Errorf("ashlar: the backend %s reports no events: %w", g.process.settings.backend,
			driver.ErrUnsupported)
	case fn == nil:
		o.Observe(nil)
	default:
		o.Observe(func(e mem.Event) { fn(Event{e, g.ordinal, g.handleOf(e.Stream)}) })
	}
	return nil
}

// used returns a device if it is open. For a device that was not used, it returns nil without an error.
func (p *Process) used(ordinal int) (*gpu, error) {
	if uint(ordinal) < uint(len(p.gpus)) && !p.gpus[ordinal].ready.Load() {
		return nil, nil
	}
	return p.gpu(ordinal)
}
