// Package memtest is the conformance suite of allocators: it tests what package mem's documentation promises.
//
// An allocator's test calls [RunAll] with its constructor and its configurations, or [Run] with a function that makes
// an allocator on a device. The suite covers sizes, misuse, streams, statistics, exhaustion, moving blocks, memory that
// other devices and processes use, concurrent use, random histories, and driver calls that fail. A failing random
// history is shrunk, and printed as a script. Except for the tests of concurrent use, which are for the race detector,
// the suite runs in one goroutine and depends on nothing but Config; a device that works in the background makes
// addresses vary from run to run.
//
// The suite does not test speed, nor where an allocator places a block.
package memtest

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// Design. The suite keeps a model of the requests and compares it with the allocator:
//
//   - world: a device, an allocator and the model. The model knows the owner of each byte (live blocks do not overlap),
//     fills every block with a pattern of its own, and reads the contents through the device, in stream order, before
//     it frees the block. It orders its own work on several streams with marks, and names in Free every stream whose
//     work is not ordered otherwise. So a device that checks accesses, such as driver/sim, reports every case in which
//     the allocator reuses memory too early.
//   - agree: the statistics, the snapshot and the model are equal (mem.StatsReporter, mem.Snapshotter).
//   - history: a list of random operations from a seed. Every subset of it is valid, because an operation on a block that
//     is not live does nothing; so shrinking leaves operations out.
//   - moves: holders of blocks, for allocators that move blocks. They update the model, name the streams that use their
//     blocks, and sometimes refuse.
//   - fault: every driver call that the allocator makes fails once, for every n, on a device that otherwise works.

// Config describes the allocator to test, and the length of the tests.
type Config struct {
	// Device opens a new device, which the suite closes. A Sync must not wait for held work for ever: in driver/sim it
	// forces the work that it waits for. Nil opens a simulated device with the options Sim.
	Device func(t testing.TB) driver.Device
	// Sim are options of simulated devices, where Total 0 is 256 MiB. They record call sites.
	Sim sim.Options

	// New makes an allocator on a device. The allocator returns all memory to the device when it is closed, if it is an
	// io.Closer, or else when t's cleanups run. All blocks have been freed by then. If the allocator or a layer of it
	// has a method Check() error, the suite calls it at the end.
	New func(t testing.TB, dev driver.Device) mem.Allocator

	Alignment int64 // bytes: every block's address is a multiple of it; 0 means 256, as in CUDA

	MaxBlock int64  // bytes of the largest ordinary request; 0 is 12 MiB
	Streams  int    // number of streams for allocations, including the default stream; 0 means 4
	Ops      int    // operations of each random history; 0 is 1500
	Seeds    int    // random histories; 0 is 6
	Seed     uint64 // of the first of them; the others follow
	FaultOps int    // operations of each history in which every driver call fails in turn; 0 is 60

	// Reserved is the number of bytes that a used allocator with an empty cache keeps until it is closed.
	Reserved int64

	// Waits is true if the allocator makes a stream wait for others that still use memory, so that it may reuse the
	// memory before they are done.
	Waits bool

	// Operations, if not nil, counts the operations of random histories, one by one and concurrent, shrinking included.
	// Those that do nothing, such as a free of a block that is not live, do not count.
	Operations *atomic.Int64

	// LowRequestedPeak is true if the peak of RequestedBytes may be too low, because it is that of an allocator below,
	// whose blocks serve later requests of other sizes.
	LowRequestedPeak bool

	scarce bool // any request may find no room
	pieces bool // fill only parts of large blocks, and use fewer streams: fresh memory is slow to touch
}

func (c Config) complete() Config {
	orElse(&c.Alignment, 256)
	orElse(&c.MaxBlock, 12<<20)
	orElse(&c.Streams, 4)
	orElse(&c.Ops, 1500)
	orElse(&c.Seeds, 6)
	orElse(&c.FaultOps, 60)
	orElse(&c.Sim.Total, 256<<20)
	if testkit.RaceDetector { // it finds nothing in the histories of one goroutine
		c.Ops, c.Seeds, c.FaultOps = min(c.Ops, 200), min(c.Seeds, 2), min(c.FaultOps, 8)
	}
	c.Sim.CallSites = true
	if c.Device == nil {
		c.Device = func(testing.TB) driver.Device { return sim.New(c.Sim) }
	}
	if c.New == nil || c.MaxBlock < 1 || c.Streams < 2 {
		panic(fmt.Sprintf("memtest: Config %+v: New must be set, MaxBlock positive, Streams at least 2", c))
	}
	return c
}

