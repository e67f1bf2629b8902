// Package magazine adds per-processor caches of freed blocks to any allocator, so that many goroutines can allocate on
// one stream without contending for one lock.
//
//	a = magazine.New(a, magazine.Options{})
//	b, err := a.Alloc(stream, size)
//	a.Free(b)
//
// A Cache is safe for concurrent use. Requests of up to Options.MaxSize bytes are served from the caches; larger ones
// go to the allocator below. Cached blocks are live to the allocator below; mem.Find on a Cache finds statistics and a
// snapshot that count them as inactive. The address of a block depends on the scheduler. Call Flush before a stream is
// closed; otherwise its cached blocks serve the next stream with the same ID. A Cache is not a mem.Mover: the allocator
// below does not move blocks that were allocated through it.
package magazine

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
	"github.com/ashlar-go/ashlar/mem/internal/zeroed"
)

// # Structure
//
// The design is Bonwick's (Magazines and Vmem, USENIX 2001). A Cache has a processorCache for each processor; that has
// a streamCache for each stream; and that has a classCache for each size class: the size of a request in units of 512
// bytes. A classCache is two magazines, stacks of blocks: Alloc takes from the top one and Free adds to it; the other
// is full or absent. When both are full, the second goes to the stream's depot, which all processors share; when both
// are empty, one comes from the depot. So a goroutine that only allocates and another that only frees take the depot's
// lock once per magazine.
//
// Each block has a blockEntry, found from its tag: the block of the allocator below, the requested size, and a
// generation, which is odd while the block is live. A block is
//
//	live      allocated
//	cached    in a magazine; live to the allocator below
//	evicted   on its way to the allocator below, in no magazine
//
// A block serves requests of its own size class only, so it wastes at most 511 bytes in addition to the waste of the
// allocator below. A block that other streams use is freed below at once.
//
// # Bounds
//
// Half of the limits in Options is divided among the processors, and the depots have the other half. A streamCache,
// processorCache or depot that would exceed its limit returns all its blocks to the allocator below. If the allocator
// below has no room, all cached blocks are returned and the request is repeated.
//
// # Locks
//
// A warm Alloc or Free takes the lock of its processorCache. Another processor takes that lock only if a goroutine
// moved in the middle of a call, or to return blocks. The number of the processor is a hint: a wrong one costs time
// only.
//
// Order: Cache.flushing; Cache.returning; processorCaches in their order; Cache.depotsMu; one depot; the block table.
// Only the first two are held while the allocator below allocates or frees, returning for reading. Reports hold all of
// them but flushing while they ask it.

// A Cache caches freed blocks of another allocator. It is safe for concurrent use.
type Cache struct {
	below      mem.Allocator
	report     mem.Allocator // the allocator below, with statistics and a snapshot that account for cached blocks
	opts       Options
	limits     limits
	processors []processorCache // a power of two

	blocks blockTable // its first field is the last one that a warm call reads

	flushing sync.Mutex // held while all cached blocks are returned

	returning sync.RWMutex   // held for reading while blocks are returned to the allocator below
	returned  returnedCounts // blocks that were cached and have been returned to the allocator below

	depotsMu  sync.Mutex   // guards depots
	depots    []*depot     // by stream
	room      atomic.Int64 // bytes that all depots may still take
	suspended int          // under every lock
	base      counts       // when accumulated statistics were reset; under every lock
}

// Options limit the size of a Cache. The zero value has the defaults. Negative values panic.
type Options struct {
	// MaxSize is the largest request, in bytes, that is served from magazines. Larger requests go to the allocator
	// below. 0 means 1 MiB, the largest small block of mem/caching; the maximum is 8 MiB.
	MaxSize int64
	// Stream is the maximum of bytes cached for one stream. 0 means 256 MiB.
	Stream int64
	// Total is the maximum of all cached bytes. 0 means 1 GiB.
	Total int64
}

const (
	unit       = 512
	maxMaxSize = 8 << 20 // less than any oversize request of mem/caching
	smallSize  = 1 << 20 // blocks up to it count as small in statistics
)

// limits holds the maximum bytes of one cache of each kind.
type limits struct{ stream, processor, depot int64 }

// New returns a cache over an allocator, with magazines for the current number of processors (GOMAXPROCS). Blocks that
// were allocated from below directly must be freed there. Invalid options and a layer.Zeroer below panic.
func New(below mem.Allocator, opts Options) *Cache {
	for _, o := range []struct {
		n        *int64
		whenZero int64
	}{{&opts.MaxSize, smallSize}, {&opts.Stream, 256 << 20}, {&opts.Total, 1 << 30}} {
		if *o.n == 0 {
			*o.n = o.whenZero
		}
	}
	if opts.MaxSize < 0 || opts.MaxSize > maxMaxSize || opts.Stream < 0 || opts.Total < 0 {
		panic(fmt.Sprintf("magazine: New with %+v: want no negative sizes, and MaxSize up to 8 MiB", opts))
	}
	if _, zeroes := mem.Find[zeroed.By](below); zeroes {
		panic(fmt.Sprint("magazine: New: ", zeroed.Err))
	}
	n := int64(1) << bits.Len(uint(runtime.GOMAXPROCS(0)-1))
	c := &Cache{
		below: below, opts: opts, processors: make([]processorCache, n),
		limits: limits{stream: opts.Stream / 2 / n, processor: opts.Total / 2 / n, depot: opts.Stream / 2},
	}
	c.report = c.reporting()
	c.blocks.init()
	c.room.Store(opts.Total / 2)
	for i := range c.processors {
		c.processors[i].room = c.limits.processor
	}
	return c
}

