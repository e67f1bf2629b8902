package layer_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/arena"
	_ "github.com/ashlar-go/ashlar/mem/bfc"
	_ "github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	_ "github.com/ashlar-go/ashlar/mem/paged"
)

// tries counts requests, and refuses the given number of them.
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

func TestBehaviour83_RetryAsksOnceAfterEachStep(t *testing.T) {
	below := &tries{Allocator: fake.NewPile(512), refuse: 1 << 30, with: mem.ErrNoMemory}
	calls := 0
	r := layer.NewRetry(below, layer.RetryOptions{Steps: []layer.Step{func(s driver.Stream, size int64) error {
		if calls++; s != fake.S0 || size != 77 {
			t.Errorf("the step is told of %d bytes on %v", size, s)
		}
		return nil
	}}})
	b, err := r.Alloc(fake.S0, 77)
	if !errors.Is(err, mem.ErrNoMemory) || b != (mem.Block{}) || calls != 1 || below.n != 2 {
		t.Errorf("%+v, %v after %d steps and %d requests", b, err, calls, below.n)
	}
	below.n, below.refuse = 0, 1
	if b, err = r.Alloc(fake.S0, 77); err != nil || calls != 2 || below.n != 2 {
		t.Errorf("%+v, %v after %d steps and %d requests in all", b, err, calls, below.n)
	}
	r.Free(b)
}

func TestBehaviour83_RetryCatchesNoOtherError(t *testing.T) {
	below := &tries{Allocator: fake.NewPile(512), refuse: 1, with: driver.ErrLost}
	step := func(driver.Stream, int64) error { t.Error("a step is taken"); return nil }
	r := layer.NewRetry(below, layer.RetryOptions{Steps: []layer.Step{step}})
	if _, err := r.Alloc(fake.S0, 77); !errors.Is(err, driver.ErrLost) || below.n != 1 {
		t.Errorf("%v after %d requests", err, below.n)
	}
	if _, err := r.Alloc(fake.S0, 77); err != nil {
		t.Error(err)
	}
}

// Steps go in order, one that could do nothing is not followed by a request, and all of them are in the error.
func TestRetryTakesStepsInOrder(t *testing.T) {
	below := &tries{Allocator: fake.NewPile(512), refuse: 1 << 30, with: mem.ErrNoMemory}
	var order []string
	step := func(name string, err error) layer.Step {
		return func(driver.Stream, int64) error { order = append(order, name); return err }
	}
	r := layer.NewRetry(below, layer.RetryOptions{Steps: []layer.Step{
		step("compact", errors.New("held still")), step("trim", nil), step("spill", errors.New("disk full")),
		step("last", nil),
	}})
	_, err := r.Alloc(fake.S0, 77)
	if got := strings.Join(order, " "); got != "compact trim spill last" || below.n != 3 {
		t.Errorf("steps %q and %d requests", got, below.n)
	}
	if !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v", err)
	}
	testkit.Contains(t, err.Error(), "step 1 of 4: held still", "step 3 of 4: disk full")
	below.n, below.refuse, order = 0, 2, nil
	if _, err := r.Alloc(fake.S0, 77); err != nil || strings.Join(order, " ") != "compact trim spill last" {
		t.Errorf("%v after %v", err, order)
	}
}

// A step that allocates from where it is a step of ends with no memory, and does not go round in circles; nor does a
// panic of one leave anything behind.
func TestBehaviour92_RetryWithinAStep(t *testing.T) {
	limit := layer.NewLimiter(fake.NewPile(512), 1024)
	var r *layer.Retry
	steps, panicking := 0, false
	r = layer.NewRetry(limit, layer.RetryOptions{Steps: []layer.Step{func(s driver.Stream, size int64) error {
		if steps++; panicking {
			panic("spill: a bug")
		}
		_, err := r.Alloc(s, size)
		return err
	}}})
	for want := 1; want <= 3; want++ {
		if _, err := r.Alloc(fake.S0, 2048); !errors.Is(err, mem.ErrNoMemory) || steps != want {
			t.Fatalf("%v after %d steps, want %d", err, steps, want)
		}
	}
	panicking = true
	testkit.Panic(t, func() { r.Alloc(fake.S0, 2048) })
	panicking = false
	if _, err := r.Alloc(fake.S0, 2048); !errors.Is(err, mem.ErrNoMemory) || steps != 5 {
		t.Errorf("%v after %d steps, want 5: the goroutine is taken for one that takes steps", err, steps)
	}
}

