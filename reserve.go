package ashlar

import (
	"fmt"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A cache is a part of a device's memory that one session has for itself.
type cache struct {
	*arena.Arena
}

// reserve cuts a cache from the device's arena.
func (d *device) reserve(size int64) (*cache, error) {
	a, ok := mem.Find[*arena.Arena](d.lanes)
	if !ok {
		return nil, d.lacks("ReserveCache")
	}
	child, err := a.Child(size)
	if err != nil {
		return nil, fmt.Errorf("ashlar: device %d: ReserveCache: %w", d.index, err)
	}
	return &cache{child}, nil
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
		return fmt.Errorf("ashlar: device %d: a cache of %s: %w", d.index, bytesize.Format(c.Size()), err)
	}
	return nil
}
