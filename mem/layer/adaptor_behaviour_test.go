package layer_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// eachAdaptor runs a test over every adaptor, on a device with an allocator of its own.
func eachAdaptor(t *testing.T, run func(t *testing.T, dev *sim.Device, over func(mem.Allocator) mem.Allocator)) {
	for _, ad := range adaptors {
		t.Run(ad.name, func(t *testing.T) {
			dev := drivertest.OpenSim(t, 256<<20)
			run(t, dev, func(below mem.Allocator) mem.Allocator { return ad.over(t, dev, below) })
		})
	}
}

// A stream that is closed while its blocks are live breaks neither their frees nor later requests.
func TestBehaviour81_AdaptorsOutliveStreams(t *testing.T) {
	eachAdaptor(t, func(t *testing.T, dev *sim.Device, over func(mem.Allocator) mem.Allocator) {
		a := over(newCaching(t, dev))
		for range 3 {
			s := drivertest.NewStream(t, dev)
			u := drivertest.NewStream(t, dev)
			var blocks []mem.Block
			for _, size := range []int64{100, 5000, 2 << 20} {
				b, err := a.Alloc(s, size)
				testkit.Must(t, err)
				testkit.Must(t, s.Fill(b.Ptr, 1, b.Size))
				blocks = append(blocks, b)
			}
			testkit.Must(t, s.Close())
			testkit.Must(t, u.Close())
			for _, b := range blocks {
				a.Free(b, u)
			}
			for _, size := range []int64{100, 5000, 2 << 20} {
				b, err := a.Alloc(dev.DefaultStream(), size)
				testkit.Must(t, err)
				testkit.Must(t, dev.DefaultStream().Fill(b.Ptr, 2, b.Size))
				a.Free(b)
			}
		}
	})
}

// late is an allocator that is slow to free a block: another caller gets the address before Free returns.
type late struct {
	mem.Allocator
	after func()
}

func (a *late) Free(b mem.Block, used ...driver.Stream) {
	a.Allocator.Free(b, used...)
	if f := a.after; f != nil {
		a.after = nil
		f()
	}
}

func (a *late) Unwrap() mem.Allocator { return a.Allocator }

// The address that another goroutine gets before Free has returned belongs to its block.
func TestBehaviour86_AdaptorsOfASlowFree(t *testing.T) {
	eachAdaptor(t, func(t *testing.T, dev *sim.Device, over func(mem.Allocator) mem.Allocator) {
		below := &late{Allocator: newCaching(t, dev)}
		a := over(below)
		s := dev.DefaultStream()
		b, err := a.Alloc(s, 5000)
		testkit.Must(t, err)
		var c mem.Block
		below.after = func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				if c, err = a.Alloc(s, 5000); err != nil {
					t.Error(err)
				}
			}()
			<-done
		}
		a.Free(b)
		if c.Ptr != b.Ptr {
			t.Fatalf("%+v is not at the address of %+v", c, b)
		}
		if m, ok := a.(*layer.Counter); ok && m.Usage().Blocks.Current != 1 {
			t.Errorf("the statistics say %+v", m.Usage())
		}
		a.Free(c)
	})
}

