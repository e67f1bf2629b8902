package caching_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// An upstreamFunc is an upstream whose Alloc is a function. Its Free does nothing.
type upstreamFunc func(s driver.Stream, size int64) (mem.Block, error)

func (f upstreamFunc) Alloc(s driver.Stream, size int64) (mem.Block, error) { return f(s, size) }
func (f upstreamFunc) Free(mem.Block, ...driver.Stream)                     {}

func TestUpstreamsThatFail(t *testing.T) {
	b := newBench(t, gib, "")
	sick := errors.New("the upstream is sick")
	for _, c := range []struct {
		name     string
		upstream upstreamFunc
		ok       func(err error) bool
	}{
		{
			"no memory", func(driver.Stream, int64) (mem.Block, error) {
				return mem.Block{}, fmt.Errorf("full: %w", mem.ErrNoMemory)
			},
			func(err error) bool {
				var oom *mem.OutOfMemory
				return errors.As(err, &oom) && strings.Contains(err.Error(), "full")
			},
		},
		{
			"another error", func(driver.Stream, int64) (mem.Block, error) { return mem.Block{}, sick },
			func(err error) bool {
				return errors.Is(err, sick) && !errors.Is(err, mem.ErrNoMemory) && strings.Contains(err.Error(), "upstream of pool")
			},
		},
		{
			"too little", func(_ driver.Stream, size int64) (mem.Block, error) {
				return mem.Block{Ptr: 4096, Size: size - 1, Tag: 1}, nil
			},
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "returned 2097151") },
		},
	} {
		p := b.NewPool(caching.PoolOptions{Upstream: c.upstream})
		block, err := p.Alloc(b.s, 512)
		if !c.ok(err) || block != (mem.Block{}) {
			t.Errorf("%s: %+v, %v", c.name, block, err)
		}
		testkit.Equal(t, c.name+": reserved", b.Stats().ReservedBytes.All.Current, 0)
		testkit.Equal(t, c.name+": ever reserved by the pool", p.Reserved().All, mem.Stat{})
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An upstream may be the allocator itself, or another of its pools.
func TestUpstreamsOfTheSameAllocator(t *testing.T) {
	b := newBench(t, gib, "")
	over := b.NewPool(caching.PoolOptions{Upstream: b.Allocator})
	top := b.NewPool(caching.PoolOptions{Upstream: over})
	block, err := top.Alloc(b.s, 3*mib)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*caching.Pool{over, top} {
		testkit.Equal(t, "reserved by a pool", p.Reserved().All.Current, 20*mib)
	}
	testkit.Equal(t, "reserved in all, each floor for itself", b.Stats().ReservedBytes.All.Current, 60*mib)
	testkit.Equal(t, "taken of the device", b.available(), gib-20*mib)
	top.Free(block)
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "2 blocks") {
		t.Errorf("Close while pools have memory of each other: %v", err)
	}
	for _, p := range []*caching.Pool{top, over} {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.emptyCache()
	testkit.Equal(t, "left on the device", b.available(), gib)
}

func (b *bench) available() int64 {
	b.t.Helper()
	free, _, err := b.dev.Available()
	if err != nil {
		b.t.Fatal(err)
	}
	return free
}

// Memory returned to an upstream is back before the next call to the device.
func TestARequestFindsTheMemoryThatUpstreamsGetBack(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True", "release_lock_on_cudamalloc:True"} {
		b := newBench(t, 64*mib, settings)
		p := b.NewPool(caching.PoolOptions{Upstream: newCounted(b.dev)})
		block, err := p.Alloc(b.s, 40*mib)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		b.fails(40 * mib)
		p.Free(block)
		b.Free(b.alloc(40 * mib))
		testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 0)
	}
}

// A slowUpstream is not quick to take something back.
type slowUpstream struct {
	*counted
	before, after func()
}

func (u *slowUpstream) Free(b mem.Block, used ...driver.Stream) {
	u.before()
	u.counted.Free(b, used...)
	u.after()
}

