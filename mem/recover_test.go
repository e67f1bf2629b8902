package mem_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/direct"
)

// tries counts requests, and refuses as many as it is told to.
type tries struct {
	mem.Allocator
	n      int
	refuse int
	with   error
}

func (a *tries) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if a.n++; a.n <= a.refuse {
		return mem.Block{}, a.with
	}
	return a.Allocator.Alloc(s, size)
}

func TestBehaviour83_RecoverAsksOnceAfterEachStep(t *testing.T) {
	below := &tries{Allocator: newPile(512), refuse: 1 << 30, with: mem.ErrNoMemory}
	calls := 0
	r := mem.Recover(below, func(s driver.Stream, size int64) error {
		if calls++; s != s0 || size != 77 {
			t.Errorf("the step is told of %d bytes on %v", size, s)
		}
		return nil
	})
	b, err := r.Alloc(s0, 77)
	if !errors.Is(err, mem.ErrNoMemory) || b != (mem.Block{}) || calls != 1 || below.n != 2 {
		t.Errorf("%+v, %v after %d steps and %d requests", b, err, calls, below.n)
	}
	below.n, below.refuse = 0, 1
	if b, err = r.Alloc(s0, 77); err != nil || calls != 2 || below.n != 2 {
		t.Errorf("%+v, %v after %d steps and %d requests in all", b, err, calls, below.n)
	}
	r.Free(b)
}

func TestBehaviour83_RecoverCatchesNoOtherError(t *testing.T) {
	below := &tries{Allocator: newPile(512), refuse: 1, with: driver.ErrLost}
	r := mem.Recover(below, func(driver.Stream, int64) error { t.Error("a step is taken"); return nil })
	if _, err := r.Alloc(s0, 77); !errors.Is(err, driver.ErrLost) || below.n != 1 {
		t.Errorf("%v after %d requests", err, below.n)
	}
	if _, err := r.Alloc(s0, 77); err != nil {
		t.Error(err)
	}
}

// Steps go in order, one that could do nothing is not followed by a request, and all of them are in the error.
func TestRecoverTakesStepsInOrder(t *testing.T) {
	below := &tries{Allocator: newPile(512), refuse: 1 << 30, with: mem.ErrNoMemory}
	var order []string
	step := func(name string, err error) mem.Step {
		return func(driver.Stream, int64) error { order = append(order, name); return err }
	}
	r := mem.Recover(below, step("compact", errors.New("held still")), step("trim", nil), step("spill", errors.New("disk full")),
		step("last", nil))
	_, err := r.Alloc(s0, 77)
	if got := strings.Join(order, " "); got != "compact trim spill last" || below.n != 3 {
		t.Errorf("steps %q and %d requests", got, below.n)
	}
	if !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v", err)
	}
	wantAll(t, err.Error(), "step 1 of 4: held still", "step 3 of 4: disk full")
	below.n, below.refuse, order = 0, 2, nil
	if _, err := r.Alloc(s0, 77); err != nil || strings.Join(order, " ") != "compact trim spill last" {
		t.Errorf("%v after %v", err, order)
	}
}

// A step that allocates from where it is a step of ends with no memory, and does not go round in circles; nor does a
// panic of one leave anything behind.
func TestBehaviour92_RecoverWithinAStep(t *testing.T) {
	limit := mem.Limit(newPile(512), 1024)
	var r *mem.Recovering
	steps, panicking := 0, false
	r = mem.Recover(limit, func(s driver.Stream, size int64) error {
		if steps++; panicking {
			panic("spill: a bug")
		}
		_, err := r.Alloc(s, size)
		return err
	})
	for want := 1; want <= 3; want++ {
		if _, err := r.Alloc(s0, 2048); !errors.Is(err, mem.ErrNoMemory) || steps != want {
			t.Fatalf("%v after %d steps, want %d", err, steps, want)
		}
	}
	panicking = true
	panicOf(t, func() { r.Alloc(s0, 2048) })
	panicking = false
	if _, err := r.Alloc(s0, 2048); !errors.Is(err, mem.ErrNoMemory) || steps != 5 {
		t.Errorf("%v after %d steps, want 5: the goroutine is taken for one that takes steps", err, steps)
	}
}

// Each of many goroutines takes its own steps, once for each request.
func TestRecoverConcurrent(t *testing.T) {
	limit := mem.Limit(newPile(512), 4*512)
	var mu sync.Mutex
	var kept []mem.Block
	r := mem.Recover(limit, func(driver.Stream, int64) error {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range kept {
			limit.Free(b)
		}
		kept = nil
		return nil
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if b, err := r.Alloc(s0, 512); err == nil {
					mu.Lock()
					kept = append(kept, b)
					mu.Unlock()
				} else if !errors.Is(err, mem.ErrNoMemory) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, b := range kept {
		r.Free(b)
	}
	if limit.Live() != 0 {
		t.Errorf("%d bytes are left", limit.Live())
	}
}

// What an arena cannot place for its holes fits once a step has let it compact; a cache that is in the way is emptied.
func TestRecoverCompactsAndTrims(t *testing.T) {
	dev := sim.New(sim.Options{Total: 24 << 20})
	defer dev.Close()
	cache := newCaching(t, dev)
	mustFree := func(a mem.Allocator, size int64) {
		b, err := a.Alloc(dev.DefaultStream(), size)
		must(t, err)
		a.Free(b)
	}
	mustFree(cache, 21<<20) // stays cached
	straight := direct.New(dev, direct.Config{})
	if _, err := straight.Alloc(dev.DefaultStream(), 20<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatalf("beside the cache: %v", err)
	}
	mustFree(mem.Recover(straight, mem.TrimStep(cache)), 20<<20)

	a := shallow{&shelf{}}
	var blocks []mem.Block
	for range 3 {
		blocks = append(blocks, mustAlloc(t, a, 100))
	}
	a.Movable(blocks[1], &owner{block: blocks[1]})
	a.Free(blocks[0])
	a.Free(blocks[2])
	if _, err := a.Alloc(s0, 200); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatalf("with holes: %v", err)
	}
	b, err := mem.Recover(a, mem.CompactStep(a)).Alloc(s0, 200)
	if err != nil || b.Ptr != shelfStart+100 {
		t.Errorf("compacted: %+v, %v", b, err)
	}
	wantAll(t, panicOf(t, func() { mem.CompactStep(newPile(1)) }), "mem: CompactStep")
	wantAll(t, panicOf(t, func() { mem.TrimStep(&line{}) }), "mem: TrimStep")
}

// shallow is a shelf of 300 bytes.
type shallow struct{ *shelf }

func (a shallow) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := a.shelf.Alloc(s, size)
	if err == nil && b.Ptr+driver.Pointer(size) > shelfStart+300 {
		a.Free(b)
		return mem.Block{}, mem.ErrNoMemory
	}
	return b, err
}

// Another error than want of memory is the request's, whatever steps said of memory before.
func TestRecoverEndsWithAnotherError(t *testing.T) {
	below := &tries{Allocator: newPile(512), refuse: 1 << 30, with: mem.ErrNoMemory}
	r := mem.Recover(below, func(driver.Stream, int64) error { return mem.ErrNoMemory },
		func(driver.Stream, int64) error { below.with = driver.ErrLost; return nil },
		func(driver.Stream, int64) error { t.Error("a step is taken"); return nil })
	if _, err := r.Alloc(s0, 77); !errors.Is(err, driver.ErrLost) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v", err)
	}
}
