package driver_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A stable is a device that only has streams. Like real devices it reuses the IDs of closed streams.
type stable struct {
	driver.Device
	mu      sync.Mutex
	streams []*horse // by number
	made    int
	opts    driver.StreamOptions // of the last one
	fail    error                // of NewStream
}

// A horse is a stream that can be closed. Every other call dereferences a nil pointer, so a pool that waits for work or
// queues work fails the test.
type horse struct {
	driver.Stream
	of     *stable
	id     driver.StreamID
	closed bool
	fail   error // of Close
}

func (h *horse) ID() driver.StreamID { return h.id }

func (h *horse) Close() error {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.closed = true
	return h.fail
}

func (d *stable) NewStream(opts driver.StreamOptions) (driver.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	d.made, d.opts = d.made+1, opts
	i := slices.IndexFunc(d.streams, func(h *horse) bool { return h.closed })
	if i < 0 {
		i = len(d.streams)
		d.streams = append(d.streams, nil)
	}
	d.streams[i] = &horse{of: d, id: driver.StreamID(i + 1)}
	return d.streams[i], nil
}

func (d *stable) closed() (n int) {
	for _, h := range d.streams {
		if h.closed {
			n++
		}
	}
	return n
}

func get(t *testing.T, p *driver.StreamPool) driver.Stream {
	t.Helper()
	s, err := p.Get()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, p *driver.StreamPool, streams ...driver.Stream) {
	t.Helper()
	for _, s := range streams {
		if err := p.Put(s); err != nil {
			t.Fatal(err)
		}
	}
}

// The stream that was put back last is returned first. The pool neither waits for its work nor queues any.
func TestStreamPoolLendsTheLastOneBack(t *testing.T) {
	dev := &stable{}
	p := driver.NewStreamPool(dev, driver.StreamOptions{Priority: -1})
	a, b, c := get(t, p), get(t, p), get(t, p)
	put(t, p, b, c, a)
	for i, want := range []driver.Stream{a, c, b} {
		if got := get(t, p); got != want {
			t.Errorf("stream %d of the pool is of stream %d, want stream %d", i, got.ID(), want.ID())
		}
	}
	if dev.made != 3 || dev.opts.Priority != -1 {
		t.Errorf("the device made %d streams, the last with %+v; want 3 of priority -1", dev.made, dev.opts)
	}
}

func TestStreamPoolKeepsWhatItIsTold(t *testing.T) {
	dev := &stable{}
	p := driver.NewStreamPool(dev, driver.StreamOptions{})
	p.Keep(3)
	var streams []driver.Stream
	for range 5 {
		streams = append(streams, get(t, p))
	}
	put(t, p, streams[:4]...)
	p.Keep(4)
	put(t, p, streams[4])
	if n := dev.closed(); n != 1 || !streams[3].(*horse).closed {
		t.Errorf("%d of 5 streams are closed, the fourth %v; want it alone", n, streams[3].(*horse).closed)
	}
}

// The pool keeps 16 streams, as in BMEngine. It closes further streams that are put back, and at the end all that it
// keeps.
func TestStreamPoolKeeps16(t *testing.T) {
	dev := &stable{}
	p := driver.NewStreamPool(dev, driver.StreamOptions{})
	var streams []driver.Stream
	for range 20 {
		streams = append(streams, get(t, p))
	}
	put(t, p, streams...)
	for i, s := range streams {
		if closed := s.(*horse).closed; closed != (i >= 16) {
			t.Errorf("number %d to come back: closed %v", i, closed)
		}
	}
	out := get(t, p)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := dev.closed(); n != 19 || out.(*horse).closed {
		t.Errorf("after Close %d streams are closed, that in use %v; want 19 without it", n, out.(*horse).closed)
	}
	if s, err := p.Get(); !errors.Is(err, driver.ErrClosed) || s != nil {
		t.Errorf("Get after Close: %v, %v", s, err)
	}
	put(t, p, out)
	if n := dev.closed(); n != 20 {
		t.Errorf("with the last one back %d streams are closed, want 20", n)
	}
}

func TestStreamPoolMisusePanics(t *testing.T) {
	dev, other := &stable{}, &stable{}
	p, q := driver.NewStreamPool(dev, driver.StreamOptions{}), driver.NewStreamPool(other, driver.StreamOptions{})
	a, b, far := get(t, p), get(t, p), get(t, q)
	put(t, p, a)
	own, err := dev.NewStream(driver.StreamOptions{})
	testkit.Must(t, err)
	for what, misuse := range map[string]func(){
		"the same stream twice":      func() { p.Put(a) },
		"a stream of another device": func() { p.Put(far) },
		"a stream made elsewhere":    func() { p.Put(own) },
		"a stream of no such number": func() { p.Put(&horse{of: dev, id: 1 << 31}) },
		"a foreign stream":           func() { driver.NewStreamPool(dev, driver.StreamOptions{Foreign: 1}) },
		"no device":                  func() { driver.NewStreamPool(nil, driver.StreamOptions{}) },
	} {
		testkit.WantPanic(t, what, "driver: ", misuse)
	}
	put(t, p, b) // works on
	put(t, q, far)
	if got := get(t, p); got != b {
		t.Errorf("after misuse stream %d is returned, want %d", got.ID(), b.ID())
	}
}

// A borrower may close a stream instead of putting it back. The device may then reuse its ID.
func TestStreamPoolForgetsWhatIsClosedElsewhere(t *testing.T) {
	dev := &stable{}
	p := driver.NewStreamPool(dev, driver.StreamOptions{})
	gone := get(t, p)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	next := get(t, p)
	if next.ID() != gone.ID() {
		t.Fatalf("the device numbered streams %d and %d", gone.ID(), next.ID())
	}
	put(t, p, next)
	if got := get(t, p); got != next {
		t.Fatalf("stream %d is returned, want the one put back", got.ID())
	}
}

func TestStreamPoolPassesErrorsOn(t *testing.T) {
	dev := &stable{}
	p := driver.NewStreamPool(dev, driver.StreamOptions{})
	s, bad := get(t, p), get(t, p)
	dev.fail = driver.ErrLost
	if got, err := p.Get(); !errors.Is(err, driver.ErrLost) || got != nil {
		t.Errorf("Get of a device that fails: %v, %v", got, err)
	}
	put(t, p, bad, s)
	bad.(*horse).fail = driver.ErrLost
	if err := p.Close(); !errors.Is(err, driver.ErrLost) || !s.(*horse).closed {
		t.Errorf("Close with a stream that does not close: %v; the other one closed: %v", err, s.(*horse).closed)
	}
}

// A stream has one user at a time.
func TestStreamPoolConcurrently(t *testing.T) {
	p := driver.NewStreamPool(&stable{}, driver.StreamOptions{})
	var mu sync.Mutex
	inUse := map[driver.Stream]bool{}
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 0))
			var own []driver.Stream
			for i := 0; i < 400 || len(own) > 0; i++ {
				if i < 400 && len(own) < 4 && rng.IntN(2) == 0 {
					s, err := p.Get()
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if inUse[s] {
						t.Errorf("stream %d is in use twice", s.ID())
					}
					inUse[s] = true
					mu.Unlock()
					own = append(own, s)
				} else if len(own) > 0 {
					s := own[0]
					own = own[1:]
					mu.Lock()
					delete(inUse, s)
					mu.Unlock()
					if err := p.Put(s); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
