package engine

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// caches is the layer directly above a device's allocator and below DeviceConfig.Wrap, so that wrappers also see
// requests that caches serve. A request goes to the cache that its stream's session uses, if any; a free goes to the
// cache whose addresses include the block.
//
// Locks: mu is taken before those of the allocators below. Requests and frees take no lock of the layer.
type caches struct {
	below     mem.Allocator
	memory    driver.Device     // from which below allocates
	allocator *sessionAllocator // knows the cache that a stream's requests go to
	events    *cacheEvents      // nil if below reports no events

	mu    sync.Mutex
	list  atomic.Pointer[[]*cache] // by address; replaced, not changed
	holds []*Hold
}

// A cache is a part of a device's memory reserved for one session.
type cache struct {
	*arena.Arena
	caches    *caches
	owner     *Session
	from, to  driver.Pointer // its addresses
	live      atomic.Int64   // live blocks and running requests
	abandoned atomic.Bool    // freed with its last block
}

// newCaches returns the layer, also as an allocator that has Snapshot and Observe if below has them.
func newCaches(below mem.Allocator, memory driver.Device, l *sessionAllocator) (*caches, mem.Allocator) {
	c := &caches{below: below, memory: memory, allocator: l}
	c.list.Store(new([]*cache))
	described, ok := mem.Find[mem.Snapshotter](below)
	if !ok {
		return c, c
	}
	d := &describedCaches{c, described}
	source, ok := mem.Find[mem.Observable](below)
	if !ok {
		return c, d
	}
	c.events = newCacheEvents(source)
	return c, &observedCaches{d}
}

// Alloc implements mem.Allocator.
func (c *caches) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if k := c.inUse(s); k != nil {
		return k.alloc(s, size, mem.AllocOptions{})
	}
	return c.below.Alloc(s, size)
}

// AllocWith implements mem.OptionsAllocator.
func (c *caches) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if k := c.inUse(s); k != nil {
		return k.alloc(s, size, o)
	}
	return mem.AllocWith(c.below, s, size, o)
}

// inUse returns the cache that a stream's requests go to, or nil.
func (c *caches) inUse(s driver.Stream) *cache {
	if d := c.allocator.stream(s.ID()).routeFor(s); d != nil {
		return d.cache
	}
	return nil
}

// Free implements mem.Allocator.
func (c *caches) Free(b mem.Block, used ...driver.Stream) {
	if k := c.at(b.Ptr); k != nil {
		k.free(b, used)
		return
	}
	c.below.Free(b, used...)
}

// Movable implements mem.Mover.
func (c *caches) Movable(b mem.Block, h mem.Holder) bool {
	if k := c.at(b.Ptr); k != nil {
		return k.Movable(b, c.events.observeMoves(b, h))
	}
	return mem.Movable(c.below, b, h)
}

// Unwrap implements mem.Wrapper.
func (c *caches) Unwrap() mem.Allocator { return c.below }

// at returns the cache whose addresses include p, or nil.
func (c *caches) at(p driver.Pointer) *cache {
	list := *c.list.Load()
	i, found := slices.BinarySearchFunc(list, p, func(k *cache, p driver.Pointer) int { return cmp.Compare(k.from, p) })
	if !found {
		i--
	}
	if i < 0 || p >= list[i].to {
		return nil
	}
	return list[i]
}

// reserve makes a cache for a session, on its stream.
func (c *caches) reserve(s *Session, stream driver.Stream, size int64) (*cache, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.newArena(stream, size)
	if err != nil {
		return nil, err
	}
	k := &cache{Arena: a, caches: c, owner: s, from: a.Base()}
	k.to = k.from + driver.Pointer(a.Size())
	for _, h := range c.holds {
		h.add(k)
	}
	list := append(slices.Clone(*c.list.Load()), k)
	slices.SortFunc(list, func(a, b *cache) int { return cmp.Compare(a.from, b.from) })
	c.list.Store(&list)
	return k, nil
}

// newArena allocates the memory of a cache: a child of an arena, or a block of any other allocator or of a tenant.
func (c *caches) newArena(stream driver.Stream, size int64) (*arena.Arena, error) {
	from := c.below
	if r, ok := from.(*layer.TenantRouter); ok {
		from = r.Tenant(stream)
	} else if a, ok := mem.Find[*arena.Arena](from); ok {
		return a.Child(size)
	}
	defer c.events.excludeReserved()()
	return arena.NewFrom(from, c.memory, stream, arena.Config{Size: (size + cacheUnit - 1) / cacheUnit * cacheUnit})
}

