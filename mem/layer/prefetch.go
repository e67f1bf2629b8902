package layer

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Fetch queues on s what brings size bytes at p to where work on s will use them: cuMemPrefetchAsync of managed
// memory, say. It is called by many goroutines at once.
type Fetch func(s driver.Stream, p driver.Pointer, size int64) error

// A Prefetcher brings memory near before it is first used. See Prefetch.
type Prefetcher struct {
	Pass
	fetch Fetch

	mu     sync.Mutex
	failed int64
	last   error
}

// Prefetch returns an allocator that calls fetch for each block of a before it is allocated, so that pages come in
// together, in stream order, and not one by one as the first kernel faults on them. It is RMM's
// prefetch_resource_adaptor. A nil fetch queues a Fill, which touches every page: right for memory of the host.
//
// Fetching is advice. What it returns does not fail the request: see Failed. A call costs what fetch costs.
func NewPrefetcher(a mem.Allocator, fetch Fetch) *Prefetcher {
	if fetch == nil {
		fetch = func(s driver.Stream, p driver.Pointer, size int64) error { return s.Fill(p, 0, size) }
	}
	return &Prefetcher{Pass: Pass{a}, fetch: fetch}
}

// Alloc implements mem.Allocator. The error is that of the layer below.
func (p *Prefetcher) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := p.Below.Alloc(s, size)
	return p.prefetch(s, b, err)
}

// AllocWith implements mem.OptionsAllocator.
func (p *Prefetcher) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(p.Below, s, size, o)
	return p.prefetch(s, b, err)
}

func (p *Prefetcher) prefetch(s driver.Stream, b mem.Block, err error) (mem.Block, error) {
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	if err := p.fetch(s, b.Ptr, b.Size); err != nil {
		p.mu.Lock()
		p.failed++
		p.last = err
		p.mu.Unlock()
	}
	return b, nil
}

// Failed returns how many fetches have failed, and how the last of those did.
func (p *Prefetcher) Failed() (n int64, last error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed, p.last
}