// Alloc implements mem.Allocator. Errors are those of the allocator below. If that has no room, all cached blocks are
// returned to it and it is asked again.
func (c *Cache) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return c.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry no cached block is returned to make room. A request with
// FreedBefore goes to the allocator below, since the time of a cached block's free is not known. So does a request with
// a Key, which may be for a private pool; its block is never cached.
func (c *Cache) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("magazine: Alloc", s)
	size, o = o.Rounded(size)
	if size <= 0 || size > c.opts.MaxSize {
		return c.allocBelow(s, size, o)
	}
	stream, class := s.ID(), classOf(size)
	pc := c.local()
	pc.mu.Lock()
	if int(stream) < len(pc.streams) && !pc.suspended && o.FreedBefore == nil && o.Key == nil {
		if sc := pc.streams[stream]; sc != nil {
			cc := &sc.classes[class]
			if cc.n > 0 || c.refill(pc, sc, class) {
				if r := c.blocks.at(cc.top); r.block.Size >= size {
					at := cc.top
					cc.top, cc.n = r.next, cc.n-1
					b := r.block
					sc.room += b.Size
					pc.room += b.Size
					pc.counts.of(class).allocated.Add(stats.Block(b.Size, size))
					r.requested = uint32(size)
					b.Tag = r.markAllocated(at)
					pc.mu.Unlock()
					return b, nil
				}
			}
		}
	}
	pc.mu.Unlock()
	return c.allocNew(s, stream, class, size, o)
}

// allocNew allocates a block below and enters it in the block table.
func (c *Cache) allocNew(
	s driver.Stream, stream driver.StreamID, class uint32, size int64, o mem.AllocOptions,
) (mem.Block, error) {
	b, err := c.allocBelow(s, size, o)
	if err != nil || b.Size > c.opts.MaxSize {
		return b, err
	}
	pc := c.local()
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.suspended || o.Key != nil {
		class = 0
	} else {
		c.streamCacheOf(pc, stream) // so that the next request tries the depot
	}
	at := c.newEntry(pc)
	r := c.blocks.at(at)
	r.block, r.requested, r.requestedBelow, r.class, r.stream = b, uint32(size), uint32(size), class, stream
	b.Tag = r.markAllocated(at)
	return b, nil
}

// allocBelow allocates below. If there is no room it returns all cached blocks and asks again.
func (c *Cache) allocBelow(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if !o.NoRetry {
		tentative := o
		tentative.Tentative = true
		b, err := mem.AllocWith(c.below, s, size, tentative)
		if err == nil || !errors.Is(err, mem.ErrNoMemory) {
			return b, err
		}
		c.Flush()
	}
	return mem.AllocWith(c.below, s, size, o)
}

// Free implements mem.Allocator. A double free always panics, also if the memory has been allocated again.
func (c *Cache) Free(b mem.Block, used ...driver.Stream) {
	if b.Size > c.opts.MaxSize {
		c.below.Free(b, used...) // not a cached size: below checks it
		return
	}
	if b == (mem.Block{}) {
		return
	}
	generation, at := splitTag(b.Tag)
	r := c.blocks.find(at)
	if r == nil || r.block.Ptr != b.Ptr || r.block.Size != b.Size || generation%2 == 0 {
		panicForeign(b)
	}
	check.Used("magazine: Free", used)
	if !r.generation.CompareAndSwap(generation, generation+1) {
		panicForeign(b)
	}
	if len(used) > 0 || r.class == 0 {
		c.freeBelow(at, r, used)
		return
	}
	pc := c.local()
	pc.mu.Lock()
	if int(r.stream) < len(pc.streams) {
		if sc := pc.streams[r.stream]; sc != nil && sc.room >= b.Size && pc.room >= b.Size {
			if cc := &sc.classes[r.class]; cc.n < cc.limit {
				pc.put(sc, cc, at, r)
				pc.mu.Unlock()
				return
			}
		}
	}
	evicted := c.putSlow(pc, at, r)
	pc.mu.Unlock()
	c.returnBlocks(evicted)
}

// freeBelow frees a block that must not be cached.
func (c *Cache) freeBelow(at ref, r *blockEntry, used []driver.Stream) {
	b := r.block
	// The entry goes first: once the allocator below has the block, the address may be allocated again.
	pc := c.local()
	pc.mu.Lock()
	pc.counts.of(r.class).returned.Requested += int64(r.requestedBelow) - int64(r.requested)
	c.freeEntry(pc, at, r)
	pc.mu.Unlock()
	c.below.Free(b, used...)
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("magazine: Free of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, changed since Alloc, or another allocator made it", uint64(b.Ptr), b.Size))
}

// Unwrap implements mem.Wrapper.
func (c *Cache) Unwrap() mem.Allocator { return c.report }

func classOf(size int64) uint32 { return uint32((size + unit - 1) / unit) }
