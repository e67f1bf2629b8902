package magazine

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
)

// A depot holds the full magazines of one stream that belong to no processor.
type depot struct {
	n atomic.Int64 // magazines; changes under mu

	mu     sync.Mutex
	stacks []ref // by class: the first block of the magazine on top; the others are linked by nextMagazine
	room   int64 // bytes that may be added
	_      [64]byte
}

// depotOf returns the depot of a stream, and makes it if necessary.
func (c *Cache) depotOf(stream driver.StreamID) *depot {
	c.depotsMu.Lock()
	defer c.depotsMu.Unlock()
	if n := int(stream) + 1; n > len(c.depots) {
		c.depots = append(c.depots, make([]*depot, n-len(c.depots))...)
	}
	if c.depots[stream] == nil {
		c.depots[stream] = &depot{stacks: make([]ref, classOf(c.opts.MaxSize)+1), room: c.limits.depot}
	}
	return c.depots[stream]
}

// store adds a full magazine to a depot. If that would exceed the limit of the depot, or of all depots, it evicts their
// blocks first; a magazine above the limit is evicted itself. The caller holds the processorCache of the magazine.
func (c *Cache) store(pc *processorCache, d *depot, class uint32, magazine ref, bytes int64, evicted ref) ref {
	for range 2 {
		d.mu.Lock()
		fits, fitsAll := d.room >= bytes, c.room.Add(-bytes) >= 0
		if fits && fitsAll {
			d.room -= bytes
			c.blocks.at(magazine).nextMagazine, d.stacks[class] = d.stacks[class], magazine
			d.n.Add(1)
			d.mu.Unlock()
			return evicted
		}
		c.room.Add(bytes)
		d.mu.Unlock()
		if !fits {
			evicted = c.evictDepot(d, evicted)
		}
		if !fitsAll {
			evicted = c.evictDepots(evicted)
		}
	}
	return c.evict(magazine, evicted)
}

// take removes a magazine of at most so many bytes from a depot, or returns 0. The caller may hold a processorCache.
func (c *Cache) take(d *depot, class uint32, atMost int64) (magazine ref, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if magazine = d.stacks[class]; magazine == 0 {
		return 0, 0
	}
	if bytes = c.bytes(magazine); bytes > atMost {
		return 0, 0
	}
	d.stacks[class] = c.blocks.at(magazine).nextMagazine
	d.n.Add(-1)
	d.room += bytes
	c.room.Add(bytes)
	return magazine, bytes
}

// evictDepot removes all blocks from a depot, which may be nil, and adds them to the list of evicted blocks. The caller
// may hold a processorCache.
func (c *Cache) evictDepot(d *depot, evicted ref) ref {
	if d == nil {
		return evicted
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n.Load() == 0 {
		return evicted
	}
	for class, magazine := range d.stacks {
		for magazine != 0 {
			next := c.blocks.at(magazine).nextMagazine
			evicted = c.evict(magazine, evicted)
			magazine = next
		}
		d.stacks[class] = 0
	}
	c.room.Add(c.limits.depot - d.room)
	d.room = c.limits.depot
	d.n.Store(0)
	return evicted
}

func (c *Cache) evictDepots(evicted ref) ref {
	c.depotsMu.Lock()
	defer c.depotsMu.Unlock()
	for _, d := range c.depots {
		evicted = c.evictDepot(d, evicted)
	}
	return evicted
}

// bytes returns the bytes of a magazine.
func (c *Cache) bytes(magazine ref) (sum int64) {
	for at := magazine; at != 0; {
		r := c.blocks.at(at)
		sum += r.block.Size
		at = r.next
	}
	return sum
}