// A block that is on its way back when the allocator below compacts stays where it is, though its holder says yes
// still; and the holder hears the end of it.
func TestAdaptorsLetNothingMoveThatIsFreed(t *testing.T) {
	for name, over := range map[string]func(mem.Allocator) mem.Allocator{
		"fallback": func(a mem.Allocator) mem.Allocator { return layer.NewFallback(a, a) },
		"binning":  func(a mem.Allocator) mem.Allocator { return layer.NewBinning(a) },
		"guard":    func(a mem.Allocator) mem.Allocator { return layer.NewGuard(a, layer.GuardOptions{}) },
		"quota": func(a mem.Allocator) mem.Allocator {
			tenant, err := layer.NewQuotas(a, 1<<30).Tenant("one", 0, 1<<30)
			testkit.Must(t, err)
			return tenant
		},
	} {
		below := &slidingAllocator{}
		a := over(below)
		hole, err := a.Alloc(idle{}, 100)
		testkit.Must(t, err)
		b, err := a.Alloc(idle{}, 100)
		testkit.Must(t, err)
		o := &owner{block: b}
		if !mem.Movable(a, b, o) {
			t.Fatalf("%s: Movable is false", name)
		}
		a.Free(hole)
		below.between = func() {
			below.between = nil
			below.onFree = func() { panic("the allocator below is told") }
			testkit.Contains(t, testkit.Panic(t, func() { a.Free(b) }), "not live", "is being moved")
		}
		testkit.Must(t, below.Compact(idle{}))
		from := b.Ptr
		if b = o.block; b.Ptr >= from || o.lifts != 1 || o.lands != 1 {
			t.Errorf("%s: %d lifts and %d landings have brought it to %+v", name, o.lifts, o.lands, b)
		}
		if _, err = a.Alloc(idle{}, 1); err != nil {
			t.Fatal(err)
		}
		below.onFree = func() {
			below.onFree = nil
			testkit.Must(t, below.Compact(idle{}))
		}
		a.Free(b)
		if o.lifts != 2 || o.lands != 2 || o.block != b || len(below.blocks) != 1 {
			t.Errorf("%s: %d lifts, %d landings, at %+v; %d blocks are left", name, o.lifts, o.lands, o.block, len(below.blocks))
		}
	}
}

// A nil stream is noticed before anything has changed.
func TestAdaptorsFreeWithANilStream(t *testing.T) {
	eachAdaptor(t, func(t *testing.T, dev *sim.Device, over func(mem.Allocator) mem.Allocator) {
		below := newCaching(t, dev)
		a := over(below)
		b, err := a.Alloc(dev.DefaultStream(), 100)
		testkit.Must(t, err)
		if got := testkit.Panic(t, func() { a.Free(b, nil) }); !strings.HasSuffix(got, ": Free with a nil stream") {
			t.Errorf("panicked with %v", got)
		}
		a.Free(b) // it is live still
		trimmer, _ := mem.Find[mem.Trimmer](a)
		testkit.Must(t, trimmer.EmptyCache())
		if n := below.(mem.StatsReporter).Stats().Allocation.All.Current; n != 0 {
			t.Errorf("%d blocks are left", n)
		}
	})
}

// Goroutines that allocate on one goroutine and free on another, on streams of their own and on others.
func TestBehaviour90_AdaptorsAcrossGoroutines(t *testing.T) {
	eachAdaptor(t, func(t *testing.T, dev *sim.Device, over func(mem.Allocator) mem.Allocator) {
		below := newCaching(t, dev)
		a := over(below)
		var streams [4]driver.Stream
		for i := range streams {
			s := drivertest.NewStream(t, dev)
			streams[i] = s
		}
		blocks := make(chan mem.Block, 16)
		var allocs, frees sync.WaitGroup
		for i := range 4 {
			allocs.Go(func() {
				for j := range 100 {
					b, err := a.Alloc(streams[(i+j%2)%4], int64(1+j*j))
					if err != nil {
						t.Error(err)
						return
					}
					blocks <- b
				}
			})
			frees.Go(func() {
				for b := range blocks {
					a.Free(b, streams[i])
				}
			})
		}
		allocs.Wait()
		close(blocks)
		frees.Wait()
		trimmer, _ := mem.Find[mem.Trimmer](a)
		testkit.Must(t, trimmer.EmptyCache())
		if r := below.(mem.StatsReporter).Stats(); r.Allocation.All.Current != 0 || r.ReservedBytes.All.Current != 0 {
			t.Errorf("%d blocks and %d bytes are left", r.Allocation.All.Current, r.ReservedBytes.All.Current)
		}
	})
}

// No adaptor of plain memory allocates on Go's heap for a warm pair of Alloc and Free.
func TestAdaptorsAllocateNothingEither(t *testing.T) {
	for _, ad := range benchAdaptors() {
		pair := func(a mem.Allocator) func() {
			return func() {
				b, _ := a.Alloc(idle{}, 1000)
				a.Free(b)
			}
		}
		if n := testing.AllocsPerRun(500, pair(ad.a)); n > 0 {
			t.Errorf("%s: %v heap allocations for each pair of Alloc and Free", ad.name, n)
		}
	}
}
