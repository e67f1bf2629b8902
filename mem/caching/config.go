package caching

import (
	"cmp"
	"fmt"
	"maps"
	"math"

	"github.com/ashlar-go/ashlar/driver"
)

// Unlimited is a MaxSplitSize with which every block may be split.
const Unlimited = int64(math.MaxInt64)

// A Config is the settings of an Allocator, with PyTorch's names. Start from Default or ParseConfig: the zero value
// does not validate. Sizes are bytes.
type Config struct {
	// MaxSplitSize is the size from which on free blocks are not split, and serve only requests of nearly their size.
	// At least LargeSegmentSize, or Unlimited.
	MaxSplitSize int64
	// MaxNonSplitRounding is how much larger than a request an unsplittable block may be. 0 is LargeSegmentSize.
	MaxNonSplitRounding int64
	// LargeSegmentSize is the size of a new segment for a request between 1 and 10 MiB, and of the pages of expandable
	// segments in the large pool. A multiple of 2 MiB, more than 10 MiB.
	LargeSegmentSize int64
	// RoundupDivisions rounds requests up to one of so many equal steps between two powers of two. The intervals are
	// [0, 2 MiB), [2, 4 MiB), ... and the last from 32 GiB on. 0 and 1 round up to 512 bytes only.
	RoundupDivisions [16]int64
	// GarbageCollectionThreshold is the part of the limit beyond which cached segments are released, the longest
	// unused first. In (0, 1), or 0 for never. It has no effect without a limit.
	GarbageCollectionThreshold float64
	// ExpandableSegments makes segments that grow page by page, one for each stream and pool.
	ExpandableSegments bool
	// ExpandableReserve is the size of an expandable segment's addresses: by default, and at most, 9/8 of the device's
	// memory. A block lies in one segment, so it also bounds requests.
	ExpandableReserve Reserve
	// ExpandableReserveByClass is the same for streams of a class (SetReserveClass). Classes not listed take
	// ExpandableReserve. The allocator keeps a copy.
	ExpandableReserveByClass map[string]Reserve
	// MemoryFraction bounds the reserved memory as a part of the device's memory. In [0, 1]; 1 is no limit.
	MemoryFraction float64
	// Limit bounds the reserved bytes; 0 is no limit. The smaller of the two bounds applies.
	Limit int64
	// ThrowOnOOM rejects a request for which the driver would be asked for more than the limit leaves: the driver is
	// not asked, and nothing cached is released. A request that the driver refuses is retried as usual. It has no
	// effect without a limit.
	ThrowOnOOM bool
	// ReleaseLock lets other requests proceed while the driver allocates a segment.
	ReleaseLock bool
	// GraphCaptureRecordStreamReuse lets a block that other streams use, and that is freed while a graph is captured,
	// be allocated again in the same capture once all of them have joined its own stream. If false, the block waits
	// for the end of the capture. During captures each request then asks the device about each such block of its
	// stream.
	GraphCaptureRecordStreamReuse bool
	// PyTorchExact turns off the differences from PyTorch: see the package's documentation.
	PyTorchExact bool

	anyRoundup bool // some RoundupDivisions are more than 1
}

// Default returns PyTorch's default settings.
func Default() Config {
	return Config{
		MaxSplitSize:     Unlimited,
		LargeSegmentSize: defaultLargeSegment,
		MemoryFraction:   1,
	}
}

const defaultLargeSegment = 20 << 20

// Validate returns an error that names the first wrong setting, or nil.
func (c *Config) Validate() error {
	switch {
	case c.LargeSegmentSize <= minLargeAlloc || c.LargeSegmentSize >= maxBlockSize ||
		c.LargeSegmentSize%minBlockSize != 0:
		return fmt.Errorf("caching: large segment size %d: want a multiple of 512 bytes, more than 10 MiB and less "+
			"than 2 TiB",
			c.LargeSegmentSize)
	case c.MaxSplitSize < c.LargeSegmentSize:
		return fmt.Errorf("caching: max split size %d: want at least the large segment size, %d", c.MaxSplitSize,
			c.LargeSegmentSize)
	case c.MaxNonSplitRounding < 0:
		return fmt.Errorf("caching: max non-split rounding %d: want at least 0", c.MaxNonSplitRounding)
	case !(c.GarbageCollectionThreshold >= 0 && c.GarbageCollectionThreshold < 1):
		return fmt.Errorf("caching: garbage collection threshold %v: want it in (0, 1), or 0 for none",
			c.GarbageCollectionThreshold)
	case !(c.MemoryFraction >= 0 && c.MemoryFraction <= 1):
		return fmt.Errorf("caching: memory fraction %v: want it in [0, 1]", c.MemoryFraction)
	case c.Limit < 0:
		return fmt.Errorf("caching: limit %d: want at least 0", c.Limit)
	}
	if err := c.ExpandableReserve.validate(); err != nil {
		return err
	}
	for class, r := range c.ExpandableReserveByClass {
		if err := r.validate(); err != nil {
			return fmt.Errorf("%w (class %q)", err, class)
		}
	}
	for i, d := range c.RoundupDivisions {
		if d < 0 || d&(d-1) != 0 {
			return fmt.Errorf("caching: roundup divisions %d for sizes from %d MiB: want a power of two, or 0", d, 1<<i)
		}
	}
	return nil
}

