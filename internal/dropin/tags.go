package dropin

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// A Tag is the number of a name for memory that can be paused by itself: from 1. The zero Tag is memory without one.
type Tag int32

// tagNames are the names of a process's tags.
type tagNames struct {
	mu    sync.Mutex
	known map[string]Tag
}

// Tag returns the tag with a name, which it makes if necessary. The name must not be empty.
func (p *Process) Tag(name string) (Tag, error) {
	if name == "" {
		return 0, fmt.Errorf("%w: a tag without a name", ErrInvalid)
	}
	p.tags.mu.Lock()
	defer p.tags.mu.Unlock()
	t, ok := p.tags.known[name]
	if !ok {
		if p.tags.known == nil {
			p.tags.known = map[string]Tag{}
		}
		t = Tag(len(p.tags.known) + 1)
		p.tags.known[name] = t
	}
	return t, nil
}

// find returns the tag with a name, 0 for an empty one. The error matches ErrInvalid if there is none.
func (x *tagNames) find(name string) (Tag, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t, ok := x.known[name]
	if !ok && name != "" {
		return 0, fmt.Errorf("%w: no memory was ever allocated with the tag %q", ErrInvalid, name)
	}
	return t, nil
}

// tagPools are the pools of a device, by tag. The pages of a pool have blocks of its tag alone.
type tagPools struct {
	mu    sync.Mutex
	byTag map[Tag]*paged.Pool
}

// pool returns the pool of a tag, or nil if it has none.
func (x *tagPools) pool(t Tag) *paged.Pool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byTag[t]
}

// all returns all pools.
func (x *tagPools) all() (all []*paged.Pool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, pool := range x.byTag {
		all = append(all, pool)
	}
	return all
}

// open returns the pool of a tag, which it makes if necessary.
func (x *tagPools) open(g *gpu, t Tag) (*paged.Pool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pool := x.byTag[t]; pool != nil {
		return pool, nil
	}
	a, err := g.paged("a tag")
	if err != nil {
		return nil, err
	}
	if x.byTag == nil {
		x.byTag = map[Tag]*paged.Pool{}
	}
	x.byTag[t] = a.NewPool(paged.PoolOptions{ID: poolID(t)})
	return x.byTag[t], nil
}

// poolID returns the ID of a tag's pools. A program's pool has another: one half of PyTorch's IDs is 0.
func poolID(t Tag) mem.PoolID { return mem.PoolID{1, uint64(t)} }

// close closes all pools.
func (x *tagPools) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, pool := range x.byTag {
		errs = append(errs, pool.Close())
	}
	return errors.Join(errs...)
}

// paged returns the allocator of a device, if it is mem/paged: alone it has what a call needs.
func (g *gpu) paged(what string) (*paged.Allocator, error) {
	if a, ok := mem.Find[*paged.Allocator](g.alloc); ok {
		return a, nil
	}
	return nil, fmt.Errorf("ashlar: %s needs the backend paged, not %s: %w", what, g.process.settings.backend,
		driver.ErrUnsupported)
}

// freeCachedTags frees the cached memory of all tags, for a request that found no room. It reports whether there was
// any.
func (g *gpu) freeCachedTags() bool {
	var before, after int64
	for _, pool := range g.tagged.all() {
		before += pool.Reserved().All.Current
		if pool.EmptyCache() != nil {
			return false
		}
		after += pool.Reserved().All.Current
	}
	return after < before
}

// AllocTagged is Alloc of memory that belongs to a tag.
func (p *Process) AllocTagged(ordinal int, stream uintptr, size uint64, t Tag) (at driver.Pointer, err error) {
	g, s, err := p.place(ordinal, stream, size)
	if s == nil {
		return 0, err
	}
	pool, err := g.tagged.open(g, t)
	if err != nil {
		return 0, err
	}
	at, err = raw.AllocFrom(g.dev, pool, s, int64(size))
	if errors.Is(err, mem.ErrNoMemory) && g.freeCachedTags() {
		at, err = raw.AllocFrom(g.dev, pool, s, int64(size))
	}
	return at, invalidIfPaused(err)
}