// So it is if another goroutine is giving it back.
func TestARequestWaitsForWhatOthersGiveUpstreamsBack(t *testing.T) {
	memory := drivertest.OpenSim(t, 64*mib)
	var back atomic.Bool
	entered, refused := make(chan struct{}), make(chan struct{})
	first := true
	dev := intercept.Wrap(memory, func(c intercept.Call, next func() error) error {
		err := next()
		switch {
		case c.Kind != intercept.Alloc:
		case first:
			first = false
			if err == nil {
				t.Error("there was room")
			}
			close(refused)
		case !back.Load():
			t.Error("the device was asked again before the upstream had its segment back")
		}
		return err
	})
	a := newAllocator(t, dev, "")
	p := a.NewPool(caching.PoolOptions{Upstream: &slowUpstream{newCounted(memory), func() {
		close(entered)
		<-refused
		for range 1000 { // a request that does not wait is ahead now
			runtime.Gosched()
		}
	}, func() { back.Store(true) }}})
	s := memory.DefaultStream()
	block, err := p.Alloc(s, 40*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(block)
	var closing sync.WaitGroup
	closing.Go(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	<-entered
	block, err = a.Alloc(s, 40*mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(block)
	closing.Wait()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// A pool's request gives the pool's own memory back before it fails, but not what a graph may use, and not in PyTorch.
func TestAPoolFindsItsOwnMemoryAgain(t *testing.T) {
	for _, exact := range []bool{false, true} {
		b := newBench(t, gib, fmt.Sprintf("limit:60MiB,pytorch-exact:%s", map[bool]string{true: "True", false: "False"}[exact]))
		p := b.NewPool(caching.PoolOptions{Upstream: newCounted(b.dev)})
		take := func(size int64) error {
			block, err := p.Alloc(b.s, size)
			p.Free(block)
			return err
		}
		if err := take(40 * mib); err != nil {
			t.Fatal(err)
		}
		b.BeginAllocateToPool(p.ID(), func(driver.Stream) bool { return false })
		b.EndAllocateToPool(p.ID())
		if err := take(50 * mib); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("exact %v: with a graph: %v", exact, err)
		}
		b.ReleasePool(p.ID())
		if err := take(50 * mib); (err == nil) == exact {
			t.Errorf("exact %v: without a graph: %v", exact, err)
		}
		oom := b.fails(60 * mib)
		if exact && len(oom.Remedies) > 0 { // the pool has 40 MiB of an upstream, which is not the device's
			t.Errorf("remedies %v", oom.Remedies)
		}
		if err := errors.Join(p.EmptyCache(), b.Check()); err != nil { // what went back is not the pool's any more
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The figures of an out-of-memory error add up when private pools have some of them.
func TestOutOfMemoryWithPrivatePools(t *testing.T) {
	b := newBench(t, gib, "limit:100MiB")
	p := b.NewPool(caching.PoolOptions{})
	other := b.stream()
	var blocks []mem.Block
	for _, size := range []int64{2 * mib, 2 * mib} {
		block, err := p.Alloc(b.s, size)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, block)
	}
	whole, err := p.Alloc(other, 40*mib)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(whole)
	p.Free(blocks[1])
	keep := b.alloc(4 * mib) // 20 MiB more
	oom := b.fails(30 * mib)
	testkit.Equal(t, "reserved", oom.Reserved, 80*mib)
	testkit.Equal(t, "allocated", oom.Allocated, 6*mib)
	testkit.Equal(t, "cached in private pools", oom.PrivatePools, 58*mib)
	testkit.Equal(t, "stranded", oom.Stranded, 34*mib)
	var cached int64
	for _, c := range oom.Cached {
		cached += c.Bytes
	}
	testkit.Equal(t, "cached in all", cached, oom.Reserved-oom.Allocated)
	testkit.Equal(t, "the pool of the request", oom.Pool, mem.PoolID{})
	for _, part := range []string{
		"6.00 MiB is allocated, 58.00 MiB cached in private pools, and 16.00 MiB is reserved but unallocated",
		fmt.Sprintf("cached on stream 0, large pool of private pool (0, %d): 18.00 MiB in 1 blocks", p.ID()[1]),
		"would have fitted with the free segments of private pools: ",
	} {
		if !strings.Contains(oom.Error(), part) {
			t.Errorf("the error lacks %q:\n%v", part, oom)
		}
	}
	if err := p.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	b.Free(b.alloc(30 * mib)) // the remedy helps
	b.Free(keep)
	p.Free(blocks[0])
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// NoRetry fails at once: it does not wait, release memory or call callbacks.
func TestNoRetry(t *testing.T) {
	b := newBench(t, gib, "limit:64MiB")
	asked := 0
	b.OnLowMemory("test", func() bool { asked++; return false })
	p := b.NewPool(caching.PoolOptions{UseOnOOM: true})
	side := b.stream()
	block, err := p.Alloc(b.s, 20*mib)
	if err != nil {
		t.Fatal(err)
	}
	cached, waiting := b.alloc(20*mib), b.alloc(20*mib)
	b.Free(cached)
	b.dev.Hold(side.ID())
	if err := side.Fill(waiting.Ptr, 1, waiting.Size); err != nil {
		t.Fatal(err)
	}
	b.Free(waiting, side)
	asked = 0
	no := mem.AllocOptions{NoRetry: true}
	for _, a := range []mem.Allocator{b.Allocator, p} {
		_, err := mem.AllocWith(a, b.s, 21*mib, no)
		var oom *mem.OutOfMemory
		if !errors.As(err, &oom) {
			t.Fatalf("%v: want no memory", err)
		}
		if a == b.Allocator && !slices.ContainsFunc(oom.Remedies, func(r mem.Remedy) bool { return r.Name == "EmptyCache" }) {
			t.Errorf("the error does not say that a retry would have helped:\n%v", oom)
		}
	}
	s := b.Stats()
	testkit.Equal(t, "callbacks", asked, 0)
	testkit.Equal(t, "retries", s.NumAllocRetries, 0)
	testkit.Equal(t, "waits for all streams", s.NumSyncAllStreams, 0)
	testkit.Equal(t, "segments given back", s.NumDeviceFree, 0)
	testkit.Equal(t, "blocks that wait", s.Active.All.Current-s.Allocation.All.Current, 1)

	p.Free(block) // what is cached may be had, and what a pool lends
	first, err := b.AllocWith(b.s, 20*mib, no)
	if err != nil {
		t.Fatal(err)
	}
	borrowed, err := b.AllocWith(b.s, 20*mib, no)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the block that was borrowed", borrowed.Ptr, block.Ptr)
	if zero, err := p.AllocWith(b.s, 0, no); err != nil || zero != (mem.Block{}) {
		t.Errorf("nothing: %+v, %v", zero, err)
	}
	b.dev.Resume(side.ID())
	b.Free(first)
	b.Free(borrowed)
	b.Free(b.alloc(40 * mib))
	if asked == 0 {
		t.Error("an ordinary request asks those that may have memory")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "pools that are left, for all that was asked", len(b.ReservedByPrivatePools()), 0)
}

// Nor does it collect garbage.
func TestNoRetryCollectsNoGarbage(t *testing.T) {
	b := newBench(t, gib, "limit:100MiB,garbage_collection_threshold:0.2")
	b.Free(b.alloc(40 * mib))
	block, err := b.AllocWith(b.s, 50*mib, mem.AllocOptions{NoRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "segments given back", b.Stats().NumDeviceFree, 0)
	b.Free(block)
	b.Free(b.alloc(52 * mib))
	testkit.Equal(t, "segments that an ordinary request gave back", b.Stats().NumDeviceFree, 2)
}

// Goroutines with pools of their own over one small device: no request fails that has room, whichever goroutine empties
// which pool.
func TestPoolsAndCachesAtOnce(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.set("limit:160MiB")
		done := make(chan struct{})
		var emptier, wg sync.WaitGroup
		emptier.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := b.EmptyCache(); err != nil {
						t.Error(err)
						return
					}
					b.ReservedByPrivatePools()
					b.Snapshot()
				}
			}
		})
		up := newCounted(b.dev)
		for i, s := range b.s {
			wg.Go(func() {
				mine := func(other driver.Stream) bool { return other == s }
				for n := range 60 {
					o := caching.PoolOptions{NoSplit: n%3 == 0}
					if (n+i)%2 == 0 {
						o.Upstream = up
					}
					p, inner := b.NewPool(o), b.NewPool(caching.PoolOptions{})
					var blocks []mem.Block
					take := func(a mem.Allocator, size int64) {
						block, err := a.Alloc(s, size)
						if err != nil {
							t.Error(err)
						}
						blocks = append(blocks, block)
					}
					p.Use(mine, func() {
						take(b, 100)
						inner.Use(mine, func() { take(b, 100) })
						take(p, 2*mib)
					})
					take(inner, 700)
					for _, block := range blocks[1:] {
						if err := s.Fill(block.Ptr, byte(n), block.Size); err != nil {
							t.Error(err)
						}
						b.Free(block, b.s[(i+1)%len(b.s)])
					}
					if err := errors.Join(inner.Close(), p.Close()); err != nil {
						t.Error(err)
					}
					p.Free(blocks[0]) // it outlives its pool
				}
			})
		}
		wg.Wait()
		close(done)
		emptier.Wait()
		b.ok(b.EmptyCache())
		testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 0)
		testkit.Equal(t, "segments that upstreams have not got back", up.allocs-up.frees, 0)
		b.finish(nil, nil)
	})
}