// Each of many goroutines takes its own steps, once for each request.
func TestRetryConcurrent(t *testing.T) {
	limit := layer.NewLimiter(fake.NewPile(512), 4*512)
	var mu sync.Mutex
	var kept []mem.Block
	r := layer.NewRetry(limit, layer.RetryOptions{Steps: []layer.Step{func(driver.Stream, int64) error {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range kept {
			limit.Free(b)
		}
		kept = nil
		return nil
	}}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if b, err := r.Alloc(fake.S0, 512); err == nil {
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
func TestRetryCompactsAndTrims(t *testing.T) {
	dev := drivertest.OpenSim(t, 24<<20)
	cache := newCaching(t, dev)
	mustFree := func(a mem.Allocator, size int64) {
		b, err := a.Alloc(dev.DefaultStream(), size)
		testkit.Must(t, err)
		a.Free(b)
	}
	mustFree(cache, 21<<20) // stays cached
	straight := direct.New(dev, direct.Config{})
	if _, err := straight.Alloc(dev.DefaultStream(), 20<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatalf("beside the cache: %v", err)
	}
	mustFree(layer.NewRetry(straight, layer.RetryOptions{Steps: []layer.Step{layer.TrimStep(cache)}}), 20<<20)

	a := shallow{&slidingAllocator{}}
	var blocks []mem.Block
	for range 3 {
		blocks = append(blocks, fake.MustAlloc(t, a, 100))
	}
	a.Movable(blocks[1], &owner{block: blocks[1]})
	a.Free(blocks[0])
	a.Free(blocks[2])
	if _, err := a.Alloc(fake.S0, 200); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatalf("with holes: %v", err)
	}
	b, err := layer.NewRetry(a, layer.RetryOptions{Steps: []layer.Step{layer.CompactStep(a)}}).Alloc(fake.S0, 200)
	if err != nil || b.Ptr != shelfStart+100 {
		t.Errorf("compacted: %+v, %v", b, err)
	}
	testkit.Contains(t, testkit.Panic(t, func() { layer.CompactStep(fake.NewPile(1)) }), "layer: CompactStep")
	testkit.Contains(t, testkit.Panic(t, func() { layer.TrimStep(&line{}) }), "layer: TrimStep")
}

// shallow is a slidingAllocator of 300 bytes.
type shallow struct{ *slidingAllocator }

func (a shallow) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := a.slidingAllocator.Alloc(s, size)
	if err == nil && b.Ptr+driver.Pointer(size) > shelfStart+300 {
		a.Free(b)
		return mem.Block{}, mem.ErrNoMemory
	}
	return b, err
}

// Another error than want of memory is the request's, whatever steps said of memory before.
func TestRetryEndsWithAnotherError(t *testing.T) {
	below := &tries{Allocator: fake.NewPile(512), refuse: 1 << 30, with: mem.ErrNoMemory}
	r := layer.NewRetry(below, layer.RetryOptions{Steps: []layer.Step{
		func(driver.Stream, int64) error { return mem.ErrNoMemory },
		func(driver.Stream, int64) error { below.with = driver.ErrLost; return nil },
		func(driver.Stream, int64) error { t.Error("a step is taken"); return nil },
	}})
	if _, err := r.Alloc(fake.S0, 77); !errors.Is(err, driver.ErrLost) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v", err)
	}
}

// An alarm is a context that tells when a request begins to wait for its end: by then a request has found no room.
type alarm struct {
	context.Context
	waits chan struct{} // closed
	once  sync.Once
}

func newAlarm() (*alarm, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	return &alarm{Context: ctx, waits: make(chan struct{})}, cancel
}

func (a *alarm) Done() <-chan struct{} {
	a.once.Do(func() { close(a.waits) })
	return a.Context.Done()
}

// waitingFor starts a request that finds no room, and returns once it waits.
func waitingFor(ctx *alarm, r *layer.Retry, s driver.Stream, size int64) (wait func() (mem.Block, error)) {
	var b mem.Block
	var err error
	var request sync.WaitGroup
	request.Go(func() { b, err = r.AllocWait(ctx, s, size, mem.AllocOptions{}) })
	<-ctx.waits
	return func() (mem.Block, error) { request.Wait(); return b, err }
}

// TestDefect19_RetryWaitsOverAnyAllocator: a request that finds no room gets the memory that another goroutine frees,
// and counts nowhere as out of memory; one that waits in vain counts once.
func TestDefect19_RetryWaitsOverAnyAllocator(t *testing.T) {
	for _, spec := range []string{
		"caching:", "bfc:limit=32MiB,growth=off", "arena:size=32MiB", "direct:limit=32MiB", "direct:limit=32MiB,session=on",
		"paged:limit=32MiB",
	} {
		dev := drivertest.OpenSim(t, 40<<20)
		below, err := mem.Open(spec, dev)
		testkit.Must(t, err)
		told := 0
		if o, ok := mem.Find[mem.Observable](below); ok {
			o.Observe(func(e mem.Event) {
				if e.Action == mem.ActionOOM {
					told++
				}
			})
		}
		r, s := layer.NewRetry(below, layer.RetryOptions{}), dev.DefaultStream()
		stats, _ := mem.Find[mem.StatsReporter](below)
		ooms := func() int64 { return stats.Stats().NumOOMs }
		half, other := mustAllocOn(t, r, s, 15<<20), mustAllocOn(t, r, s, 15<<20)
		ctx, cancel := newAlarm()
		wait := waitingFor(ctx, r, s, 30<<20)
		r.Free(half) // not enough
		r.Free(other)
		b, err := wait()
		if err != nil || b.Size < 30<<20 || ooms() != 0 || told != 0 {
			t.Errorf("%s: %+v, %v; %d requests out of memory, observers heard of %d", spec, b, err, ooms(), told)
		}
		cancel()

		ctx, cancel = newAlarm()
		wait = waitingFor(ctx, r, s, 30<<20)
		cancel()
		_, err = wait()
		oom := (*mem.OutOfMemory)(nil)
		if !errors.As(err, &oom) || !errors.Is(err, context.Canceled) || ooms() != 1 {
			t.Errorf("%s: %v after %d requests out of memory: want one that was cancelled", spec, err, ooms())
		}
		r.Free(b)
		testkit.Must(t, below.(io.Closer).Close())
	}
}

// A request waits for its own time, unless waiting cannot help, or it is not to be retried, or a step makes it.
func TestRetryWaitsWhereThatCanHelp(t *testing.T) {
	waits := 0
	var r *layer.Retry
	patience := func() (context.Context, context.CancelFunc) {
		waits++
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}
	limit := layer.NewLimiter(fake.NewPile(512), 1024)
	r = layer.NewRetry(limit, layer.RetryOptions{Wait: patience, Steps: []layer.Step{func(s driver.Stream, size int64) error {
		_, err := r.Alloc(s, size) // within a step: refused at once
		return err
	}}})
	b := fake.MustAlloc(t, r, 1024)
	if waits != 0 {
		t.Error("a request that fits waits")
	}
	_, err := r.Alloc(fake.S0, 512)
	if !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, context.Canceled) || waits != 1 {
		t.Errorf("%v after %d waits, want one", err, waits)
	}
	testkit.Contains(t, err.Error(), "step 1 of 1", "waited for memory")
	for name, f := range map[string]func() (mem.Block, error){
		"over the limit": func() (mem.Block, error) { return r.Alloc(fake.S0, 1025) },
		"NoRetry":        func() (mem.Block, error) { return r.AllocWith(fake.S0, 512, mem.AllocOptions{NoRetry: true}) },
	} {
		if _, err := f(); !errors.Is(err, mem.ErrNoMemory) || waits != 1 {
			t.Errorf("%s: %v after %d waits", name, err, waits)
		}
	}
	r.Free(b)

	// Where one of two has a limit, the other may get room.
	full := layer.NewLimiter(fake.NewPile(512), 4096)
	fake.MustAlloc(t, full, 4096)
	r = layer.NewRetry(layer.NewFallback(limit, full), layer.RetryOptions{Wait: patience})
	if _, err := r.Alloc(fake.S0, 2048); !errors.Is(err, context.Canceled) || waits != 2 {
		t.Errorf("over the limit of one of two: %v after %d waits", err, waits)
	}

	ctx, cancel := layer.WaitTimeout(0)()
	defer cancel()
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 0s") {
		t.Errorf("patience for no time ends with %v", err)
	}
}

