package magazine

import (
	"io"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Flush frees the held blocks of these streams, or of all streams if none is given, to the allocator below. Call it
// before closing a stream whose number may not be used again. Blocks that other goroutines free during the call may
// stay held.
func (c *Cache) Flush(streams ...driver.Stream) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	var evicted ref
	for i := range c.processors {
		pc := &c.processors[i]
		pc.mu.Lock()
		for stream, sc := range pc.streams {
			if among(driver.StreamID(stream), streams) {
				evicted = c.evictStream(pc, sc, evicted)
			}
		}
		pc.mu.Unlock()
	}
	c.depotsMu.Lock()
	for stream, d := range c.depots {
		if among(driver.StreamID(stream), streams) {
			evicted = c.evictDepot(d, evicted)
		}
	}
	c.depotsMu.Unlock()
	if evicted != 0 {
		c.returnBlocks(evicted)
	}
}

func among(id driver.StreamID, streams []driver.Stream) bool {
	for _, s := range streams {
		if s.ID() == id {
			return true
		}
	}
	return len(streams) == 0
}

// evict adds the blocks of a magazine to a list. They count as held until returnBlocks has freed them. The caller holds
// the lock that guards the magazine.
func (c *Cache) evict(magazine, evicted ref) ref {
	for magazine != 0 {
		at, r := magazine, c.blocks.at(magazine)
		magazine = r.next
		r.next, evicted = evicted, at
	}
	return evicted
}

// returnBlocks frees a list of evicted blocks to the allocator below. The caller holds no lock, or only flushing.
func (c *Cache) returnBlocks(evicted ref) {
	if evicted == 0 {
		return
	}
	c.returning.RLock()
	defer c.returning.RUnlock()
	for at := evicted; at != 0; {
		r := c.blocks.at(at)
		c.returned.add(r.class, r.block.Size, int64(r.requestedBelow))
		c.below.Free(r.block)
		at = r.next
	}
	c.blocks.release(evicted)
}

// EmptyCache implements mem.Trimmer. It returns all cached blocks to the allocator below, and empties that allocator's
// cache, if it has one.
func (c *Cache) EmptyCache() error {
	c.Flush()
	if t, ok := mem.Find[mem.Trimmer](c.below); ok {
		return t.EmptyCache()
	}
	return nil
}

// Close returns all cached blocks to the allocator below, and closes that allocator if it is an io.Closer. The Cache
// itself needs no Close.
func (c *Cache) Close() error {
	c.Flush()
	if closer, ok := mem.Find[io.Closer](c.below); ok {
		return closer.Close()
	}
	return nil
}

// Suspend sends every request to the allocator below until Resume. Blocks allocated in between are never cached. Use it
// where the allocator below serves requests from another place for a while, as mem/caching does between
// BeginAllocateToPool and EndAllocateToPool: call Suspend before the first and Resume after the second. Calls nest.
func (c *Cache) Suspend() { c.suspend(1) }

// Resume ends a Suspend. It panics without one.
func (c *Cache) Resume() { c.suspend(-1) }

func (c *Cache) suspend(by int) {
	c.lockAll()
	defer c.unlockAll()
	if c.suspended += by; c.suspended < 0 {
		c.suspended = 0
		panic("magazine: Resume without Suspend")
	}
	for i := range c.processors {
		c.processors[i].suspended = c.suspended > 0
	}
}
