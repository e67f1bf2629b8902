package raw_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// currentOf makes a device with addresses of its own and a its current allocator, until the test ends.
func currentOf(t testing.TB, base driver.Pointer, a mem.Allocator) driver.Device {
	t.Helper()
	dev := sim.New(sim.Options{Total: 1 << 30, Base: base})
	if was := raw.SetCurrent(dev, a); was != nil {
		t.Errorf("a new device had a current allocator, %T", was)
	}
	t.Cleanup(func() {
		raw.SetCurrent(dev, nil)
		if n := raw.CurrentBlocks().Len(); n != 0 {
			t.Errorf("%d blocks are still live", n)
		}
	})
	return dev
}

// openingDevice is a device that determines how its allocator is opened.
type openingDevice struct {
	driver.Device
	open func() (mem.Allocator, error)
}

func (*openingDevice) Info() driver.Info { return driver.Info{Driver: "opening"} }

func init() {
	mem.Register("opening", "opening", 1000, func(dev driver.Device, _ string) (mem.Allocator, error) {
		return dev.(*openingDevice).open()
	})
}

// Without SetCurrent the current allocator is that of Open, opened once, by any of several goroutines.
func TestCurrentOpensTheDefault(t *testing.T) {
	const callers = 8
	var calling sync.WaitGroup
	calling.Add(callers)
	opened := 0
	dev := &openingDevice{open: func() (mem.Allocator, error) {
		opened++
		calling.Wait() // all want it
		return fake.NewPile(512), nil
	}}
	defer raw.SetCurrent(dev, nil)
	if _, has := raw.FindCurrent(dev); has || slices.Contains(raw.CurrentDevices(), driver.Device(dev)) {
		t.Error("a device has a current allocator without a request")
	}
	var got [callers]mem.Allocator
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			calling.Done()
			var err error
			if got[i], err = raw.Current(dev); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, a := range got {
		if a != got[0] {
			t.Error("callers got different allocators")
		}
	}
	if a, has := raw.FindCurrent(dev); opened != 1 || !has || a != got[0] || !slices.Contains(raw.CurrentDevices(), driver.Device(dev)) {
		t.Errorf("%d allocators were opened for one device", opened)
	}
}

// If the allocator cannot be opened, each call returns an error, and no allocator becomes current.
func TestCurrentFailsToOpen(t *testing.T) {
	failure := errors.New("no allocator today")
	dev := &openingDevice{open: func() (mem.Allocator, error) { return nil, failure }}
	for range 2 {
		if _, err := raw.Current(dev); err != failure {
			t.Errorf("%v, want the error of the allocator", err)
		}
	}
	if p, err := raw.AllocCurrent(dev, fake.S0, 1); p != 0 || err != failure {
		t.Errorf("%#x, %v", p, err)
	}
	if a, has := raw.FindCurrent(dev); a != nil || has {
		t.Errorf("%T is current", a)
	}
}

// Blocks are freed by the allocator that allocated them, even if another one, or none, is current by then.
func TestSetCurrentKeepsBlocks(t *testing.T) {
	first, second := fake.NewPile(512), fake.NewPile(512)
	second.Next = 1 << 20
	dev := currentOf(t, 0, first)
	p, err := raw.AllocCurrent(dev, fake.S0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if was := raw.SetCurrent(dev, second); was != mem.Allocator(first) {
		t.Errorf("the former is %T", was)
	}
	q, err := raw.AllocCurrent(dev, fake.S0, 100)
	if err != nil || q == p {
		t.Fatalf("%#x, %v", q, err)
	}
	if l, ok := raw.CurrentBlocks().Holding(p + 511); !ok || l.Ptr != p || l.From != mem.Allocator(first) || l.Device != dev {
		t.Errorf("the block is %v, %v", l, ok)
	}
	if l, ok := raw.CurrentBlocks().Holding(p + 512); ok {
		t.Errorf("behind the block is %v", l)
	}
	if len(first.Live) != 1 || len(second.Live) != 1 {
		t.Errorf("%d and %d live blocks", len(first.Live), len(second.Live))
	}
	raw.CurrentBlocks().Free(p, fake.S1)
	if len(first.Live) != 0 || len(second.Live) != 1 {
		t.Errorf("%d and %d live blocks after the first's was freed", len(first.Live), len(second.Live))
	}
	if was := raw.SetCurrent(dev, nil); was != mem.Allocator(second) {
		t.Errorf("the former is %T", was)
	}
	if a, has := raw.FindCurrent(dev); has || slices.Contains(raw.CurrentDevices(), dev) {
		t.Errorf("%T is current still", a)
	}
	raw.CurrentBlocks().Free(q)
	if len(second.Live) != 0 {
		t.Error("a block did not go back to its allocator once the device had none")
	}
}

// If the allocator is closed during a request, the request goes to the allocator that replaced it.
func TestAllocCurrentTriesTheNewOne(t *testing.T) {
	closed, open := fake.NewPile(512), fake.NewPile(512)
	gone := errors.New("closed")
	closed.Fail = gone
	dev := currentOf(t, 0, closed)
	if _, err := raw.AllocCurrent(dev, fake.S0, 1); err != gone {
		t.Errorf("%v, want the error of the allocator", err)
	}
	closed.Fail = gone
	raw.SetCurrent(dev, replacing{closed, func() { raw.SetCurrent(dev, open) }})
	p, err := raw.AllocCurrent(dev, fake.S0, 1)
	if err != nil || len(open.Live) != 1 {
		t.Fatalf("%#x, %v", p, err)
	}
	raw.CurrentBlocks().Free(p)
}

// replacing is an allocator that another one replaces during Alloc.
type replacing struct {
	*fake.Pile
	replace func()
}

func (r replacing) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	r.replace()
	return r.Pile.Alloc(s, size)
}