// Memory that comes back without a Free through the Retry is found when Wake is called.
func TestRetryLooksAgainWhenItIsWoken(t *testing.T) {
	limit := layer.NewLimiter(fake.NewPile(512), 1024)
	r := layer.NewRetry(limit, layer.RetryOptions{})
	b := fake.MustAlloc(t, limit, 1024)
	ctx, cancel := newAlarm()
	defer cancel()
	wait := waitingFor(ctx, r, fake.S0, 1024)
	limit.Free(b)
	r.Wake()
	b, err := wait()
	testkit.Must(t, err)
	r.Free(b)
}

// Goroutines that each have one block at a time, of which few fit, all get theirs.
func TestRetryUnderLoad(t *testing.T) {
	limit := layer.NewLimiter(fake.NewPile(1), 1024)
	r := layer.NewRetry(limit, layer.RetryOptions{Wait: func() (context.Context, context.CancelFunc) {
		return t.Context(), func() {}
	}})
	var workers sync.WaitGroup
	sizes := []int64{256, 512, 768, 1024}
	for worker := range 6 {
		workers.Go(func() {
			for i := range 100 {
				b, err := r.Alloc(fake.S0, sizes[(worker*100+i)%4])
				if err != nil {
					t.Error(err)
					return
				}
				r.Free(b)
			}
		})
	}
	workers.Wait()
	if limit.Live() != 0 {
		t.Errorf("%d bytes are left", limit.Live())
	}
}
