package dropin

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
)

// externalUses are the blocks that external streams use. Allocators keep the streams of freed blocks and ask them later
// how far they are; an external stream may be gone by then. So at the free of such a block, a stream of ours waits for
// the external one, and stands for it from then on.
type externalUses struct {
	any atomic.Int64 // blocks, so that Free of a program that uses no such streams takes no lock

	mu      sync.Mutex
	streams map[driver.Pointer][]uintptr // handles
	proxies map[driver.Device]driver.Stream
}

// add notes that an external stream uses the block at an address.
func (x *externalUses) add(at driver.Pointer, handle uintptr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.streams == nil {
		x.streams = map[driver.Pointer][]uintptr{}
	}
	if !slices.Contains(x.streams[at], handle) {
		x.streams[at] = append(x.streams[at], handle)
	}
	x.any.Store(int64(len(x.streams)))
}

// take returns the streams that the block's free has to wait for, besides those that its allocator knows.
func (x *externalUses) take(p *Process, at driver.Pointer) []driver.Stream {
	if x.any.Load() == 0 {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	handles := x.streams[at]
	if handles == nil {
		return nil
	}
	delete(x.streams, at)
	x.any.Store(int64(len(x.streams)))
	_, g, err := p.holding(at)
	if err != nil {
		return nil
	}
	var used []driver.Stream
	for _, handle := range handles {
		used = append(used, x.proxy(g, handle)...)
	}
	return used
}

// proxy makes a stream of ours wait for the work of an external stream, and returns it.
func (x *externalUses) proxy(g *gpu, handle uintptr) []driver.Stream {
	external, err := g.stream(handle)
	if err != nil {
		return nil // the handle is no stream of the device any more, so its work is done
	}
	stand, ok := x.proxies[g.dev]
	if !ok {
		if stand, err = g.dev.NewStream(driver.StreamOptions{}); err != nil {
			return []driver.Stream{external}
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
	if err != nil { // it captures, say: the allocator waits for it as for any other
		return []driver.Stream{external}
	}
	return []driver.Stream{stand}
}
