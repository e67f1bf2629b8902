package paged

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
)

// A Config is the settings of an Allocator. Sizes are bytes. The zero value holds no more memory than the peak in use,
// and is limited only by the device's memory.
type Config struct {
	// Limit (limit) bounds the physical memory, rounded down to the device's granularity. 0 is no limit. SetLimit
	// replaces it at run time.
	Limit int64
	// Page (page) is the size of the largest page, rounded down to a power of two of granules. A large page costs the
	// driver no more than a small one, but only neighbouring blocks can use the part that a block leaves free. 0 is a
	// small part of the memory in use: a 192nd up to four granules, and a 768th beyond; under a limit at most an
	// 8,192nd of the limit, so one granule if the limit is less than 16,384 granules (32 GiB on NVIDIA GPUs).
	Page int64
	// Keep (keep) bounds the idle memory that is kept. Memory beyond it is freed when blocks are freed, as far as the
	// work on it is done. 0 is KeepAll: nothing is freed before EmptyCache. The text "keep=0" is KeepNone.
	Keep int64
	// Spare (spare) is memory beyond the peak in use that may be created where pages would otherwise be remapped
	// between two addresses again and again. With a tenth of the memory, work that repeats seldom needs the driver.
	Spare int64
	// Addresses (addresses) is the size of each reservation of addresses. 0 is four times the device's memory.
	Addresses int64
	// NoAliases (aliases=off) unmaps a page from its old address when it is mapped to another. It takes the driver
	// longer, and the host waits for it. It is for devices and tools that do not support two addresses for one page.
	NoAliases bool
}

const (
	KeepAll  = 0  // Config.Keep: keep all idle memory
	KeepNone = -1 // Config.Keep: keep none
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
// in any order, each at most once. White space around them is ignored. The error names the wrong setting.
func ParseConfig(text string) (Config, error) {
	keep := int64(-1)
	var c Config
	err := settings.Parse(text,
		settings.Size("limit", &c.Limit), settings.Size("page", &c.Page), settings.Size("keep", &keep),
		settings.Size("spare", &c.Spare),
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

// complete fills in defaults, and returns an error for a wrong setting.
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
	c.Addresses = cmp.Or(c.Addresses, min(4*max(info.TotalMemory, info.Granularity), maxRegion))
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
		return c, fmt.Errorf("paged: addresses is %s: want at most %s", bytesize.Exact(c.Addresses),
			bytesize.Exact(maxRegion))
	}
	return c, nil
}
