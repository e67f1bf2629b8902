package bfc

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// A Config is the settings of an Allocator, with their names in ParseConfig. Sizes are bytes. The zero value may fill
// the device, and allocates its memory on demand.
type Config struct {
	// Limit (limit) bounds the bytes in segments. 0 is the device's free memory when the allocator is made.
	Limit int64
	// Initial (initial) is the size of a first segment that New allocates and that stays until Close: a multiple of
	// 256, or with Virtual of the device's granularity. The next segment is twice as large. 0 is none. It is the
	// initial size of RMM's pools, whose maximum size is Limit.
	Initial int64
	// Fragmentation (fragmentation), from 0 to 1, is the part of Limit from which on the end of a free block is always
	// split off, however large the request. 0 is 128 MiB.
	Fragmentation float64
	// NoGrowth (growth=off) asks the device for the whole limit, or the remainder after Initial, at the first request
	// that needs it. Otherwise segments begin at 2 MiB and double.
	NoGrowth bool
	// NoCollect (collect=off) makes a request without room fail while segments are unused. Otherwise those are
	// released first, and a segment large enough is requested. It is the opposite of TensorFlow's garbage_collection,
	// which is on for GPUs.
	NoCollect bool
	// Virtual (virtual=on) maps all memory into one range of addresses, so that it is one segment and all free
	// neighbours merge. The device must have virtual memory; segments grow by multiples of its granularity.
	Virtual bool

	// Name is the allocator's name in dumps and metadata; empty is "bfc".
	Name string
	// Counter, if not nil, stamps every free, and freed blocks merge only after SetSafeFrontier has passed their
	// stamps. Several allocators may share one.
	Counter *Counter
	// Retry (retry=10s) is how long an Alloc without room waits for other blocks to be freed. TensorFlow's is
	// layer.WaitTimeout(Patience). Nil (retry=0s): only AllocWait waits. A request waits as in layer.Retry, and also
	// retries when segments change and after SetSafeFrontier.
	Retry layer.WaitContext
}

// Patience is the time that TensorFlow waits for memory to be freed before a request fails.
const Patience = 10 * time.Second

const (
	unit      = 256       // sizes are rounded up to multiples of it
	firstSize = 2 << 20   // of the first segment
	maxWaste  = 128 << 20 // bytes at the end of a block that are always split off
	maxSize   = 1 << 56   // bytes, more than any device has
)

func init() {
	mem.Register("bfc", "", 60, func(dev driver.Device, text string) (mem.Allocator, error) {
		cfg, err := ParseConfig(text)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg)
	})
}

// ParseConfig reads settings such as
//
//	limit=8GiB,initial=1GiB,fragmentation=0.1,growth=off,collect=off,virtual=on,retry=10s
//
// in any order, each at most once, with white space ignored around them. Growth, collect and virtual are on or off;
// retry is a duration for time.ParseDuration. The error names the invalid setting. (TensorFlow uses the default for a
// value that it cannot read.)
func ParseConfig(text string) (Config, error) {
	var c Config
	fraction := settings.Setting{Key: "fragmentation", Set: func(value string) (err error) {
		if c.Fragmentation, err = strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("want a fraction, got %q", value)
		}
		return nil
	}}
	var patience time.Duration
	err := settings.Parse(text, settings.Size("limit", &c.Limit), settings.Size("initial", &c.Initial), fraction,
		settings.Switch("growth", "off", &c.NoGrowth), settings.Switch("collect", "off", &c.NoCollect),
		settings.Switch("virtual", "on", &c.Virtual), settings.Duration("retry", &patience))
	if err != nil {
		return Config{}, fmt.Errorf("bfc: %w", err)
	}
	if patience > 0 {
		c.Retry = layer.WaitTimeout(patience)
	}
	return c, nil
}

// complete fills in defaults, and returns an error for an invalid setting.
func (c Config) complete(dev driver.Device) (Config, error) {
	switch {
	case c.Limit < 0 || c.Limit > maxSize:
		return c, fmt.Errorf("bfc: a limit of %d bytes: want 0 to %s", c.Limit, bytesize.Exact(maxSize))
	case c.Limit > 0 && c.Limit < unit:
		return c, fmt.Errorf("bfc: a limit of %d bytes: want at least one block, of %d", c.Limit, unit)
	case !(c.Fragmentation >= 0 && c.Fragmentation <= 1): // NaN too
		return c, fmt.Errorf("bfc: fragmentation is %v: want 0 to 1", c.Fragmentation)
	case c.Virtual && dev.VirtualMemory() == nil:
		return c, &driver.Error{Call: "VirtualMemory", Code: driver.ErrUnsupported, Detail: "bfc: virtual=on wants a " +
			"device with virtual memory"}
	}
	c.Name = cmp.Or(c.Name, "bfc")
	if c.Limit == 0 {
		free, _, err := dev.Available()
		if err != nil {
			return c, fmt.Errorf("bfc: ask for the free memory: %w", err)
		}
		c.Limit = free
		if c.Initial > free {
			return c, fmt.Errorf("bfc: initial is %s, and the device has %d bytes free: %w",
				bytesize.Exact(c.Initial), free, mem.ErrNoMemory)
		}
	}
	multiple := int64(unit)
	if c.Virtual {
		multiple = max(unit, dev.Info().Granularity)
	}
	switch {
	case c.Initial < 0 || c.Initial%multiple != 0:
		return c, fmt.Errorf("bfc: initial is %d bytes: want a multiple of %s", c.Initial, bytesize.Exact(multiple))
	case c.Initial > c.Limit:
		return c, fmt.Errorf("bfc: initial is %s, more than the limit of %s", bytesize.Exact(c.Initial),
			bytesize.Exact(c.Limit))
	}
	return c, nil
}
