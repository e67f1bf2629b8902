package replay

import (
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/replay/verify"
)

// metered wraps a real device. It counts and times the memory calls, and counts stalls: waits for unfinished work.
// Pinned, Timing, Peers and Sharing are nil: no allocator here uses them.
//
// Before a wait, a mark of the stream (of all streams for Free) tells whether the wait is a stall. On a GPU a mark may
// not be reached yet although the work has just ended.
type metered struct {
	*intercept.Device
	now func() time.Time // nil: times are not known

	mu      sync.Mutex // a leaf
	use     verify.DriverUse
	streams []driver.Stream // the device's own
}

func newMetered(dev driver.Device, now func() time.Time) *metered {
	m := &metered{now: now, streams: []driver.Stream{dev.DefaultStream()}}
	m.Device = intercept.Wrap(dev, m.call)
	return m
}

// plainDevice returns the device inside a metered one, where calls are not counted, or otherwise dev itself.
func plainDevice(dev driver.Device) driver.Device {
	if m, ok := dev.(*metered); ok {
		return m.Unwrap()
	}
	return dev
}

// used returns the use of the device so far.
func (m *metered) used() verify.DriverUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.use
	if m.now == nil {
		u.DriverTime = -1
	}
	return u
}

// call counts and times calls for memory, and counts stalls.
func (m *metered) call(c intercept.Call, next func() error) error {
	switch c.Kind {
	case intercept.Sync:
		m.countStall(c.Stream)
		return next()
	case intercept.Free:
		m.mu.Lock()
		streams := m.streams // append-only
		m.mu.Unlock()
		m.countStall(streams...)
	case intercept.Alloc, intercept.Reserve, intercept.Release, intercept.Create, intercept.Drop, intercept.Map,
		intercept.Unmap:
	default:
		return next()
	}
	m.mu.Lock()
	m.use.DriverCalls++
	m.mu.Unlock()
	if m.now == nil {
		return next()
	}
	start := m.now()
	err := next()
	took := m.now().Sub(start)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use.DriverTime += took
	return err
}

// countStall counts a stall if one of the streams has unfinished work.
func (m *metered) countStall(streams ...driver.Stream) {
	for _, s := range streams {
		mark, err := s.Mark()
		if err != nil {
			continue // closed: its work is done
		}
		if done, err := s.Reached(mark); err == nil && !done {
			m.mu.Lock()
			m.use.Stalls++
			m.mu.Unlock()
			return
		}
	}
}

func (m *metered) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	s, err := m.Device.NewStream(o)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams = append(m.streams, m.UnwrapStream(s))
	return s, nil
}

func (m *metered) Pinned() driver.Pinned   { return nil }
func (m *metered) Timing() driver.Timing   { return nil }
func (m *metered) Peers() driver.Peers     { return nil }
func (m *metered) Sharing() driver.Sharing { return nil }