// A hooked upstream calls a function when it gets something back.
type hooked struct {
	*counted
	back func()
}

func (h *hooked) Free(b mem.Block, used ...driver.Stream) {
	h.counted.Free(b, used...)
	h.back()
}

// A pool that is closed while a request to it has let go of the locks is not forgotten under the request.
func TestAPoolThatIsClosedDuringARequestIsNotForgotten(t *testing.T) {
	b := newBench(t, gib, "limit:60MiB")
	victim := b.NewPool(caching.PoolOptions{})
	up := &hooked{newCounted(b.dev), func() {
		if err := victim.Close(); err != nil {
			t.Error(err)
		}
	}}
	dead := b.NewPool(caching.PoolOptions{Upstream: up})
	block, err := dead.Alloc(b.s, 40*mib)
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	dead.Free(block)
	got, err := victim.Alloc(b.s, 40*mib) // has the dead pool's segment given back, and the victim closed
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the pool of the block", where(t, b.Allocator, got), victim.ID())
	victim.Free(got)
	b.emptyCache()
	testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 0)
}

// One that gets nothing then is forgotten with its request.
func TestAPoolThatIsClosedDuringARequestThatFailsIsGone(t *testing.T) {
	b := newBench(t, gib, "")
	var p *caching.Pool
	p = b.NewPool(caching.PoolOptions{Upstream: upstreamFunc(func(driver.Stream, int64) (mem.Block, error) {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		return mem.Block{}, mem.ErrNoMemory
	})})
	if _, err := p.Alloc(b.s, 512); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("%v: want no memory", err)
	}
	testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 0)
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}
