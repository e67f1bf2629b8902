package pinned

import (
	"fmt"
	"math"
	"time"
)

// A Config is the settings of an Allocator. The zero value is PyTorch's defaults. Sizes are bytes.
type Config struct {
	// MaxRoundThreshold (pinned_max_round_threshold_mb): requests up to it are rounded up to a power of two. 0 is all,
	// negative none.
	MaxRoundThreshold int64
	// MaxCachedSize (pinned_max_cached_size_mb): blocks up to it are kept for reuse. 0 is all, negative none.
	MaxCachedSize int64
	// ReserveSegment (pinned_reserve_segment_size_mb): New sets so much aside in one piece, from which blocks are cut
	// as long as it lasts. 0 is nothing.
	ReserveSegment int64

	// HostRegister (pinned_use_cuda_host_register) page-locks memory that the allocator maps itself (Pinned.Register)
	// rather than asking for new (AllocHost): the driver's lock is held for less long. Only Linux maps; elsewhere
	// nothing changes.
	HostRegister bool
	// Node is the NUMA node from which the memory that HostRegister maps is taken, as long as that has any: for a GPU
	// the one that it is near to, see driver/host.NodeNear. nil is any. It needs HostRegister: where AllocHost's memory
	// lies is the driver's affair. Where the system places no memory (a sandbox, a kernel without nodes) nothing
	// changes.
	Node *int
	// RegisterThreads (pinned_num_register_threads) is how many goroutines touch the pages of one block before it is
	// registered: a power of two up to 128. 0 is 1.
	RegisterThreads int

	// Attach, if not nil, makes each segment known elsewhere before any of it is allocated: see Attach.
	Attach Attach

	// BackgroundThreads (pinned_use_background_threads) has a goroutine look every Interval whether freed blocks can
	// be reused, as long as any wait. Without, each Alloc looks. It needs After.
	BackgroundThreads bool
	// Interval is how long that goroutine pauses. 0 is 100 microseconds, as in PyTorch.
	Interval time.Duration
	// After is how it waits: time.After, or what a test controls.
	After func(time.Duration) <-chan time.Time

	// FreeCatchAll (pinned_free_catch_all) drops the errors that Err would return.
	FreeCatchAll bool

	// Clock measures the device's calls for Stats: time.Now. Without it they take no time.
	Clock func() time.Time
}

const maxRegisterThreads = 128

// complete puts defaults in and says what is wrong.
func (c Config) complete() (Config, error) {
	if c.RegisterThreads == 0 {
		c.RegisterThreads = 1
	}
	if c.Interval == 0 {
		c.Interval = 100 * time.Microsecond
	}
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
