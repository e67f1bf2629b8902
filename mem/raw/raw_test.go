package raw_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/arena"
	_ "github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/raw"
)

const mib = 1 << 20

// The devices of tests have disjoint addresses, as the devices of one process do.
var nextBase struct {
	sync.Mutex
	at driver.Pointer
}

func newSim(t testing.TB) *sim.Device {
	nextBase.Lock()
	nextBase.at += 1 << 52
	base := nextBase.at
	nextBase.Unlock()
	dev := sim.New(sim.Options{Total: 1 << 30, Base: base, Unchecked: isBenchmark(t)})
	closing(t, dev)
	return dev
}

func isBenchmark(t testing.TB) bool { _, ok := t.(*testing.B); return ok }

func newHost(t testing.TB) driver.Device {
	dev, err := host.Open(host.Options{Total: 256 * mib})
	testkit.Must(t, err)
	closing(t, dev)
	return dev
}

// closing removes a device from the process when the test ends. No block may be live by then.
func closing(t testing.TB, dev driver.Device) {
	t.Cleanup(func() {
		if n := raw.CurrentBlocks().Len(); n != 0 {
			t.Errorf("%d blocks are still live", n)
		}
		raw.SetCurrent(dev, nil)
		testkit.Must(t, dev.Close())
	})
}

func alloc(t testing.TB, dev driver.Device, size int64) driver.Pointer {
	t.Helper()
	p, err := raw.Alloc(dev, size)
	testkit.Must(t, err)
	return p
}

// This checks the same as PyTorch's test of its raw interface: the caching allocator counts the requests that it
// serves, and no others.
func TestBehaviour15ARawAllocationWithoutCachingIsNotTheAllocators(t *testing.T) {
	dev := newSim(t)
	testkit.Must(t, raw.Init(dev))
	requested := func(a mem.Allocator) int64 {
		s, ok := mem.Find[mem.StatsReporter](a)
		if !ok {
			t.Fatalf("%T does not count", a)
		}
		stats := s.Stats()
		return stats.RequestedBytes.All.Current
	}
	pytorch, err := raw.Current(dev)
	testkit.Must(t, err)

	former := raw.NoCaching(dev)
	if former != pytorch {
		t.Errorf("NoCaching took %T away, not %T", former, pytorch)
	}
	before := requested(pytorch)
	uncached := alloc(t, dev, mib)
	if d := requested(pytorch) - before; d != 0 {
		t.Errorf("with caching off the allocator was asked for %d bytes", d)
	}
	raw.Delete(uncached)

	raw.SetCurrent(dev, former)
	cached := alloc(t, dev, mib)
	if d := requested(pytorch) - before; d != mib {
		t.Errorf("with caching on the allocator was asked for %d bytes, want 1 MiB", d)
	}
	raw.Delete(cached)
	if d := requested(pytorch) - before; d != 0 {
		t.Errorf("%d bytes are still requested", d)
	}
}

