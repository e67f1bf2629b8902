package replay

import (
	"context"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/replay/verify"
)

// A metered is a real device that counts and times the calls for memory. It wraps its streams, and unwraps those that
// the device is given. Abilities with streams that no allocator uses here are hidden: Pinned, Timing, Peers and
// Sharing.
//
// A wait is a stall if, just before it, a mark of the stream (of all streams for Free) is not reached. On a GPU this
// may include work that has just ended.
type metered struct {
	driver.Device
	now      func() time.Time // nil: times are not known
	standard driver.Stream

	mu      sync.Mutex // a leaf
	use     verify.DriverUse
	streams []meteredStream
}

func newMetered(dev driver.Device, now func() time.Time) *metered {
	m := &metered{Device: dev, now: now}
	m.standard = m.wrap(dev.DefaultStream())
	return m
}

// plainDevice is the device under the meter, if there is one: what is asked of it is not counted.
func plainDevice(dev driver.Device) driver.Device {
	if m, ok := dev.(*metered); ok {
		return m.Device
	}
	return dev
}

func (m *metered) wrap(s driver.Stream) driver.Stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams = append(m.streams, meteredStream{s, m})
	return m.streams[len(m.streams)-1]
}

// used is what was asked of the device so far.
func (m *metered) used() verify.DriverUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.use
	if m.now == nil {
		u.DriverTime = -1
	}
	return u
}

// call counts a call for memory, which ends when what it returns is called.
func (m *metered) call() (end func()) {
	m.mu.Lock()
	m.use.DriverCalls++
	m.mu.Unlock()
	if m.now == nil {
		return func() {}
	}
	start := m.now()
	return func() {
		took := m.now().Sub(start)
		m.mu.Lock()
		m.use.DriverTime += took
		m.mu.Unlock()
	}
}

// waits counts a stall if one of the streams has work that is not done.
func (m *metered) waits(streams ...meteredStream) {
	for _, s := range streams {
		mark, err := s.Stream.Mark()
		if err != nil {
			continue // closed: its work is done
		}
		if done, err := s.Stream.Reached(mark); err == nil && !done {
			m.mu.Lock()
			m.use.Stalls++
			m.mu.Unlock()
			return
		}
	}
}

func (m *metered) Alloc(size int64) (driver.Pointer, error) {
	defer m.call()()
	return m.Device.Alloc(size)
}

func (m *metered) Free(p driver.Pointer) error {
	m.mu.Lock()
	streams := m.streams // only ever appended to
	m.mu.Unlock()
	m.waits(streams...)
	defer m.call()()
	return m.Device.Free(p)
}

func (m *metered) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	s, err := m.Device.NewStream(o)
	if err != nil {
		return nil, err
	}
	return m.wrap(s), nil
}

func (m *metered) DefaultStream() driver.Stream { return m.standard }

func (m *metered) VirtualMemory() driver.VirtualMemory {
	if vm := m.Device.VirtualMemory(); vm != nil {
		return meteredMemory{m, vm}
	}
	return nil
}

func (m *metered) Kernels() driver.Kernels {
	if k := m.Device.Kernels(); k != nil {
		return meteredKernels{k}
	}
	return nil
}

func (m *metered) Graphs() driver.Graphs {
	if g := m.Device.Graphs(); g != nil {
		return meteredGraphs{g}
	}
	return nil
}

func (m *metered) Pinned() driver.Pinned   { return nil }
func (m *metered) Timing() driver.Timing   { return nil }
func (m *metered) Peers() driver.Peers     { return nil }
func (m *metered) Sharing() driver.Sharing { return nil }

// A meteredStream is comparable: two of one stream are equal.
type meteredStream struct {
	driver.Stream
	m *metered
}

// plainStream is the device's own stream.
func plainStream(s driver.Stream) driver.Stream {
	if own, ok := s.(meteredStream); ok {
		return own.Stream
	}
	return s
}

func (s meteredStream) WaitFor(other driver.Stream, mark driver.Mark) error {
	return s.Stream.WaitFor(plainStream(other), mark)
}

func (s meteredStream) Sync(ctx context.Context) error {
	s.m.waits(s)
	return s.Stream.Sync(ctx)
}

type meteredMemory struct {
	m     *metered
	inner driver.VirtualMemory
}

func (v meteredMemory) Reserve(size int64) (driver.Pointer, error) {
	defer v.m.call()()
	return v.inner.Reserve(size)
}

func (v meteredMemory) Release(p driver.Pointer, size int64) error {
	defer v.m.call()()
	return v.inner.Release(p, size)
}

func (v meteredMemory) Create(size int64) (driver.Page, error) {
	defer v.m.call()()
	return v.inner.Create(size)
}

func (v meteredMemory) Drop(page driver.Page) error {
	defer v.m.call()()
	return v.inner.Drop(page)
}

func (v meteredMemory) Map(p driver.Pointer, pages ...driver.Page) error {
	defer v.m.call()()
	return v.inner.Map(p, pages...)
}

func (v meteredMemory) Unmap(p driver.Pointer, size int64) error {
	defer v.m.call()()
	return v.inner.Unmap(p, size)
}

type meteredKernels struct{ driver.Kernels }

func (k meteredKernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	return k.Kernels.Launch(plainStream(s), kernel)
}

type meteredGraphs struct{ driver.Graphs }

func (g meteredGraphs) Begin(s driver.Stream) error { return g.Graphs.Begin(plainStream(s)) }

func (g meteredGraphs) End(s driver.Stream) (driver.Graph, error) {
	graph, err := g.Graphs.End(plainStream(s))
	if err != nil {
		return nil, err
	}
	return meteredGraph{graph}, nil
}

func (g meteredGraphs) Capturing(s driver.Stream) (bool, error) {
	return g.Graphs.Capturing(plainStream(s))
}

func (g meteredGraphs) Ordered(other driver.Stream, m driver.Mark, s driver.Stream) (bool, error) {
	return g.Graphs.Ordered(plainStream(other), m, plainStream(s))
}

type meteredGraph struct{ driver.Graph }

func (g meteredGraph) Launch(s driver.Stream) error { return g.Graph.Launch(plainStream(s)) }
