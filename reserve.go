package ashlar

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A cache is a part of a device's memory that one session has for itself.
type cache struct {
	*arena.Arena
	size int64 // rounded up; counts against the device's limit
}

// reserve cuts a cache from the device's arena.
func (d *device) reserve(size int64) (*cache, error) {
	a, ok := mem.Find[*arena.Arena](d.lanes)
	if !ok {
		return nil, d.lacks("ReserveCache")
	}
	c, err := d.cut(a, size)
	if err != nil {
		return nil, fmt.Errorf("ashlar: device %d: ReserveCache: %w", d.index, err)
	}
	return c, nil
}

func (d *device) cut(a *arena.Arena, size int64) (*cache, error) {
	if err := d.claim(size); err != nil {
		return nil, err
	}
	child, err := a.Child(size)
	if err != nil {
		d.unclaim(size)
		return nil, err
	}
	if err := d.claim(child.Size() - size); err != nil { // what it was rounded up by
		d.unclaim(size)
		return nil, errors.Join(err, child.Close())
	}
	return &cache{child, child.Size()}, nil
}

// release gives a cache back, or keeps it for the engine's Close if it has memory on loan.
func (d *device) release(c *cache) error {
	err := d.free(c)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.caches = append(d.caches, c)
	}
	return err
}

// free gives a cache back, unless it has memory on loan.
func (d *device) free(c *cache) error {
	if err := c.Close(); err != nil {
		return fmt.Errorf("ashlar: device %d: a cache of %s: %w", d.index, bytesize.Format(c.size), err)
	}
	d.unclaim(c.size)
	return nil
}

// claim takes a cache's size from what the limit leaves for others. Blocks that are taken meanwhile stay: then the claim
// fails.
func (d *device) claim(size int64) error {
	if d.limit == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := d.limit.Limit()
	if d.limit.Live() <= limit-size { // or requests that fit would be refused meanwhile
		d.limit.SetLimit(limit - size)
		if d.limit.Live() <= limit-size {
			return nil
		}
		d.limit.SetLimit(limit)
	}
	return &mem.LimitError{Want: size, Block: size, Live: d.limit.Live(), Limit: limit}
}

func (d *device) unclaim(size int64) {
	if d.limit == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit.SetLimit(d.limit.Limit() + size)
}
