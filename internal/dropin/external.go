package dropin

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// externalUses are the blocks that external streams use. An allocator keeps the streams of a freed block and queries
// their progress later, when an external stream may have been destroyed. So when such a block is freed, a proxy stream
// that Ashlar owns waits for the external stream, and the allocator gets the proxy in its place.
type externalUses struct {
	any atomic.Int64 // number of such blocks; while it is 0, Free takes no lock

	mu      sync.Mutex
	known   map[externalStream]driver.Stream
	streams map[driver.Pointer][]driver.Stream
	proxies map[driver.Device]driver.Stream
}

// An externalStream names a stream that its owner may destroy. So it is not among gpu.streams, which Pause waits for.
type externalStream struct {
	dev    driver.Device
	handle uintptr
}

// add notes that the external stream with a handle uses the block at an address of a device.
func (x *externalUses) add(g *gpu, at driver.Pointer, handle uintptr) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, err := x.stream(g, handle)
	if err != nil {
		return err
	}
	if x.streams == nil {
		x.streams = map[driver.Pointer][]driver.Stream{}
	}
	if !slices.Contains(x.streams[at], s) {
		x.streams[at] = append(x.streams[at], s)
	}
	x.any.Store(int64(len(x.streams)))
	return nil
}

// stream returns the external stream with a handle. The caller holds mu.
func (x *externalUses) stream(g *gpu, handle uintptr) (driver.Stream, error) {
	if s := g.known(handle); s != nil {
		return s, nil
	}
	name := externalStream{g.dev, handle}
	s := x.known[name]
	if s != nil {
		return s, nil
	}
	s, err := g.newStream(handle)
	if err != nil {
		return nil, err
	}
	if x.known == nil {
		x.known = map[externalStream]driver.Stream{}
	}
	x.known[name] = s
	return s, nil
}

// take removes the external uses of a block that is being freed. It returns the streams that its allocator must wait
// for besides those that it knows.
func (x *externalUses) take(p *Process, at driver.Pointer) []driver.Stream {
	if x.any.Load() == 0 {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	external := x.streams[at]
	if external == nil {
		return nil
	}
	delete(x.streams, at)
	x.any.Store(int64(len(x.streams)))
	_, g, err := p.holding(at)
	if err != nil {
		return nil
	}
	used := make([]driver.Stream, len(external))
	for i, s := range external {
		used[i] = x.proxy(g, s)
	}
	return used
}

// restored forgets the blocks that a Restore freed.
func (x *externalUses) restored(freed []mem.Block) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range freed {
		delete(x.streams, b.Ptr)
	}
	x.any.Store(int64(len(x.streams)))
}

// proxy makes the device's proxy stream wait for the work of an external stream, and returns the proxy. If that fails,
// for example because the external stream captures, it returns the external stream: the allocator waits for that one as
// for any other.
func (x *externalUses) proxy(g *gpu, external driver.Stream) driver.Stream {
	stand, ok := x.proxies[g.dev]
	if !ok {
		var err error
		if stand, err = g.dev.NewStream(driver.StreamOptions{}); err != nil {
			return external
		}
		if x.proxies == nil {
			x.proxies = map[driver.Device]driver.Stream{}
		}
		x.proxies[g.dev] = stand
	}
	m, err := external.Mark()
	if err == nil {
		err = stand.WaitFor(external, m)
	}
	if err != nil {
		return external
	}
	return stand
}