// onHost is the configuration with shorter histories, on host devices of the simulated ones' size and granularity. Large
// blocks are filled where they are sampled: on the simulated devices all of their bytes are.
func (c Config) onHost() Config {
	c = c.complete()
	orElse(&c.Sim.Granularity, 2<<20)
	c.Device = On(fmt.Sprintf("host:total=%d,granularity=%d", c.Sim.Total, c.Sim.Granularity))
	c.Ops, c.Seeds, c.FaultOps = min(c.Ops, 200), min(c.Seeds, 2), min(c.FaultOps, 8)
	c.pieces = true
	return c
}

// count counts operations.
func (c *Config) count(n int64) {
	if c.Operations != nil {
		c.Operations.Add(n)
	}
}

func orElse[T int | int64](v *T, whenZero T) {
	if *v == 0 {
		*v = whenZero
	}
}

// checks is the suite.
var checks = []struct {
	name string
	run  func(testing.TB, Config)
}{
	{"Sizes", checkSizes},
	{"Zero", checkZero},
	{"TooLarge", checkTooLarge},
	{"Misuse", checkMisuse},
	{"NilStreams", checkNilStreams},
	{"RoundUp", checkRoundUp},
	{"ManySmall", checkManySmall},
	{"FreeOrders", checkFreeOrders},
	{"Exhaustion", checkExhaustion},
	{"UsedStreams", checkUsedStreams},
	{"UsedByMany", checkUsedByMany},
	{"ReuseWhileHeld", checkReuseWhileHeld},
	{"ManyStreams", checkManyStreams},
	{"Layers", checkLayers},
	{"Peers", checkPeers},
	{"Pages", checkPages},
	{"Statistics", checkStatistics},
	{"Random", checkRandom},
	{"Faults", checkFaults},
	{"Concurrent", checkConcurrent},
	{"Moves", checkMoves},
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	cfg = cfg.complete()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the heap is small, and what is allocated soon dies
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, cfg) })
	}
}

// On is a Config.Device that opens devices by driver.Open. The test must import the driver.
func On(spec string) func(testing.TB) driver.Device {
	return func(t testing.TB) driver.Device {
		t.Helper()
		dev, err := driver.Open(spec)
		testkit.Must(t, err)
		return dev
	}
}

// RunAll runs the suite for an allocator in each of its configurations, by name. It tests them on simulated devices, in
// subtests "sim/NAME", and with shorter histories on host devices, in subtests "host/NAME"; the test must import
// driver/host. If cfg has a Device, all run there instead, in subtests "NAME". cfg.New is not used.
func RunAll[C any, A mem.Allocator](
	t *testing.T, cfg Config, construct func(driver.Device, C) (A, error), configs map[string]C,
) {
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		cfg.New = func(t testing.TB, dev driver.Device) mem.Allocator {
			a, err := construct(dev, configs[name])
			testkit.Must(t, err)
			return a
		}
		if cfg.Device != nil {
			t.Run(name, func(t *testing.T) { Run(t, cfg) })
			continue
		}
		t.Run("sim/"+name, func(t *testing.T) { Run(t, cfg) })
		t.Run("host/"+name, func(t *testing.T) { Run(t, cfg.onHost()) })
	}
}

// New makes an allocator for a test that does not run the suite, and checks its invariants at the end of the test.
func New[C any, A interface{ Check() error }](
	t testing.TB, construct func(driver.Device, C) (A, error), dev driver.Device, cfg C,
) A {
	t.Helper()
	a, err := construct(dev, cfg)
	testkit.Must(t, err)
	t.Cleanup(func() {
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	})
	return a
}
