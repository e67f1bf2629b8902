// Package campaign tests the allocators on random histories of many seeds: one seed by default, as many as you like with
//
//		make campaign SEEDS=50 OPS=40000
//
//	  - TestCampaign runs the suite of mem/memtest on every allocator under several settings, on a simulated device whose
//	    work completes at random, and with shorter histories on host memory. Every driver call of some histories fails in
//	    turn.
//	  - TestCachingIsAsDocumented compares mem/caching block by block with a second model, made from PyTorch's
//	    documentation in another style.
//	  - TestMetamorphicRelations runs the same history in other ways that must not change its results.
//	  - TestContentsByteForByte checks every byte of every block when it is freed.
//	  - TestTenants lets tenants share an allocator, with captures and closed streams: none reads a byte of another.
//	    TestTenantsAfterFaults does so while calls of the device fail.
//	  - TestWaiting lets goroutines wait for room, on virtual time.
//
// A failure names its seed and prints a shrunk script; -seed starts there again. Scripts in testdata are run each time.
// With -v the run ends with the number and the rate of the operations that each test has really done, its checks aside.
package campaign

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 1, "how many seeds")
	ops       = flag.Int("ops", 100, "operations of each random history on simulated devices")
)

const mib = 1 << 20

// A part is one of the tests: the operations that it has done, and the time they took.
type part struct {
	name string
	done atomic.Int64
	took time.Duration
}

var parts []*part

// A subject is an allocator under some settings.
type subject struct {
	name string
	cfg  memtest.Config // what the suite is to know of it
	make func(dev driver.Device) (mem.Allocator, error)
}

func subjects() (all []subject) {
	add := func(name string, cfg memtest.Config, open func(driver.Device) (mem.Allocator, error)) {
		all = append(all, subject{name, cfg, open})
	}
	for _, text := range []string{
		"",
		"expandable_segments:True",
		"max_split_size_mb:21",
		"roundup_power2_divisions:4",
		"garbage_collection_threshold:0.5,limit:256MiB",
		"expandable_segments:True,garbage_collection_threshold:0.3,max_split_size_mb:64,limit:300MiB",
	} {
		add("caching:"+text, memtest.Config{}, func(dev driver.Device) (mem.Allocator, error) { return cached(dev, text) })
	}
	add("magazine", memtest.Config{LowRequestedPeak: true}, func(dev driver.Device) (mem.Allocator, error) {
		below, err := cached(dev, "")
		if err != nil {
			return nil, err
		}
		return magazine.New(below, magazine.Options{}), nil
	})
	for name, c := range map[string]direct.Config{"direct": {}, "direct:session": {Session: true}} {
		add(name, memtest.Config{}, func(dev driver.Device) (mem.Allocator, error) { return direct.New(dev, c), nil })
	}
	waits := memtest.Config{Waits: true}
	for name, c := range map[string]bfc.Config{"bfc": {}, "bfc:virtual": {Virtual: true}} {
		add(name, waits, func(dev driver.Device) (mem.Allocator, error) { return bfc.New(dev, c) })
	}
	waits.Alignment = 512
	// The suite has up to 160 MiB live, and wants room for them.
	for name, c := range map[string]paged.Config{
		"paged": {}, "paged:limit": {Limit: 192 * mib}, "paged:returning": {Keep: paged.KeepNone}, "paged:plain": {NoAliases: true},
	} {
		add(name, waits, func(dev driver.Device) (mem.Allocator, error) { return paged.New(dev, c) })
	}
	waits.Reserved = mib / 16
	add("arena:pages", waits, func(dev driver.Device) (mem.Allocator, error) {
		return arena.New(dev, arena.Config{Page: 8 * mib, Bounce: mib / 16})
	})
	return all
}

func cached(dev driver.Device, settings string) (mem.Allocator, error) {
	cfg, _, err := caching.ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	return caching.New(dev, cfg)
}

func TestCampaign(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, p *part) {
		for _, s := range subjects() {
			c := s.cfg
			c.Sim = sim.Options{Total: 512 * mib, Seed: seed, Completion: sim.AtRandom}
			c.Ops, c.Seeds, c.Seed = min(*ops, longest), (*ops+longest-1)/longest, seed<<32
			c.FaultOps, c.Operations = 12, &p.done
			construct := func(dev driver.Device, _ struct{}) (mem.Allocator, error) { return s.make(dev) }
			memtest.RunAll(t, c, construct, map[string]struct{}{s.name: {}})
		}
	})
}

// eachSeed runs a test for every seed, as many at once as there are processors.
func eachSeed(t *testing.T, test func(t *testing.T, seed uint64, p *part)) {
	p, start := &part{name: t.Name()}, time.Now()
	parts = append(parts, p)
	t.Cleanup(func() { p.took = time.Since(start) })
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			t.Parallel()
			test(t, seed, p)
		})
	}
}

// longest is the number of operations of the longest history: they are short enough to be shrunk.
const longest = 8000

// histories yields sources of random numbers for histories of about n operations in all, and the length of each.
func histories(seed, kind uint64, n int) iter.Seq2[*rand.Rand, int] {
	return func(yield func(*rand.Rand, int) bool) {
		for i := 0; i < n; i += longest {
			if !yield(rand.New(rand.NewPCG(seed, kind<<32+uint64(i/longest))), min(longest, n-i)) {
				return
			}
		}
	}
}

// TestMain says at the end of a run, with -v, the command, how many operations the tests have done, and their rates.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the heaps are small, and most of the time is spent in allocating
	start := time.Now()
	code := m.Run()
	if testing.Verbose() {
		all := part{name: "all", took: time.Since(start)}
		fmt.Println(strings.Join(os.Args, " "))
		for _, p := range parts {
			fmt.Println(p)
			all.done.Add(p.done.Load())
		}
		fmt.Println(&all)
	}
	os.Exit(code)
}

func (p *part) String() string {
	n := p.done.Load()
	return fmt.Sprintf("%s: %d operations in %v, %.0f a second", p.name, n, p.took.Round(time.Second/10), float64(n)/p.took.Seconds())
}
