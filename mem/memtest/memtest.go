// Package memtest is the conformance suite of allocators: it tests what package mem's documentation promises.
//
// An allocator's test calls [Run] with functions that open a device and make an allocator on it. The suite covers
// sizes, misuse, streams, statistics, exhaustion, moving blocks, concurrent use, random histories, and driver calls
// that fail. A failing random history is shrunk, and printed as a script. Except for the tests of concurrent use, which
// are for the race detector, the suite runs in one goroutine and depends on nothing but Config; a device that works in
// the background makes addresses vary from run to run.
//
// The suite does not test speed, nor where an allocator places a block.
package memtest

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Design. The suite keeps a model of the requests and compares it with the allocator:
//
//   - world: a device, an allocator and the model. The model knows the owner of each byte (live blocks do not overlap),
//     fills every block with a pattern of its own, and reads the contents through the device, in stream order, before it
//     frees the block. It orders its own work on several streams with marks, and names in Free every stream whose work
//     nothing else has ordered. A device that checks accesses, as driver/sim does, so reports every way in which the
//     allocator returns memory too early.
//   - agree: the statistics, the snapshot and the model are equal (mem.StatsReporter, mem.Snapshotter).
//   - history: a list of random operations from a seed. Every subset of it is valid, because an operation on a block that
//     is not live does nothing; so shrinking leaves operations out.
//   - moves: owners of blocks, for allocators that move blocks. They follow in the model, name the streams that use their
//     blocks, and sometimes refuse.
//   - fault: every driver call that the allocator makes fails once, for every n, on a device that otherwise works.

// Config describes the allocator to test, and how long.
type Config struct {
	// Device opens a new device, which the suite closes. A Sync must not wait for held work for ever: in driver/sim it
	// forces the work that it waits for.
	Device func(t testing.TB) driver.Device

	// New makes an allocator on a device. The allocator returns all memory to the device when it is closed, if it is an
	// io.Closer, or else when t's cleanups run. All blocks have been freed by then.
	New func(t testing.TB, dev driver.Device) mem.Allocator

	Alignment int64 // bytes: every block's address is a multiple of it; 0 is 256, as CUDA's are

	MaxBlock int64  // bytes of the largest ordinary request; 0 is 12 MiB
	Streams  int    // that blocks are allocated on, the default one among them; 0 is 4
	Ops      int    // operations of each random history; 0 is 1500
	Seeds    int    // random histories; 0 is 6
	Seed     uint64 // of the first of them; the others follow
	FaultOps int    // operations of each history in which every driver call fails in turn; 0 is 60

	// Reserved is the number of bytes that a used allocator with an empty cache keeps until it is closed.
	Reserved int64

	// Waits is true if the allocator makes a stream wait for others that still use a block's memory, and so may return
	// that memory before they are done.
	Waits bool

	scarce bool // any request may find no room
}

func (c Config) complete() Config {
	orElse(&c.Alignment, 256)
	orElse(&c.MaxBlock, 12<<20)
	orElse(&c.Streams, 4)
	orElse(&c.Ops, 1500)
	orElse(&c.Seeds, 6)
	orElse(&c.FaultOps, 60)
	if c.Device == nil || c.New == nil || c.MaxBlock < 1 || c.Streams < 2 {
		panic(fmt.Sprintf("memtest: Config %+v: Device and New must be set, MaxBlock positive, Streams at least 2", c))
	}
	return c
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
	{"Statistics", checkStatistics},
	{"Random", checkRandom},
	{"Faults", checkFaults},
	{"Concurrent", checkConcurrent},
	{"Moves", checkMoves},
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	cfg = cfg.complete()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, cfg) })
	}
}
