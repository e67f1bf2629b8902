package magazine

import (
	"io"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Flush gives the held blocks of some streams, or of all if none is named, back to the layer below. Call it before a
// stream is closed whose number may not be used again. What other goroutines free meanwhile may stay held.
func (c *Cache) Flush(streams ...driver.Stream) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	var leaving ref
	for i := range c.racks {
		rk := &c.racks[i]
		rk.mu.Lock()
		for stream, sh := range rk.shelves {
			if among(driver.StreamID(stream), streams) {
				leaving = c.clear(rk, sh, leaving)
			}
		}
		rk.mu.Unlock()
	}
	c.growing.Lock()
	for stream, d := range c.depots {
		if among(driver.StreamID(stream), streams) {
			leaving = c.empty(d, leaving)
		}
	}
	c.growing.Unlock()
	if leaving != 0 {
		c.send(leaving)
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

// leave adds the blocks of a magazine to a list. They count as held until send has given them back. The caller holds the
// lock that guards the magazine.
func (c *Cache) leave(magazine, leaving ref) ref {
	for magazine != 0 {
		at, r := magazine, c.records.at(magazine)
		magazine = r.next
		r.next, leaving = leaving, at
	}
	return leaving
}

// send gives a list of blocks that leave to the layer below. The caller holds no lock but, perhaps, flushing.
func (c *Cache) send(leaving ref) {
	if leaving == 0 {
		return
	}
	c.sending.RLock()
	defer c.sending.RUnlock()
	for at := leaving; at != 0; {
		r := c.records.at(at)
		c.sent.add(r.class, r.block.Size, int64(r.first))
		c.below.Free(r.block)
		at = r.next
	}
	c.records.give(leaving)
}

// EmptyCache gives all held blocks back, and has the layer below give its cache back, if it has one: see mem.Trimmer.
func (c *Cache) EmptyCache() error {
	c.Flush()
	if t, ok := mem.Find[mem.Trimmer](c.below); ok {
		return t.EmptyCache()
	}
	return nil
}

// Close gives all held blocks back, and closes the layer below, if that is an io.Closer. The cache itself needs no
// closing.
func (c *Cache) Close() error {
	c.Flush()
	if closer, ok := mem.Find[io.Closer](c.below); ok {
		return closer.Close()
	}
	return nil
}

// Suspend makes every request go to the layer below until Resume, and what it got then go back there when it is freed,
// however much later. It is for layers below that serve requests from elsewhere for a while, as mem/caching does from
// BeginAllocateToPool to EndAllocateToPool: call it before the first and Resume after the second. Calls nest.
func (c *Cache) Suspend() { c.suspend(1) }

// Resume ends what Suspend began. It panics if nothing was begun.
func (c *Cache) Resume() { c.suspend(-1) }

func (c *Cache) suspend(by int) {
	c.lock()
	defer c.unlock()
	if c.suspended += by; c.suspended < 0 {
		c.suspended = 0
		panic("magazine: Resume without Suspend")
	}
	for i := range c.racks {
		c.racks[i].suspended = c.suspended > 0
	}
}