// Configure changes the settings of a running allocator. Existing blocks and segments stay as they are. On an error
// nothing has changed.
func (a *Allocator) Configure(cfg Config) error {
	cfg.ExpandableReserveByClass = maps.Clone(cfg.ExpandableReserveByClass)
	return a.update(func(c *Config) error {
		*c = cfg
		return nil
	})
}

// update changes the settings in one step.
func (a *Allocator) update(change func(*Config) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lockShards()
	defer a.unlockShards()
	cfg := a.cfg
	if err := change(&cfg); err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	info := a.dev.Info()
	if cfg.ExpandableSegments && a.vm == nil {
		return &driver.Error{
			Call: "VirtualMemory", Code: driver.ErrUnsupported,
			Detail: "expandable_segments needs virtual memory, and " + info.Name + " has none",
		}
	}
	if g := info.Granularity; cfg.ExpandableSegments && (cfg.LargeSegmentSize%g != 0 || smallBuffer%g != 0) {
		return fmt.Errorf("caching: pages of 2 MiB and of the large segment size, %d, do not suit the granularity "+
			"of %s, %d",
			cfg.LargeSegmentSize, info.Name, g)
	}
	cfg.MaxNonSplitRounding = cmp.Or(cfg.MaxNonSplitRounding, cfg.LargeSegmentSize)
	cfg.anyRoundup = false
	for _, d := range cfg.RoundupDivisions {
		cfg.anyRoundup = cfg.anyRoundup || d > 1
	}
	a.cfg = cfg
	a.limit = noLimit
	if cfg.MemoryFraction < 1 {
		a.limit = int64(cfg.MemoryFraction * float64(info.TotalMemory))
	}
	if cfg.Limit > 0 {
		a.limit = min(a.limit, cfg.Limit)
	}
	a.setSlowPath(slowGC, a.collecting())
	a.countOversize()
	return nil
}

// countOversize recounts the oversize blocks and segments after the split limit has changed. Accumulated totals stay.
// The caller holds every lock.
func (a *Allocator) countOversize() {
	if len(a.live) == 0 {
		return
	}
	a.foldPeaks()
	for _, sh := range a.live {
		var blocks, segments [2]int64
		for ref := range blockRef(sh.slab.n) {
			blk := sh.slab.at(ref)
			if blk.state == stateNone {
				continue
			}
			class := sh.pools[blk.pool].class
			if blk.state == stateLive && blk.size() >= a.cfg.MaxSplitSize {
				blocks[class]++
			}
			if blk.prev == 0 && !blk.expandable && sh.segmentAt(ref).TotalSize >= a.cfg.MaxSplitSize {
				segments[class]++
			}
		}
		for class := range blocks {
			c := &sh.stats.class[class]
			c.total[oversizeAllocations] += blocks[class] - c.cur[oversizeAllocations]
			c.total[oversizeSegments] += segments[class] - c.cur[oversizeSegments]
			c.cur[oversizeAllocations], c.cur[oversizeSegments] = blocks[class], segments[class]
		}
	}
	a.foldPeaks()
}

// Config returns the settings.
func (a *Allocator) Config() Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	cfg := a.cfg
	cfg.ExpandableReserveByClass = maps.Clone(cfg.ExpandableReserveByClass)
	return cfg
}

// MemoryFraction returns the part of the device's memory that may be reserved, in [0, 1]; 1 is no limit.
func (a *Allocator) MemoryFraction() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg.MemoryFraction
}

// SetMemoryFraction limits the reserved memory to a part of the device's memory, in [0, 1]. Memory reserved beyond it
// already stays.
func (a *Allocator) SetMemoryFraction(fraction float64) error {
	return a.update(func(c *Config) error {
		c.MemoryFraction = fraction
		return nil
	})
}

// Limit returns the largest number of bytes that may be reserved, by the limit and the memory fraction; 0 is no limit.
// (If a fraction of 0 allows nothing, Limit returns 1.)
func (a *Allocator) Limit() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit == noLimit {
		return 0
	}
	return max(a.limit, 1)
}

// Capacity returns the bytes of the device's memory: see mem.FrameworkStatsOf.
func (a *Allocator) Capacity() int64 { return a.dev.Info().TotalMemory }
