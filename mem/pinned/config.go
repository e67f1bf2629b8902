package pinned

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// A Config has the settings of an Allocator. The zero value has PyTorch's defaults. Sizes are bytes.
type Config struct {
	// MaxRoundThreshold (pinned_max_round_threshold_mb): requests up to it are rounded up to a power of two. 0 means
	// all, a negative value none.
	MaxRoundThreshold int64
	// MaxCachedSize (pinned_max_cached_size_mb): blocks up to it are cached. 0 means all, a negative value none.
	MaxCachedSize int64
	// ReserveSegment (pinned_reserve_segment_size_mb) is the size of a segment that New allocates, and from which
	// blocks are cut until it is used up. 0 means no segment.
	ReserveSegment int64

	// HostRegister (pinned_use_cuda_host_register) page-locks memory that the allocator maps itself (Pinned.Register)
	// instead of allocating it by AllocHost, so the driver's lock is held for a shorter time. It has no effect except
	// on Linux.
	HostRegister bool
	// Node is the preferred NUMA node of the memory that HostRegister maps: for a GPU the nearest one, see
	// driver/host.NodeNear. Nil means any. It needs HostRegister, because the driver places AllocHost's memory. It has
	// no effect where the system places no memory (in a sandbox, or in a kernel without nodes).
	Node *int
	// RegisterThreads (pinned_num_register_threads) is the number of goroutines that touch the pages of a block before
	// it is registered: a power of two up to 128. 0 means 1.
	RegisterThreads int

	// WipeBetweenKeys zeroes a block's memory, rounding included, before it is allocated for another
	// mem.AllocOptions.Key than that of its last request: the key names the tenant. A request without a key is one more
	// tenant's. Memory that the driver has just allocated is wiped too. Memory that returns to its key is not. The
	// goroutine of the request wipes.
	WipeBetweenKeys bool

	// Attach, if not nil, registers each new segment elsewhere: see Attach.
	Attach Attach

	// BackgroundThreads (pinned_use_background_threads) runs a goroutine that checks every Interval whether freed
	// blocks can be reused, as long as any wait. Without it each Alloc checks. It needs After.
	BackgroundThreads bool
	// Interval is the pause of that goroutine. 0 means 100 microseconds, as in PyTorch.
	Interval time.Duration
	// After is the timer of that goroutine: time.After, or a test's.
	After func(time.Duration) <-chan time.Time

	// FreeCatchAll (pinned_free_catch_all) drops the errors that Err would return.
	FreeCatchAll bool

	// Clock measures the device's calls for Stats: time.Now. Without it all durations are 0.
	Clock func() time.Time
}

const maxRegisterThreads = 128

// complete fills in defaults, and returns an error for an invalid setting.
func (c Config) complete() (Config, error) {
	c.RegisterThreads = cmp.Or(c.RegisterThreads, 1)
	c.Interval = cmp.Or(c.Interval, 100*time.Microsecond)
	n := c.RegisterThreads
	switch {
	case n < 1 || n > maxRegisterThreads || n&(n-1) != 0:
		return c, fmt.Errorf("pinned: %d register threads: want a power of two from 1 to %d", n, maxRegisterThreads)
	case c.Node != nil && (!c.HostRegister || !canMap):
		return c, fmt.Errorf("pinned: memory of node %d: only what HostRegister maps, on Linux, can be placed", *c.Node)
	case c.ReserveSegment < 0 || c.ReserveSegment > 1<<maxBits:
		return c, fmt.Errorf("pinned: a reserved segment of %d bytes: want 0 to 64 TiB", c.ReserveSegment)
	case c.Interval < 0:
		return c, fmt.Errorf("pinned: an interval of %v: want more than 0", c.Interval)
	case c.BackgroundThreads && c.After == nil:
		return c, fmt.Errorf("pinned: BackgroundThreads needs Config.After, such as time.After")
	}
	return c, nil
}

func (c *Config) maxRound() int64  { return limit(c.MaxRoundThreshold) }
func (c *Config) maxCached() int64 { return limit(c.MaxCachedSize) }

func limit(size int64) int64 {
	if size == 0 {
		return math.MaxInt64
	}
	return size
}
