package arena

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A Config is the settings of an Arena. Sizes are bytes. The zero value takes most of what the device has free.
type Config struct {
	// Size (size) is the bytes of the region, rounded down to Round. 0: what the device has free, less a twentieth for
	// others, which is at least 512 MiB unless that were more than a quarter; of a layer.LimitedDevice what its limit leaves, less
	// what moving needs beside the region. With pages it is addresses, and 0 is all that the device has free.
	Size int64
	// Round (round) is what sizes of blocks are rounded up to, a multiple of 512. 0 is 512; BMEngine's is 1024.
	Round int64
	// Limit (limit) is the live bytes, rounded, at most. 0 is none.
	Limit int64
	// Page (page) is the bytes of the pages that are mapped as the region fills, a multiple of the device's granularity. 0:
	// the region is one block of Device.Alloc, from the start.
	Page int64
	// Bounce (bounce) bounds the memory beside the region through which bytes are moved where nothing better is there. 0 is
	// the region's choice, at most 64 MiB.
	Bounce int64
	// NoCompact (compact=off) has no block ever moved: Movable reports false, and Compact fails with ErrOff.
	NoCompact bool
}

const (
	grain   = 512     // what every offset and size is a multiple of
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
// in any order, each at most once; white space around them does not matter. Compact is on or off. The error names the
// setting that is wrong.
func ParseConfig(text string) (Config, error) {
	var c Config
	err := settings.Parse(text,
		settings.Size("size", &c.Size), settings.Size("round", &c.Round), settings.Size("limit", &c.Limit),
		settings.Size("page", &c.Page), settings.Size("bounce", &c.Bounce), settings.Switch("compact", "off", &c.NoCompact))
	if err != nil {
		return Config{}, fmt.Errorf("arena: %w", err)
	}
	return c, nil
}

// complete puts defaults in and says what is wrong.
func (c Config) complete(dev driver.Device) (Config, error) {
	if c.Round == 0 {
		c.Round = grain
	}
	if c.Round < 0 || c.Round%grain != 0 || c.Round > maxSize {
		return c, fmt.Errorf("arena: round is %d bytes: want a multiple of %d, at most %s", c.Round, grain, bytesize.Exact(maxSize))
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
		return c, fmt.Errorf("arena: a region of %s: want at least one block, of %s", bytesize.Exact(c.Size), bytesize.Exact(c.Round))
	}
	return c, nil
}

// most is the size of a region where so much is free.
func (c Config) most(free int64, limited bool) int64 {
	size := free
	switch {
	case c.Page > 0:
	case limited: // others have their own
		return free - min(region.Beside(free), free)
	default:
		size -= min(max(free/20, 512<<20), free/4)
	}
	if even := size >> 21 << 21; even > 0 {
		return even
	}
	return size
}
