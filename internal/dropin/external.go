package dropin

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
)

// externalUses are the blocks that external streams use. An allocator keeps the streams of a freed block and queries
// their progress later, when an external stream may have been destroyed. So when such a block is freed, a proxy stream
// that Ashlar owns waits for the external stream, and the allocator gets the proxy in its place.
type externalUses struct {
	any atomic.Int64 // number of such blocks; while it is 0, Free takes no lock

	mu      sync.Mutex
	streams map[driver.Pointer][]driver.Stream
	proxies map[driver.Device]driver.Stream
}

// add notes that an external stream uses the block at an address.
func (x *externalUses) add(at driver.Pointer, s driver.Stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.streams == nil {
		x.streams = map[driver.Pointer][]driver.Stream{}
	}
	if !slices.Contains(x.streams[at], s) {
		x.streams[at] = append(x.streams[at], s)
	}
	x.any.Store(int64(len(x.streams)))
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