// Without a cache, each Delete calls the driver.
func TestNoCaching(t *testing.T) {
	dev := newSim(t)
	if former := raw.NoCaching(dev); former != nil {
		t.Errorf("a new device had %T", former)
	}
	p := alloc(t, dev, 5*mib)
	raw.Delete(p)
	if free, total, err := dev.Available(); err != nil || free != total {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	if name, err := raw.Name(dev); name != "direct" || err != nil {
		t.Errorf("the allocator is %q, %v", name, err)
	}
}

func TestInitAndName(t *testing.T) {
	one, other := newSim(t), newHost(t)
	if raw.Initialized(one) {
		t.Error("a new device is initialized")
	}
	testkit.Must(t, raw.Init(one, other))
	testkit.Must(t, raw.Init(one))
	if !raw.Initialized(one) || !raw.Initialized(other) {
		t.Error("Init left a device out")
	}
	if name, err := raw.Name(one); name != "caching" || err != nil {
		t.Errorf("the allocator is %q, %v", name, err)
	}
	a, err := raw.Current(one)
	testkit.Must(t, err)
	raw.SetCurrent(one, layer.NewLimiter(a, 10*mib))
	if name, _ := raw.Name(one); name != "caching" {
		t.Errorf("below an adaptor the allocator is %q", name)
	}
	if _, err := raw.Alloc(one, 11*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// An address alone finds its device and allocator, and the start of its block.
func TestDeleteFindsTheDevice(t *testing.T) {
	one, other := newSim(t), newHost(t)
	p, q := alloc(t, one, 3*mib), alloc(t, other, mib)
	for at, dev := range map[driver.Pointer]driver.Device{p: one, p + 3*mib - 1: one, q: other, q + 1: other} {
		if got, ok := raw.DeviceOf(at); got != dev || !ok {
			t.Errorf("%#x is of %v, %v", at, got, ok)
		}
	}
	inUse := func(dev driver.Device) int64 {
		stats, err := raw.Stats(dev)
		testkit.Must(t, err)
		return stats.AllocatedBytes.All.Current
	}
	raw.Delete(p)
	if inUse(one) != 0 || inUse(other) != mib {
		t.Errorf("%d and %d bytes in use", inUse(one), inUse(other))
	}
	if dev, ok := raw.DeviceOf(p); ok {
		t.Errorf("what was deleted is of %v", dev)
	}
	raw.Delete(q)
	raw.Delete(0)
	if p := alloc(t, one, 0); p != 0 {
		t.Errorf("no bytes are at %#x", p)
	}
}

func TestMisuse(t *testing.T) {
	dev := newSim(t)
	p := alloc(t, dev, 1000)
	for want, f := range map[string]func(){
		"raw: Delete of ":         func() { raw.Delete(p + 8) },
		"raw: RecordStream of ":   func() { raw.RecordStream(p-1, dev.DefaultStream()) },
		"raw: BaseAllocation of ": func() { _, _, _ = raw.BaseAllocation(p - 1) },
		"raw: IPCHandle of ":      func() { _, _ = raw.IPCHandle(1) },
	} {
		if got := testkit.Panic(t, f); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want a panic with %q", got, want)
		}
	}
	raw.Delete(p)
	if got := testkit.Panic(t, func() { raw.Delete(p) }); !strings.HasPrefix(got, "raw: Delete of ") {
		t.Errorf("a double free: %q", got)
	}
	for name, f := range map[string]func(){
		"Alloc":        func() { _, _ = raw.Alloc(dev, -1) },
		"AllocCurrent": func() { _, _ = raw.AllocCurrent(dev, dev.DefaultStream(), -1) },
		"AllocFrom":    func() { _, _ = raw.AllocFrom(dev, nil, dev.DefaultStream(), -1) },
	} {
		if got := testkit.Panic(t, f); got != "raw: Alloc of -1 bytes" {
			t.Errorf("%s of a negative size: %q", name, got)
		}
	}
}

// The block waits for a stream that was recorded at an address inside it.
func TestRecordStream(t *testing.T) {
	dev := newSim(t)
	s := dev.DefaultStream()
	side := drivertest.NewStream(t, dev)
	p, err := raw.AllocOn(dev, s, mib)
	testkit.Must(t, err)
	dev.Hold(side.ID())
	testkit.Must(t, side.Fill(p+100, 1, 10))
	raw.RecordStream(p+100, side)
	raw.Delete(p)
	if q := alloc(t, dev, mib); q == p {
		t.Error("a block was allocated while a recorded stream used it")
	} else {
		raw.Delete(q)
	}
	dev.Resume(side.ID())
	testkit.Must(t, side.Sync(context.Background()))
	if q := alloc(t, dev, mib); q != p {
		t.Error("a block did not come back when the recorded stream was done")
		raw.Delete(q)
	} else {
		raw.Delete(q)
	}
}

func TestBaseAllocation(t *testing.T) {
	dev := newSim(t)
	first, second := alloc(t, dev, 3*mib), alloc(t, dev, 4*mib) // of one segment of 20 MiB
	for _, p := range []driver.Pointer{first, second, second + 5} {
		if base, size, err := raw.BaseAllocation(p); base != first || size != 20*mib || err != nil {
			t.Errorf("%#x lies in %#x+%d, %v; want %#x+20 MiB", p, base, size, err, first)
		}
	}
	raw.Delete(first)
	raw.Delete(second)

	cfg := caching.Default()
	cfg.ExpandableSegments = true
	a, err := caching.New(dev, cfg)
	testkit.Must(t, err)
	raw.SetCurrent(dev, a)
	p := alloc(t, dev, mib)
	if _, _, err := raw.BaseAllocation(p); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "expandable") {
		t.Errorf("of an expandable segment: %v", err)
	}
	raw.Delete(p)

	raw.NoCaching(dev)
	p = alloc(t, dev, mib)
	if base, size, err := raw.BaseAllocation(p + mib - 1); base != p || size != mib || err != nil {
		t.Errorf("without a cache %#x lies in %#x+%d, %v", p, base, size, err)
	}
	raw.Delete(p)
}

// Asking for a base allocation leaves no mark in a recording: the allocator is asked for one block, not for a snapshot.
func TestBaseAllocationIsNoSnapshot(t *testing.T) {
	dev := newSim(t)
	p := alloc(t, dev, 3*mib)
	a, err := raw.Current(dev)
	testkit.Must(t, err)
	watched, ok := mem.Find[mem.Observable](a)
	if !ok {
		t.Fatalf("%T is not observable", a)
	}
	var events []mem.Event
	watched.Observe(func(e mem.Event) { events = append(events, e) })
	if base, size, err := raw.BaseAllocation(p + mib); base != p || size != 20*mib || err != nil {
		t.Errorf("%#x+%d, %v", base, size, err)
	}
	watched.Observe(nil)
	if len(events) != 0 {
		t.Errorf("it is recorded as %v", events)
	}
	raw.Delete(p)
}

// Under adaptors that allocate blocks of their own, the base allocation is still found, or an error says there is none.
func TestBaseAllocationBelowAdaptors(t *testing.T) {
	dev := newSim(t)
	for _, expandable := range []bool{false, true} {
		cfg := caching.Default()
		cfg.ExpandableSegments = expandable
		below, err := caching.New(dev, cfg)
		testkit.Must(t, err)
		raw.SetCurrent(dev, layer.NewGuard(below, layer.GuardOptions{}))
		p := alloc(t, dev, 3*mib)
		base, size, err := raw.BaseAllocation(p)
		if expandable != errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("expandable segments %v: %v", expandable, err)
		}
		if !expandable && (base > p || p-base >= 20*mib || size != 20*mib) {
			t.Errorf("%#x lies in %#x+%d", p, base, size)
		}
		raw.Delete(p)
		testkit.Must(t, below.Close())
	}
}

