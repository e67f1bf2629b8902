package layer

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Fetch queues on s the work that brings size bytes at p close to where work on s will use them, such as
// cuMemPrefetchAsync of managed memory. Many goroutines may call it at once.
type Fetch func(s driver.Stream, p driver.Pointer, size int64) error

// A Prefetcher prefetches memory before it is first used. See NewPrefetcher.
type Prefetcher struct {
	Pass
	fetch Fetch

	mu     sync.Mutex
	failed int64
	last   error
}

// NewPrefetcher returns an allocator that calls fetch for each block of a before it returns it. So pages are moved
// together, in stream order, and not one by one as the first kernel faults on them. It is RMM's
// prefetch_resource_adaptor. A nil fetch queues a Fill, which touches every page. That suits host memory.
//
// An error of fetch does not fail the request: see Failed.
func NewPrefetcher(a mem.Allocator, fetch Fetch) *Prefetcher {
	if fetch == nil {
		fetch = func(s driver.Stream, p driver.Pointer, size int64) error { return s.Fill(p, 0, size) }
	}
	return &Prefetcher{Pass: Pass{a}, fetch: fetch}
}

// Alloc implements mem.Allocator. The error is that of the allocator below.
func (p *Prefetcher) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return p.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (p *Prefetcher) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(p.Below, s, size, o)
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

// Failed returns the number of fetches that failed, and the last error.
func (p *Prefetcher) Failed() (n int64, last error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed, p.last
}
