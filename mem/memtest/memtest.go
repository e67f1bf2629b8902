// Package memtest is the suite that every allocator passes: what the doc comments of package mem promise, as tests.
//
// An allocator's own test calls Run with functions that open a device and make an allocator on it. The suite keeps a
// model of what the allocator was asked and holds it against what happens:
//
//   - world: a device, an allocator and the model beside it. The model knows which bytes are whose (no two live blocks
//     overlap), fills every block with a pattern of its own, and looks at the contents through the device, in stream
//     order, before the block goes back. It orders its own work on several streams with marks, and tells Free of
//     every stream whose work nothing else has ordered. A device that checks accesses, as driver/sim does, so reports
//     every way in which the allocator hands memory out too early.
//   - agree: the statistics, the snapshot and the model say the same (mem.StatsReporter, mem.Snapshotter).
//   - history: a list of operations, random but from a seed, that means something from any subset of it, because an
//     operation on a block that is not live does nothing. What fails is therefore shrunk by leaving operations out,
//     and printed as a script.
//   - moves: holders of blocks that the allocator moves, if it does. They follow in the model, say which streams use their
//     blocks, and refuse at times.
//   - fault: every driver call that the allocator makes fails once, for every n, with a device that is otherwise well.
//
// Apart from what checks concurrent use, which is for the race detector, everything runs in one goroutine and depends
// on nothing but Config. A device that does work in the background makes marks, and so addresses, vary from run to run;
// what is checked holds all the same.
//
// It does not check speed, nor where an allocator puts a block: that is the allocator's own affair.
package memtest

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Config says what the suite tests, and how much.
type Config struct {
	// Device opens a fresh device. The suite closes it. A device that stops whoever syncs with work that is held back
	// will not do: in driver/sim a Sync forces what it waits for.
	Device func(t testing.TB) driver.Device

	// New makes an allocator on a device. It gives back what it holds, and what it made the device with, when an
	// io.Closer is closed or, if it is none, when t's cleanups run. All blocks have been freed by then.
	New func(t testing.TB, dev driver.Device) mem.Allocator

	Alignment int64 // bytes: every block's address is a multiple of it; 0 is 256, as CUDA's are

	MaxBlock int64  // bytes of the largest ordinary request; 0 is 12 MiB
	Streams  int    // that blocks are allocated on, the default one among them; 0 is 4
	Ops      int    // operations of each random history; 0 is 1500
	Seeds    int    // random histories; 0 is 6
	Seed     uint64 // of the first of them; the others follow
	FaultOps int    // operations of each history in which every driver call fails in turn; 0 is 60

	// Reserved is how many bytes of the device the allocator keeps until it is closed, once it has been used and its
	// cache is empty.
	Reserved int64

	// Waits says that the allocator itself makes a stream wait for others that still use a block's memory, so that it
	// may hand the memory out before they are done.
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