func TestMemoryFraction(t *testing.T) {
	dev := newSim(t)
	testkit.Must(t, raw.SetMemoryFraction(dev, 0.25))
	if _, err := raw.Alloc(dev, 300*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("300 MiB of a quarter of 1 GiB: %v", err)
	}
	if err := raw.SetMemoryFraction(dev, 2); err == nil {
		t.Error("a fraction of 2")
	}
	testkit.Must(t, raw.SetMemoryFraction(dev, 1))
	raw.Delete(alloc(t, dev, 300*mib))
}

// The fraction that was set last is returned, or 1 before, under any layers.
func TestDefect15_TheMemoryFractionIsTold(t *testing.T) {
	dev := newSim(t)
	want := func(want float64) {
		t.Helper()
		if f, err := raw.MemoryFraction(dev); err != nil || f != want {
			t.Errorf("%v, %v, want %v", f, err, want)
		}
	}
	want(1)
	testkit.Must(t, raw.SetMemoryFraction(dev, 0.25))
	want(0.25)
	if raw.SetMemoryFraction(dev, -1) == nil {
		t.Error("a fraction below 0")
	}
	want(0.25)
	a, err := raw.Current(dev)
	testkit.Must(t, err)
	raw.SetCurrent(dev, layer.NewCounter(a))
	want(0.25)
	testkit.Must(t, raw.SetMemoryFraction(dev, 1))
	want(1)
}

