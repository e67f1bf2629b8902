// Package backendtest is the suite that every backend passes: what the doc comments of package backend promise, as
// tests.
//
// A backend's own test calls Run with a function that opens a device, an allocator and the backend. The suite asks for
// nothing but the contract, and works in three layers:
//
//   - trial: one call of the backend. Its operands lie in memory of random layout (axes permuted, gaps, negative strides,
//     strides of 0 for inputs, an offset), filled with random bytes. Afterwards every byte of every operand is looked at:
//     the elements of the result are judged one by one, everything else must be as it was. So a trial finds what is
//     written into gaps, before or after the elements, or into inputs.
//   - reference: what is right, computed in plain Go one element at a time, by code that shares nothing with any backend:
//     integers exactly, floats in float64 or, where that is not enough, with 240 bits (precise.go). Formats narrower than
//     float32 are encoded and decoded by their definition here.
//   - check: the trials of one method, for every operation and type that the contract names.
//
// # What is right
//
// Results that the contract determines are compared bit for bit (NaNs with NaNs, and zeros without their sign where
// nothing says which): moves, conversions, integers, comparisons, sorting, random numbers, and additions, subtractions,
// multiplications, divisions, square roots and roundings of floats. Others have a bound, in bound.go and beside each
// check: a number of units in the last place of the type computed in, as GPU vendors' libraries state theirs, or the
// rounding errors of a sum. A result then lies between the lower and the upper bound, both rounded to the type stored,
// which so covers overflow, subnormal numbers and the rounding to 16 bits alike.
//
// # Scratch
//
// The allocator that the backend gets fills each block with garbage, in stream order, before it hands it out and when
// it comes back: scratch that is taken to be zero, or used by work that was queued after it was freed, shows in
// results. After each trial no block may be left.
//
// Everything follows from Config.Seed, which failures name. Nothing depends on time. The suite does not test speed.
package backendtest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

// A Rig is a backend to test, and what it works with.
type Rig struct {
	Device  driver.Device   // if it is Visible, operands have Bytes, and some are Go's own memory
	Queue   backend.Queue   // a stream of the device, and an allocator of its memory
	Backend backend.Backend // not used by anyone else; the suite closes it
}

// Config says what the suite tests, and how much.
type Config struct {
	// Open makes a rig. What it opens it closes with t.Cleanup, but for the backend, which the suite closes first.
	Open func(t testing.TB) Rig

	// Seed determines all inputs. A test passes a fresh one each time, and one that a flag gives to repeat a failure.
	Seed uint64

	Rounds int // random trials of each operation and type; 0 is 3
}

// checks is the suite.
var checks = []struct {
	name string
	run  func(*suite)
}{
	{"Fill", checkFill},
	{"Copy", checkCopy},
	{"Arange", checkArange},
	{"Unary", checkUnary},
	{"Binary", checkBinary},
	{"Where", checkWhere},
	{"Reduce", checkReduce},
	{"ArgReduce", checkArgReduce},
	{"Softmax", checkSoftmax},
	{"Norm", checkNorm},
	{"Gather", checkGather},
	{"IndexSelect", checkIndexSelect},
	{"ScatterAdd", checkScatterAdd},
	{"Sort", checkSort},
	{"TopK", checkTopK},
	{"MatMul", checkMatMul},
	{"Random", checkRandom},
	{"Unsupported", checkUnsupported},
	{"Failed", checkFailed},
	{"Concurrent", checkConcurrent},
}

// Run runs the suite. It opens one rig for each check.
func Run(t *testing.T, cfg Config) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the heap is small, and what is allocated soon dies
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { runCheck(t, cfg, c.name, c.run) })
	}
}

// runCheck runs one check on a rig of its own.
func runCheck(t testing.TB, cfg Config, name string, run func(*suite)) {
	if cfg.Open == nil {
		panic("backendtest: Config.Open must be set")
	}
	cfg.Rounds = cmp.Or(cfg.Rounds, 3)
	t.Logf("seed %d", cfg.Seed)
	rig := cfg.Open(t)
	t.Cleanup(func() {
		if err := rig.Backend.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	h := fnv.New64a()
	h.Write([]byte(name))
	s := &suite{
		TB: t, rig: rig, seed: cfg.Seed, rounds: cfg.Rounds, memory: rig.Queue.Scratch, failed: map[string]bool{},
		rng: rand.New(rand.NewPCG(cfg.Seed, h.Sum64())),
	}
	s.scratch = &scratchAllocator{inner: rig.Queue.Scratch, live: map[driver.Pointer]scratchBlock{}}
	s.queue = backend.Queue{Stream: rig.Queue.Stream, Scratch: s.scratch}
	run(s)
}

// pick returns one of list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// oneIn reports true once in n times.
func (s *suite) oneIn(n int) bool { return s.rng.IntN(n) == 0 }

func describe(array backend.Array) string {
	return fmt.Sprintf("%v shape %v strides %v offset %d", array.DType, array.Shape, array.Strides, array.Offset)
}
