package layer_test

import (
	"errors"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// silent is an allocator without reports, for adaptors above which those of the allocator below are of other blocks.
type silent struct{ below mem.Allocator }

func (a silent) Alloc(s driver.Stream, size int64) (mem.Block, error) { return a.below.Alloc(s, size) }
func (a silent) Free(b mem.Block, used ...driver.Stream)              { a.below.Free(b, used...) }
func (a silent) Movable(b mem.Block, h mem.Holder) bool               { return mem.Movable(a.below, b, h) }

func (a silent) EmptyCache() error {
	if t, ok := mem.Find[mem.Trimmer](a.below); ok {
		return t.EmptyCache()
	}
	return nil
}

func (a silent) Close() error {
	if c, ok := a.below.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// movingSilent compacts too.
type movingSilent struct {
	silent
	mem.Compactor
}

func (a movingSilent) Movable(b mem.Block, h mem.Holder) bool { return a.silent.Movable(b, h) }

// hide takes the reports away from an allocator.
func hide(a mem.Allocator) mem.Allocator {
	if c, ok := a.(mem.Compactor); ok {
		return movingSilent{silent{a}, c}
	}
	return silent{a}
}

func newCaching(t testing.TB, dev driver.Device) mem.Allocator {
	t.Helper()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The arena's region, and a device that has little else: the suite takes it for what is left.
const (
	arenaSize   = 16<<20 - 4096
	arenaBounce = 64 << 10
	arenaBlock  = 4<<20 - 2
)

func newArena(t testing.TB, dev driver.Device) mem.Allocator {
	t.Helper()
	a, err := arena.New(dev, arena.Config{Size: arenaSize, Bounce: arenaBounce})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// adaptors are all of them, each as it may be found in a program. Those that change blocks have reports taken away
// below.
var adaptors = []struct {
	name    string
	changes bool // addresses, sizes or what is asked for
	moves   bool // follows blocks that are moved
	over    func(t testing.TB, dev driver.Device, below mem.Allocator) mem.Allocator
}{
	{"limit", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator { return layer.NewLimiter(a, 1<<40) }},
	{"track", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewLeakTracker(a, layer.LeakTrackerOptions{Depth: -1, Freed: 4})
	}},
	{"scope", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator { return layer.NewScope(a) }},
	{"measure", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator { return layer.NewCounter(a) }},
	{"log", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewLogger(a, io.Discard, nil)
	}},
	{"zero", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator { return layer.NewZeroer(a) }},
	{"prefetch", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator { return layer.NewPrefetcher(a, nil) }},
	{"retry", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		spill := func(driver.Stream, int64) error { return errors.New("nothing to spill") }
		return layer.NewRetry(a, layer.RetryOptions{Steps: []layer.Step{layer.TrimStep(a), spill}})
	}},
	{"quota", false, true, func(t testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		tenant, err := layer.NewQuotas(a, 1<<40).Tenant("one", 1<<20, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		return tenant
	}},
	{"route", false, true, func(t testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		q := layer.NewQuotas(a, 1<<40)
		tenants := tenantsOf(t, q, 2)
		return q.Route(func(s driver.Stream) *layer.Tenant { return tenants[s.ID()%2] })
	}},
	{"tracked", false, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewSizeTracker(a, layer.SizeTrackerOptions{})
	}},
	{"align", true, false, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewAligner(a, 4096, layer.AlignerOptions{Above: 1000})
	}},
	{"guard", true, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewGuard(a, layer.GuardOptions{})
	}},
	{"slab", true, false, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator { return layer.NewSlabs(a, 4096, 16) }},
	{"fallback", true, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewFallback(layer.NewLimiter(a, 1<<20), a)
	}},
	{"binning", true, true, func(_ testing.TB, _ driver.Device, a mem.Allocator) mem.Allocator {
		return layer.NewBinning(a, layer.Bin{Size: 64 << 10, Allocator: a}, layer.Bin{Size: 1024, Allocator: layer.NewLimiter(a, 1<<40)})
	}},
}

// olderAdaptors are the first of the list, which have conformance tests elsewhere.
const olderAdaptors = 3

// Each adaptor passes the conformance suite, like the allocator below it.
func TestAdaptorConformance(t *testing.T) {
	for _, ad := range adaptors[olderAdaptors:] {
		t.Run(ad.name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Sim: sim.Options{Completion: sim.AtRandom, Seed: 11},
				New: func(t testing.TB, dev driver.Device) mem.Allocator {
					below := newCaching(t, dev)
					if ad.changes {
						below = hide(below)
					}
					return ad.over(t, dev, below)
				},
				Ops: 120, Seeds: 1, FaultOps: 6,
			})
		})
	}
}

// Each adaptor that can lets the arena below it move blocks, and follows them.
func TestAdaptorConformanceOverMoves(t *testing.T) {
	for i, ad := range adaptors {
		t.Run(ad.name, func(t *testing.T) {
			dev := drivertest.OpenSim(t, arenaSize+arenaBounce+144<<10)
			a := ad.over(t, dev, newArena(t, dev))
			b, err := a.Alloc(dev.DefaultStream(), 512)
			if err != nil {
				t.Fatal(err)
			}
			if got := mem.Movable(a, b, stuck{}); got != ad.moves {
				t.Errorf("Movable is %v", got)
			}
			a.Free(b)
			if !ad.moves || i < olderAdaptors {
				return
			}
			memtest.Run(t, memtest.Config{
				Sim: sim.Options{Total: arenaSize + arenaBounce + 144<<10},
				New: func(t testing.TB, dev driver.Device) mem.Allocator {
					below := newArena(t, dev)
					if ad.changes {
						below = hide(below)
					}
					return ad.over(t, dev, below)
				},
				MaxBlock: arenaBlock, Reserved: arenaSize + arenaBounce, Waits: true, Ops: 80, Seeds: 1, FaultOps: 4,
			})
		})
	}
}

// stuck is a holder that refuses.
type stuck struct{}

func (stuck) BeginMove() ([]driver.Stream, bool)   { return nil, false }
func (stuck) EndMove(b mem.Block, _ driver.Stream) {}