func TestReports(t *testing.T) {
	dev := newSim(t)
	p := alloc(t, dev, 30*mib)
	raw.Delete(p)
	stats, err := raw.Stats(dev)
	testkit.Must(t, err)
	if stats.ReservedBytes.All.Current != 30*mib || stats.AllocatedBytes.All.Peak != 30*mib || stats.Allocation.All.Allocated != 1 {
		t.Errorf("%+v", stats)
	}
	testkit.Must(t, raw.ResetPeakStats(dev))
	testkit.Must(t, raw.ResetAccumulatedStats(dev))
	if stats, err = raw.Stats(dev); err != nil || stats.AllocatedBytes.All.Peak != 0 || stats.Allocation.All.Allocated != 0 {
		t.Errorf("after resets %+v, %v", stats, err)
	}
	segments, err := raw.Snapshot(dev)
	if err != nil || len(segments) != 1 || segments[0].TotalSize != 30*mib || segments[0].Ptr != p {
		t.Errorf("%v, %v", segments, err)
	}
	if cached, largest, err := raw.CacheInfo(dev); cached != 30*mib || largest != (1024-30)*mib || err != nil {
		t.Errorf("%d bytes are cached, the largest request is %d, %v; want what the device has left", cached, largest, err)
	}
	testkit.Must(t, raw.EmptyCache())
	if free, total, err := dev.Available(); err != nil || free != total {
		t.Errorf("after EmptyCache %d of %d bytes free, %v", free, total, err)
	}
	whole := alloc(t, dev, 1000*mib)
	raw.Delete(whole)
	if cached, largest, err := raw.CacheInfo(dev); cached != 1000*mib || largest != 1000*mib || err != nil {
		t.Errorf("%d bytes are cached, the largest request is %d, %v; want what is cached", cached, largest, err)
	}
}

// An allocator that joins idle pages with new ones serves more than the larger of both, and no more than its limit.
func TestCacheInfoOfPages(t *testing.T) {
	dev := newSim(t)
	a, err := paged.New(dev, paged.Config{})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, a.Close()) })
	raw.SetCurrent(dev, a)
	p, q := alloc(t, dev, 30*mib), alloc(t, dev, 100*mib)
	raw.Delete(p)
	for _, x := range []struct {
		fraction float64
		largest  int64
	}{{1, (1024 - 100) * mib}, {0.5, (512 - 100) * mib}, {0.125, 28 * mib}, {0, 0}, {1, (1024 - 100) * mib}} {
		testkit.Must(t, raw.SetMemoryFraction(dev, x.fraction))
		if f, err := raw.MemoryFraction(dev); f != x.fraction || err != nil {
			t.Errorf("the fraction is %v, %v, want %v", f, err, x.fraction)
		}
		_, largest, err := raw.CacheInfo(dev)
		if largest != x.largest || err != nil {
			t.Errorf("fraction %v: the largest request is %d, %v, want %d", x.fraction, largest, err, x.largest)
		}
		if largest > 0 {
			raw.Delete(alloc(t, dev, largest))
		}
		if p, err := raw.Alloc(dev, largest+2*mib); err == nil {
			t.Errorf("fraction %v: a larger request was served, at %#x", x.fraction, p)
		}
	}
	raw.Delete(q)
}

// Delete waits for a stream that is passed to it, as for one passed to RecordStream.
func TestDeleteNamesStreams(t *testing.T) {
	dev := newSim(t)
	side := drivertest.NewStream(t, dev)
	p := alloc(t, dev, mib)
	dev.Hold(side.ID())
	testkit.Must(t, side.Fill(p, 1, 10))
	raw.Delete(p, side)
	q := alloc(t, dev, mib)
	if q == p {
		t.Error("a block was allocated while the stream that its Delete named used it")
	}
	raw.Delete(q)
	dev.Resume(side.ID())
}