const cacheUnit = 512 // sizes of caches are multiples of this many bytes, like an arena's blocks

// alloc serves a request.
func (k *cache) alloc(s driver.Stream, size int64, o mem.AllocOptions) (b mem.Block, err error) {
	k.live.Add(1)
	defer func() {
		if b.Ptr == 0 { // no memory, a size of 0, or a panic for a bug of the caller
			k.removeBlock()
		}
	}()
	b, err = k.AllocWith(s, size, o)
	k.caches.events.allocated(s, size, b, err)
	return b, err
}

func (k *cache) free(b mem.Block, used []driver.Stream) {
	for _, s := range used {
		_ = s.ID() // a nil stream panics here, before observers are called
	}
	k.caches.events.freed(b)
	k.Free(b, used...)
	k.removeBlock()
}

// removeBlock counts one block less, and frees an abandoned cache with its last block.
func (k *cache) removeBlock() {
	if k.live.Add(-1) == 0 && k.abandoned.Load() {
		_ = k.caches.release(k) // what the device does not take back stays for the engine's Close
	}
}

// abandon frees a cache as soon as it has no live block. No stream is routed to it any more.
func (k *cache) abandon() error {
	k.abandoned.Store(true)
	if k.live.Load() > 0 {
		return nil
	}
	return k.caches.release(k)
}

// release frees a cache's memory. It is an error if the cache has live blocks.
func (c *caches) release(k *cache) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.list.Load()
	i := slices.Index(*before, k)
	if i < 0 {
		return nil
	}
	if n := k.live.Load(); n > 0 {
		return fmt.Errorf("a cache of %s has %d live blocks, of %d bytes in all",
			bytesize.Format(k.Size()), n, k.Stats().AllocatedBytes.All.Current)
	}
	list := slices.Delete(slices.Clone(*before), i, i+1)
	c.list.Store(&list) // before Close: then the allocator below may reuse the addresses
	if err := k.Close(); err != nil {
		c.list.Store(before)
		return fmt.Errorf("a cache of %s: %w", bytesize.Format(k.Size()), err)
	}
	return nil
}

// all returns all caches.
func (c *caches) all() []*cache { return *c.list.Load() }

// describedCaches are caches over an allocator with a Snapshot: theirs has the blocks in each cache in place of the
// block that the cache is.
type describedCaches struct {
	*caches
	below mem.Snapshotter
}

// Snapshot implements mem.Snapshotter. Statistics count a cache as one block all the same.
func (d *describedCaches) Snapshot() []mem.SegmentInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	segments := d.below.Snapshot()
	for _, k := range d.all() {
		for i := range segments {
			if s := &segments[i]; k.from >= s.Ptr && k.from < s.Ptr+driver.Pointer(s.TotalSize) {
				k.describe(s)
			}
		}
	}
	return segments
}

// describe replaces the block that the cache is by the blocks in the cache.
func (k *cache) describe(s *mem.SegmentInfo) {
	at := slices.IndexFunc(s.Blocks, func(b mem.BlockInfo) bool { return k.from < b.Ptr+driver.Pointer(b.Size) })
	if at < 0 || s.Blocks[at].State == mem.Inactive {
		return
	}
	own := s.Blocks[at]
	inside := k.Snapshot()[0]
	var blocks []mem.BlockInfo
	if pad := int64(k.from - own.Ptr); pad > 0 {
		blocks = append(blocks, mem.BlockInfo{Ptr: own.Ptr, Size: pad})
	}
	blocks = append(blocks, inside.Blocks...)
	if pad := int64(own.Ptr) + own.Size - int64(k.to); pad > 0 {
		blocks = append(blocks, mem.BlockInfo{Ptr: k.to, Size: pad})
	}
	s.Blocks = slices.Replace(slices.Clone(s.Blocks), at, at+1, blocks...)
	s.AllocatedSize += inside.AllocatedSize - own.Size
	s.ActiveSize += inside.ActiveSize - own.Size
	s.RequestedSize += inside.RequestedSize - own.RequestedSize
}
