package arena

import (
	"cmp"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A Config is the settings of an Arena. Sizes are bytes. The zero value takes most of the device's free memory.
type Config struct {
	// Size (size) is the size of the region, rounded down to Round. 0 means the device's free memory less a twentieth,
	// or less 512 MiB if that is more, but never less than three quarters of it. On a layer.LimitedDevice, 0 means the
	// rest of the limit less the memory that moving needs beside the region. With pages, Size is the size of the
	// address range, and 0 means all of the device's free memory.
	Size int64
	// Round (round) is the granularity to which sizes of blocks are rounded up, a multiple of 512. 0 means 512;
	// BMEngine uses 1024.
	Round int64
	// Limit (limit) bounds the live bytes, rounded. 0 means no limit.
	Limit int64
	// Page (page) is the size of the pages that are mapped as the region fills, a multiple of the device's
	// granularity. With 0 the region is one block of Device.Alloc, allocated by New.
	Page int64
	// Bounce (bounce) bounds the memory beside the region through which bytes are copied when no better way exists. 0
	// means an automatic choice of at most 64 MiB.
	Bounce int64
	// NoCompact (compact=off) turns moving off: Movable reports false, and Compact fails with ErrOff.
	NoCompact bool
}

const (
	grain   = 512     // every offset and size is a multiple of this
	maxSize = 1 << 56 // bytes: more than any device has
)

func init() {
	mem.Register("arena", "", 50, func(dev driver.Device, text string) (mem.Allocator, error) {
		cfg, err := ParseConfig(text)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg)
	})
}

// ParseConfig reads settings such as
//
//	size=8GiB,round=1KiB,limit=6GiB,page=64MiB,bounce=64MiB,compact=off
//
// in any order, each at most once. White space around them is ignored. The error names the wrong setting.
func ParseConfig(text string) (Config, error) {
	var c Config
	err := settings.Parse(text,
		settings.Size("size", &c.Size), settings.Size("round", &c.Round), settings.Size("limit", &c.Limit),
		settings.Size("page", &c.Page), settings.Size("bounce", &c.Bounce),
		settings.Switch("compact", "off", &c.NoCompact))
	if err != nil {
		return Config{}, fmt.Errorf("arena: %w", err)
	}
	return c, nil
}

// complete fills in defaults, and returns an error for a wrong setting.
func (c Config) complete(dev driver.Device) (Config, error) {
	c.Round = cmp.Or(c.Round, grain)
	if c.Round < 0 || c.Round%grain != 0 || c.Round > maxSize {
		return c, fmt.Errorf("arena: round is %d bytes: want a multiple of %d, at most %s", c.Round, grain,
			bytesize.Exact(maxSize))
	}
	for _, s := range []struct {
		name string
		size int64
	}{{"size", c.Size}, {"page", c.Page}, {"bounce", c.Bounce}} {
		if s.size < 0 || s.size > maxSize {
			return c, fmt.Errorf("arena: %s is %d bytes: want 0 to %s", s.name, s.size, bytesize.Exact(maxSize))
		}
	}
	if c.Limit < 0 {
		return c, fmt.Errorf("arena: limit is %d bytes: want 0 for none, or more", c.Limit)
	}
	if c.Size == 0 {
		free, _, err := dev.Available()
		if err != nil {
			return c, fmt.Errorf("arena: ask for the free memory: %w", err)
		}
		_, limited := dev.(*layer.LimitedDevice)
		c.Size = c.most(free, limited)
		if c.Size < c.Round {
			return c, fmt.Errorf("arena: a region of what the device has free, %d bytes: %w", free, mem.ErrNoMemory)
		}
	}
	if c.Page == 0 {
		c.Size = c.Size / c.Round * c.Round
	}
	if c.Size < c.Round {
		return c, fmt.Errorf("arena: a region of %s: want at least one block, of %s", bytesize.Exact(c.Size),
			bytesize.Exact(c.Round))
	}
	return c, nil
}

// most returns the size of a region for the given free memory.
func (c Config) most(free int64, limited bool) int64 {
	size := free
	switch {
	case c.Page > 0:
	case limited: // other users have their own memory
		return free - min(region.Beside(free), free)
	default:
		size -= min(max(free/20, 512<<20), free/4)
	}
	if even := size >> 21 << 21; even > 0 {
		return even
	}
	return size
}