// EmptyCache affects only existing caches: it opens no allocator, not even on a device that is being removed.
func TestEmptyCacheOpensNothing(t *testing.T) {
	one, other := newSim(t), newSim(t)
	raw.SetCurrent(one, giving{direct.New(one, direct.Config{}), func() { raw.SetCurrent(other, nil) }})
	raw.SetCurrent(other, direct.New(other, direct.Config{})) // whose turn is next
	testkit.Must(t, raw.EmptyCache())
	if raw.Initialized(other) {
		t.Error("EmptyCache opened an allocator")
	}
}

// giving is an allocator whose EmptyCache calls a function.
type giving struct {
	*direct.Allocator
	happens func()
}

func (g giving) EmptyCache() error { g.happens(); return g.Allocator.EmptyCache() }

// A replaced allocator can be closed only once its blocks are freed. A request to a closed allocator that is still
// current returns an error and does not panic.
func TestClosingTheFormer(t *testing.T) {
	for _, spec := range []string{"caching", "caching:expandable_segments:True", "direct", "direct:session=on", "bfc:limit=64MiB", "arena:size=16MiB"} {
		t.Run(spec, func(t *testing.T) {
			dev := newSim(t)
			open := func() mem.Allocator {
				a, err := mem.Open(spec, dev)
				testkit.Must(t, err)
				return a
			}
			former := open()
			closeIt := former.(io.Closer).Close
			raw.SetCurrent(dev, former)
			p := alloc(t, dev, mib)
			raw.SetCurrent(dev, open())
			q := alloc(t, dev, mib)
			if err := closeIt(); err == nil {
				t.Error("an allocator was closed while its block was live")
			}
			if got, ok := raw.DeviceOf(p + 1); got != driver.Device(dev) || !ok {
				t.Errorf("the block that was kept is of %v, %v", got, ok)
			}
			raw.Delete(p)
			testkit.Must(t, closeIt())
			was := raw.SetCurrent(dev, former)
			if p, err := raw.Alloc(dev, mib); p != 0 || err == nil {
				t.Errorf("a closed allocator gave %#x", p)
			}
			raw.Delete(q)
			testkit.Must(t, was.(io.Closer).Close())
			if free, total, err := dev.Available(); err != nil || free != total {
				t.Errorf("%d of %d bytes free, %v", free, total, err)
			}
		})
	}
}

// poor is an allocator without optional abilities.
type poor struct{ a *direct.Allocator }

func (x poor) Alloc(s driver.Stream, size int64) (mem.Block, error) { return x.a.Alloc(s, size) }
func (x poor) Free(b mem.Block, used ...driver.Stream)              { x.a.Free(b, used...) }

// If an allocator lacks an ability, the error names the allocator and the ability.
func TestWhatIsLacking(t *testing.T) {
	dev := newSim(t)
	raw.SetCurrent(dev, poor{direct.New(dev, direct.Config{})})
	p := alloc(t, dev, mib)
	for call, f := range map[string]func() error{
		"BaseAllocation":        func() error { _, _, err := raw.BaseAllocation(p); return err },
		"MemoryFraction":        func() error { _, err := raw.MemoryFraction(dev); return err },
		"SetMemoryFraction":     func() error { return raw.SetMemoryFraction(dev, 0.5) },
		"EmptyCache":            raw.EmptyCache,
		"CacheInfo":             func() error { _, _, err := raw.CacheInfo(dev); return err },
		"Enable":                func() error { return raw.Enable(dev, false) },
		"Enabled":               func() error { _, err := raw.Enabled(dev); return err },
		"Stats":                 func() error { _, err := raw.Stats(dev); return err },
		"ResetPeakStats":        func() error { return raw.ResetPeakStats(dev) },
		"ResetAccumulatedStats": func() error { return raw.ResetAccumulatedStats(dev) },
		"Snapshot":              func() error { _, err := raw.Snapshot(dev); return err },
	} {
		err := f()
		if !errors.Is(err, driver.ErrUnsupported) || !strings.HasPrefix(err.Error(), "raw: "+call+": the allocator raw_test ") {
			t.Errorf("%s: %v", call, err)
		}
	}
	for call, f := range map[string]func() error{
		"EnablePeer":    func() error { return raw.EnablePeer(dev, newSim(t)) },
		"Copy":          func() error { return raw.Copy(dev.DefaultStream(), p, newSim(t), p, dev, 1) },
		"IPCHandle":     func() error { _, err := raw.IPCHandle(p); return err },
		"OpenIPCHandle": func() error { _, _, err := raw.OpenIPCHandle(dev, raw.Handle{}); return err },
	} {
		if err := f(); !errors.Is(err, driver.ErrUnsupported) || !strings.HasPrefix(err.Error(), "raw: "+call+": ") ||
			!strings.Contains(err.Error(), "sim 0") {
			t.Errorf("%s: %v", call, err)
		}
	}
	raw.Delete(p)
}

