package paged

import (
	"fmt"
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
)

// A Config is the settings of an Allocator. Sizes are bytes. The zero value holds no more memory than was in use at a time,
// and has no limit but the device's memory.
type Config struct {
	// Limit (limit) is the bytes of physical memory at most, rounded down to the device's granularity. 0 is none.
	Limit int64
	// Page (page) is the bytes of the largest page, rounded down to a power of two of granules. A large page costs the driver
	// no more than a small one, and what a block leaves of it free only others beside it can use. 0: a small part
	// of the memory that there is, a 192nd of it up to four granules and a 768th beyond; under a limit at most an 8,192nd of
	// that, so one granule where it is less than 16,384 of them (32 GiB on NVIDIA GPUs).
	Page int64
	// Keep (keep) is the bytes of idle memory that are kept for later; more goes back to the device when blocks are freed, as
	// far as work on it is done. 0 is KeepAll: none goes back before EmptyCache; "keep=0" as text is KeepNone.
	Keep int64
	// Spare (spare) is the bytes of memory beyond the most that was in use which are made when pages that are wanted at two
	// addresses would be remapped again and again. With a tenth of the memory, work that repeats seldom needs the driver.
	Spare int64
	// Addresses (addresses) is the bytes of addresses that are reserved at a time. 0 is four times the device's memory.
	Addresses int64
	// NoAliases (aliases=off) unmaps a page from its old place when it is mapped to another, which takes the driver longer and
	// the host has to wait for; for devices or tools that take offence at memory that has two addresses.
	NoAliases bool
}

const (
	KeepAll  = 0  // Config.Keep: all idle memory is kept
	KeepNone = -1 // none is
)

const (
	defaultPage = 4       // granules
	maxRegion   = 1 << 40 // bytes
)

func init() {
	mem.Register("paged", "", 40, func(dev driver.Device, text string) (mem.Allocator, error) {
		cfg, err := ParseConfig(text)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg)
	})
}

// ParseConfig reads settings such as
//
//	limit=8GiB,page=16MiB,keep=1GiB,spare=1GiB,addresses=1TiB,aliases=off
//
// in any order, each at most once; white space around them does not matter. Aliases is on or off. The error names the setting
// that is wrong.
func ParseConfig(text string) (Config, error) {
	keep := int64(-1)
	var c Config
	err := settings.Parse(text,
		settings.Size("limit", &c.Limit), settings.Size("page", &c.Page), settings.Size("keep", &keep), settings.Size("spare", &c.Spare),
		settings.Size("addresses", &c.Addresses), settings.Switch("aliases", "off", &c.NoAliases))
	if err != nil {
		return Config{}, fmt.Errorf("paged: %w", err)
	}
	switch {
	case keep == 0:
		c.Keep = KeepNone
	case keep > 0:
		c.Keep = keep
	}
	return c, nil
}

// complete puts defaults in and says what is wrong.
func (c Config) complete(dev driver.Device) (Config, error) {
	info := dev.Info()
	if dev.VirtualMemory() == nil || info.Granularity <= 0 {
		return c, &driver.Error{
			Call: "paged.New", Code: driver.ErrUnsupported, Detail: "the device has no virtual memory",
		}
	}
	if bits.OnesCount64(uint64(info.Granularity)) != 1 {
		return c, fmt.Errorf("paged: the device's granularity is %d bytes: want a power of two", info.Granularity)
	}
	if c.Addresses == 0 {
		c.Addresses = min(4*max(info.TotalMemory, info.Granularity), maxRegion)
	}
	keep := c.Keep
	if keep == KeepNone {
		keep = 0
	}
	for _, s := range []struct {
		name string
		size int64
	}{{"limit", c.Limit}, {"page", c.Page}, {"keep", keep}, {"spare", c.Spare}, {"addresses", c.Addresses}} {
		if s.size < 0 {
			return c, fmt.Errorf("paged: %s is %d bytes: want none negative", s.name, s.size)
		}
	}
	switch {
	case c.Limit > 0 && c.Limit < info.Granularity:
		return c, fmt.Errorf("paged: limit is %s: want at least the device's granularity, %s",
			bytesize.Exact(c.Limit), bytesize.Exact(info.Granularity))
	case c.Page > 0 && c.Page < info.Granularity:
		return c, fmt.Errorf("paged: page is %s: want at least the device's granularity, %s",
			bytesize.Exact(c.Page), bytesize.Exact(info.Granularity))
	case c.Addresses > maxRegion:
		return c, fmt.Errorf("paged: addresses is %s: want at most %s", bytesize.Exact(c.Addresses), bytesize.Exact(maxRegion))
	}
	return c, nil
}
