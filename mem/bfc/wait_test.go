package bfc_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

type answer struct {
	mem.Block
	err error
}

// inBackground calls f in a goroutine of its own, and returns once it waits for memory. A test of it runs in a bubble of
// testing/synctest, and so fails at once if nothing wakes the request.
func inBackground(f func() (mem.Block, error)) chan answer {
	c := make(chan answer, 1)
	go func() {
		b, err := f()
		c <- answer{b, err}
	}()
	synctest.Wait()
	return c
}

func TestWaitsForAFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 1 * mib, NoGrowth: true})
		all := b.alloc(mib)
		got := inBackground(func() (mem.Block, error) { return b.AllocWait(t.Context(), b.s, mib) })
		b.Free(all)
		if again := <-got; again.err != nil || again.Ptr != all.Ptr {
			t.Errorf("%+v: want the block at %#x", again, uint64(all.Ptr))
		}
		if n := b.Stats().NumOOMs; n != 0 {
			t.Errorf("%d requests out of memory: none failed", n)
		}
	})
}

// A free that does not suffice wakes the request, which then waits on.
func TestWaitsForEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 1 * mib, NoGrowth: true})
		first, second := b.alloc(mib/2), b.alloc(mib/2)
		got := inBackground(func() (mem.Block, error) { return b.AllocWait(t.Context(), b.s, mib) })
		b.Free(first)
		b.Free(second)
		if all := <-got; all.err != nil || all.Ptr != first.Ptr {
			t.Errorf("%+v: want the block at %#x", all, uint64(first.Ptr))
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 1 * mib})
		ctx, cancel := context.WithCancel(t.Context())
		b.alloc(mib)
		got := inBackground(func() (mem.Block, error) { return b.AllocWait(ctx, b.s, mib) })
		cancel()
		a := <-got
		if oom := (*mem.OutOfMemory)(nil); !errors.Is(a.err, context.Canceled) || !errors.As(a.err, &oom) || !errors.Is(a.err, mem.ErrNoMemory) {
			t.Errorf("%v: want a *mem.OutOfMemory that matches context.Canceled", a.err)
		}
		if n := b.Stats().NumOOMs; n != 1 {
			t.Errorf("%d requests out of memory: want the one", n)
		}
	})
}

// Config.Retry makes the context of a plain Alloc, only where there is no room, and it is cancelled afterwards.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made, ended int
		ctx, cancel := context.WithCancel(t.Context())
		b := newBench(t, bfc.Config{Limit: mib, NoGrowth: true, Retry: func() (context.Context, context.CancelFunc) {
			made++
			return ctx, func() { ended++; cancel() }
		}})
		all := b.alloc(mib)
		if made != 0 {
			t.Error("a request that fits made a context")
		}
		got := inBackground(func() (mem.Block, error) { return b.Alloc(b.s, 512) })
		b.Free(all)
		if a := <-got; a.err != nil || made != 1 || ended != 1 {
			t.Errorf("%+v; %d contexts made, %d cancelled", a, made, ended)
		}
		if _, err := b.Request(context.Background(), b.s, mib, bfc.Options{}); !errors.Is(err, mem.ErrNoMemory) || made != 1 {
			t.Errorf("Request without Wait: %v, %d contexts made", err, made)
		}
		if _, err := b.Alloc(b.s, mib+1); !errors.Is(err, mem.ErrNoMemory) || made != 1 {
			t.Errorf("a request over the limit, which nothing helps: %v, %d contexts made", err, made)
		}
	})
}

// takeRest allocates all memory that the device has left, as another program could.
func (b *bench) takeRest() driver.Pointer {
	b.t.Helper()
	free, _, err := b.dev.Available()
	testkit.Must(b.t, err)
	return drivertest.Alloc(b.t, b.dev, free)
}

func TestWaitEndsWithTheAllocator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 4 * mib})
		// No block is live, but other programs have left the device no memory.
		b.takeRest()
		got := inBackground(func() (mem.Block, error) { return b.AllocWait(t.Context(), b.s, mib) })
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if a := <-got; !errors.Is(a.err, driver.ErrClosed) {
			t.Errorf("%v: want driver.ErrClosed", a.err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close once more: %v", err)
		}
	})
}

// EmptyCache makes room too, where requests do not do that by themselves.
func TestWaitsForSegmentsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 6 * mib, NoCollect: true})
		b.Free(b.alloc(mib))
		b.Free(b.alloc(3 * mib))
		got := inBackground(func() (mem.Block, error) { return b.AllocWait(t.Context(), b.s, 6*mib) })
		if err := b.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.err != nil {
			t.Error(a.err)
		}
	})
}

// Goroutines that each have one block at a time, of which few fit, all get theirs.
func TestManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 1024, NoGrowth: true})
		var wg sync.WaitGroup
		for worker := range 6 {
			wg.Go(func() {
				for i := range 100 {
					block, err := b.AllocWait(t.Context(), b.s, int64(1+(worker*100+i)%4)*256)
					if err != nil {
						t.Error(err)
						return
					}
					b.Free(block)
				}
			})
		}
		wg.Wait()
		if s := b.Stats(); s.NumOOMs != 0 || s.Allocation.All.Allocated != 600 || s.AllocatedBytes.All.Peak > 1024 {
			t.Errorf("%+v", s)
		}
	})
}

// A segment that another request got has room for one that waits, for which the device had none.
func TestNewSegmentsWakeThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bfc.Config{Limit: 4 * mib})
		others := b.takeRest()
		got := inBackground(func() (mem.Block, error) { return b.AllocWait(t.Context(), b.s, mib) })
		if err := b.dev.Free(others); err != nil {
			t.Fatal(err)
		}
		first := b.alloc(512)
		if a := <-got; a.err != nil || a.Ptr != first.Ptr+512 {
			t.Errorf("%+v: want what the first request left", a)
		}
	})
}

// A failed Close has given back all the memory that it could.
func TestFailedCloseWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := drivertest.OpenSim(t, 64<<20)
		dev := fault.Wrap(inner)
		a := newAllocator(t, dev, bfc.Config{Limit: 8 * mib, NoCollect: true})
		s := dev.DefaultStream()
		var blocks [3]mem.Block
		for i := range blocks { // segments of 2, 2 and 4 MiB
			var err error
			if blocks[i], err = a.Alloc(s, 2*mib); err != nil {
				t.Fatal(err)
			}
		}
		for _, b := range blocks {
			a.Free(b)
		}
		got := inBackground(func() (mem.Block, error) { return a.AllocWait(t.Context(), s, 6*mib) })
		dev.SetRules(fault.Rule{Kind: intercept.Free, Nth: 1, Code: driver.ErrInvalid})
		if err := a.Close(); !errors.Is(err, driver.ErrInvalid) {
			t.Fatal(err)
		}
		dev.SetRules()
		if b := <-got; b.err != nil {
			t.Fatal(b.err)
		}
	})
}

// With pages a request may be over the limit that is not larger, since the last page does not fit.
func TestWholePagesOverTheLimit(t *testing.T) {
	dev := sim.New(sim.Options{Total: 64 << 20, Granularity: 64 << 10})
	defer dev.Close()
	a := newAllocator(t, dev, bfc.Config{Limit: 100 * kib, Virtual: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b, err := a.AllocWait(ctx, dev.DefaultStream(), 80*kib); !errors.Is(err, mem.ErrNoMemory) || errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v: want an error at once, since waiting does not help", b, err)
	}
}