// Callers of all functions run concurrently while allocators are replaced. No block's contents change, and in the end
// no memory is lost.
func TestConcurrent(t *testing.T) {
	const seed = 15
	t.Logf("seed %d", seed)
	devs := []driver.Device{newHost(t), newHost(t)}
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			var mine []driver.Pointer
			for i := range 400 {
				dev := devs[rng.IntN(2)]
				p, err := raw.Alloc(dev, 1+rng.Int64N(2*mib))
				if err != nil {
					t.Error(err)
					return
				}
				if got, ok := raw.DeviceOf(p); got != dev || !ok {
					t.Errorf("%#x is of another device", p)
				}
				raw.RecordStream(p, dev.DefaultStream())
				mine = append(mine, p)
				if len(mine) > 8 || rng.IntN(3) == 0 {
					at := rng.IntN(len(mine))
					raw.Delete(mine[at])
					mine[at] = mine[len(mine)-1]
					mine = mine[:len(mine)-1]
				}
				if i%50 == 0 {
					if _, err := raw.Stats(dev); err != nil {
						t.Error(err)
					}
				}
			}
			for _, p := range mine {
				raw.Delete(p)
			}
		})
	}
	var former []mem.Allocator
	workers.Go(func() {
		for range 10 {
			for _, dev := range devs {
				if was := raw.NoCaching(dev); was != nil {
					former = append(former, was)
				}
				a, err := caching.New(dev, caching.Default())
				if err != nil {
					t.Error(err)
					return
				}
				former = append(former, raw.SetCurrent(dev, a))
			}
			if err := raw.EmptyCache(); err != nil {
				t.Error(err)
			}
		}
	})
	workers.Wait()
	for _, a := range former {
		testkit.Must(t, a.(interface{ Close() error }).Close()) // which refuses while a block is live
	}
	testkit.Must(t, raw.EmptyCache())
	for _, dev := range devs {
		if free, total, err := dev.Available(); err != nil || free != total {
			t.Errorf("%d of %d bytes free, %v", free, total, err)
		}
	}
}

func TestDefect15_CachingIsTurnedOffAndOn(t *testing.T) {
	dev := newSim(t)
	cached := alloc(t, dev, mib)
	if on, err := raw.Enabled(dev); !on || err != nil {
		t.Errorf("enabled %v, %v", on, err)
	}
	testkit.Must(t, raw.Enable(dev, false))
	uncached := alloc(t, dev, mib)
	if stats, err := raw.Stats(dev); err != nil || stats.Allocation.All.Current != 1 {
		t.Errorf("%d blocks are counted, %v", stats.Allocation.All.Current, err)
	}
	if on, err := raw.Enabled(dev); on || err != nil {
		t.Errorf("enabled %v, %v", on, err)
	}
	raw.Delete(cached)
	testkit.Must(t, raw.Enable(dev, true))
	raw.Delete(uncached)
}
