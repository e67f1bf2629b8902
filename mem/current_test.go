package mem_test

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
	"github.com/ashlar-go/ashlar/mem"
)

// currentOf makes a device with addresses of its own and a its current allocator, until the test ends.
func currentOf(t testing.TB, base driver.Pointer, a mem.Allocator) driver.Device {
	t.Helper()
	dev := sim.New(sim.Options{Total: 1 << 30, Base: base})
	if was := mem.SetCurrent(dev, a); was != nil {
		t.Errorf("a new device had a current allocator, %T", was)
	}
	t.Cleanup(func() {
		mem.SetCurrent(dev, nil)
		if n := mem.CurrentLoans().Len(); n != 0 {
			t.Errorf("%d blocks are still on loan", n)
		}
	})
	return dev
}

// openingDevice says itself how its allocator is opened.
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

// Without SetCurrent it is what Open gives, opened once, whoever comes first.
func TestCurrentOpensTheDefault(t *testing.T) {
	const callers = 8
	var calling sync.WaitGroup
	calling.Add(callers)
	opened := 0
	dev := &openingDevice{open: func() (mem.Allocator, error) {
		opened++
		calling.Wait() // all want it
		return newPile(512), nil
	}}
	defer mem.SetCurrent(dev, nil)
	if _, has := mem.FindCurrent(dev); has || slices.Contains(mem.CurrentDevices(), driver.Device(dev)) {
		t.Error("a device has a current allocator that nobody asked for")
	}
	var got [callers]mem.Allocator
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			calling.Done()
			var err error
			if got[i], err = mem.Current(dev); err != nil {
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
	if a, has := mem.FindCurrent(dev); opened != 1 || !has || a != got[0] || !slices.Contains(mem.CurrentDevices(), driver.Device(dev)) {
		t.Errorf("%d allocators were opened for one device", opened)
	}
}

// What cannot be opened is an error each time, and nothing is current.
func TestCurrentFailsToOpen(t *testing.T) {
	failure := errors.New("no allocator today")
	dev := &openingDevice{open: func() (mem.Allocator, error) { return nil, failure }}
	for range 2 {
		if _, err := mem.Current(dev); err != failure {
			t.Errorf("%v, want the error of the allocator", err)
		}
	}
	if p, err := mem.AllocCurrent(dev, s0, 1); p != 0 || err != failure {
		t.Errorf("%#x, %v", p, err)
	}
	if a, has := mem.FindCurrent(dev); a != nil || has {
		t.Errorf("%T is current", a)
	}
}

// Blocks go back to the allocator that they came from, also when another is current by then, or none.
func TestSetCurrentKeepsBlocks(t *testing.T) {
	first, second := newPile(512), newPile(512)
	second.next = 1 << 20
	dev := currentOf(t, 0, first)
	p, err := mem.AllocCurrent(dev, s0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if was := mem.SetCurrent(dev, second); was != mem.Allocator(first) {
		t.Errorf("the former is %T", was)
	}
	q, err := mem.AllocCurrent(dev, s0, 100)
	if err != nil || q == p {
		t.Fatalf("%#x, %v", q, err)
	}
	if l, ok := mem.CurrentLoans().Holding(p + 511); !ok || l.Ptr != p || l.From != mem.Allocator(first) || l.Device != dev {
		t.Errorf("the block is %v, %v", l, ok)
	}
	if len(first.live) != 1 || len(second.live) != 1 {
		t.Errorf("%d and %d blocks on loan", len(first.live), len(second.live))
	}
	mem.CurrentLoans().Free(p, s1)
	if len(first.live) != 0 || len(second.live) != 1 {
		t.Errorf("%d and %d blocks on loan after the first's was freed", len(first.live), len(second.live))
	}
	if was := mem.SetCurrent(dev, nil); was != mem.Allocator(second) {
		t.Errorf("the former is %T", was)
	}
	if a, has := mem.FindCurrent(dev); has || slices.Contains(mem.CurrentDevices(), dev) {
		t.Errorf("%T is current still", a)
	}
	mem.CurrentLoans().Free(q)
	if len(second.live) != 0 {
		t.Error("a block did not go back to its allocator once the device had none")
	}
}

// A request that meets an allocator which is being closed is made of the one that took its place.
func TestAllocCurrentTriesTheNewOne(t *testing.T) {
	closed, open := newPile(512), newPile(512)
	gone := errors.New("closed")
	closed.fail = gone
	dev := currentOf(t, 0, closed)
	if _, err := mem.AllocCurrent(dev, s0, 1); err != gone {
		t.Errorf("%v, want the error of the allocator", err)
	}
	closed.fail = gone
	mem.SetCurrent(dev, replacing{closed, func() { mem.SetCurrent(dev, open) }})
	p, err := mem.AllocCurrent(dev, s0, 1)
	if err != nil || len(open.live) != 1 {
		t.Fatalf("%#x, %v", p, err)
	}
	mem.CurrentLoans().Free(p)
}

// replacing is an allocator during whose Alloc another takes its place.
type replacing struct {
	*pile
	replace func()
}

func (r replacing) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	r.replace()
	return r.pile.Alloc(s, size)
}

// Two devices whose addresses overlap cannot both be found by them: the second request fails, and loses nothing.
func TestAllocCurrentWhereAddressesOverlap(t *testing.T) {
	a, b := newPile(512), newPile(512)
	one, other := currentOf(t, 0, a), currentOf(t, 0, b)
	p, err := mem.AllocCurrent(one, s0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := mem.AllocCurrent(other, s0, 1); q != 0 || err == nil || !strings.HasPrefix(err.Error(), "raw: Alloc of 1 bytes at ") {
		t.Errorf("%#x, %v", q, err)
	}
	if len(b.live) != 0 {
		t.Error("the block that could not be lent was kept")
	}
	if l, _ := mem.CurrentLoans().Holding(p); l.Device != one {
		t.Errorf("the address is found on %v", l.Device)
	}
	mem.CurrentLoans().Free(p)
}

// Allocators are replaced, and closed once their blocks are back, while others allocate and free: each gets its own back.
func TestSetCurrentLosesNothing(t *testing.T) {
	dev := currentOf(t, 0, nil)
	var made atomic.Int64
	fresh := func() *counting {
		p := newPile(512)
		p.next = driver.Pointer(made.Add(1)) << 40
		return &counting{pile: p}
	}
	current := fresh()
	mem.SetCurrent(dev, current)
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
						mem.CurrentLoans().Free(p)
					}
					return
				default:
				}
				p, err := mem.AllocCurrent(dev, s0, int64(1+(i*(w+3))%2000))
				if err != nil {
					t.Error(err)
				}
				if mine = append(mine, p); len(mine) > 50 {
					mem.CurrentLoans().Free(mine[i%50])
					mine[i%50] = mine[50]
					mine = mine[:50]
				}
			}
		})
	}
	for range 200 {
		next := fresh()
		was := mem.SetCurrent(dev, next).(*counting)
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
	*pile
	loans  atomic.Int64
	closed atomic.Bool
}

func (c *counting) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if c.closed.Load() {
		return mem.Block{}, errors.New("closed")
	}
	c.loans.Add(1)
	return c.pile.Alloc(s, size)
}

func (c *counting) Free(b mem.Block, used ...driver.Stream) {
	c.loans.Add(-1)
	c.pile.Free(b, used...)
}

func TestSetCurrentNil(t *testing.T) {
	wantAll(t, panicOf(t, func() { mem.SetCurrent(nil, newPile(512)) }), "mem: SetCurrent of a nil device")
	wantAll(t, panicOf(t, func() { _, _ = mem.Current(nil) }), "nil device")
}