// If the addresses of two devices overlap, blocks cannot be found by address: the second request fails, and no memory
// is lost.
func TestAllocCurrentWhereAddressesOverlap(t *testing.T) {
	a, b := fake.NewPile(512), fake.NewPile(512)
	one, other := currentOf(t, 0, a), currentOf(t, 0, b)
	p, err := raw.AllocCurrent(one, fake.S0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := raw.AllocCurrent(other, fake.S0, 1); q != 0 || err == nil || !strings.HasPrefix(err.Error(), "raw: Alloc of 1 bytes at ") {
		t.Errorf("%#x, %v", q, err)
	}
	if len(b.Live) != 0 {
		t.Error("the block that could not be allocated was kept")
	}
	if l, _ := raw.CurrentBlocks().Holding(p); l.Device != one {
		t.Errorf("the address is found on %v", l.Device)
	}
	raw.CurrentBlocks().Free(p)
}

// Allocators are replaced, and closed once their blocks are freed, while goroutines allocate and free. Each allocator
// frees its own blocks.
func TestSetCurrentLosesNothing(t *testing.T) {
	dev := currentOf(t, 0, nil)
	var made atomic.Int64
	fresh := func() *counting {
		p := fake.NewPile(512)
		p.Next = driver.Pointer(made.Add(1)) << 40
		return &counting{Pile: p}
	}
	current := fresh()
	raw.SetCurrent(dev, current)
	all := []*counting{current}
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			var mine []driver.Pointer
			for i := 0; ; i++ {
				select {
				case <-stop:
					for _, p := range mine {
						raw.CurrentBlocks().Free(p)
					}
					return
				default:
				}
				p, err := raw.AllocCurrent(dev, fake.S0, int64(1+(i*(w+3))%2000))
				if err != nil {
					t.Error(err)
				}
				if mine = append(mine, p); len(mine) > 50 {
					raw.CurrentBlocks().Free(mine[i%50])
					mine[i%50] = mine[50]
					mine = mine[:50]
				}
			}
		})
	}
	for range 200 {
		next := fresh()
		was := raw.SetCurrent(dev, next).(*counting)
		was.closed.Store(true) // from now on it only takes back
		for next.loans.Load() == 0 {
			runtime.Gosched() // the workers have not come to it
		}
		all = append(all, next)
	}
	close(stop)
	workers.Wait()
	for i, a := range all {
		if n := a.loans.Load(); n != 0 {
			t.Errorf("%d blocks of allocator %d of %d did not come back", n, i, len(all))
		}
	}
}

// counting is an allocator that may be closed.
type counting struct {
	*fake.Pile
	loans  atomic.Int64
	closed atomic.Bool
}

func (c *counting) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if c.closed.Load() {
		return mem.Block{}, errors.New("closed")
	}
	c.loans.Add(1)
	return c.Pile.Alloc(s, size)
}

func (c *counting) Free(b mem.Block, used ...driver.Stream) {
	c.loans.Add(-1)
	c.Pile.Free(b, used...)
}

func TestSetCurrentNil(t *testing.T) {
	testkit.Contains(t, testkit.Panic(t, func() { raw.SetCurrent(nil, fake.NewPile(512)) }), "raw: SetCurrent of a nil device")
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = raw.Current(nil) }), "nil device")
}
