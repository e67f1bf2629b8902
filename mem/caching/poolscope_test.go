package caching_test

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
)

// where is the pool of a live block.
func where(t *testing.T, a *caching.Allocator, block mem.Block) mem.PoolID {
	t.Helper()
	for _, s := range a.Snapshot() {
		if block.Ptr >= s.Ptr && block.Ptr < s.Ptr+driver.Pointer(s.TotalSize) {
			return s.Pool
		}
	}
	t.Fatalf("there is no segment with the block at %#x", block.Ptr)
	return mem.PoolID{}
}

func TestScopes(t *testing.T) {
	b := newBench(t, gib, "")
	x, y := b.NewPool(caching.PoolOptions{}), b.NewPool(caching.PoolOptions{})
	side := b.stream()
	goesTo := func(s driver.Stream, want mem.PoolID) {
		t.Helper()
		block := b.allocOn(s, 512)
		testkit.Equal(t, "the pool of a request", where(t, b.Allocator, block), want)
		b.Free(block)
	}
	onSide := func(s driver.Stream) bool { return s == side }

	// The last begun wins; a filter leaves others through; they end in any order; one pool has several.
	endX := x.Begin(nil)
	endY := y.Begin(onSide)
	goesTo(b.s, x.ID())
	goesTo(side, y.ID())
	endAgain := x.Begin(onSide)
	testkit.Equal(t, "users of a pool with two scopes", x.UseCount(), 3)
	goesTo(side, x.ID())
	endX()
	goesTo(b.s, mem.PoolID{})
	goesTo(side, x.ID())
	endAgain()
	goesTo(side, y.ID())
	endY()
	goesTo(side, mem.PoolID{})
	testkit.Contains(t, testkit.Panic(t, endY), "ended twice")

	// A scope ends with the function it wraps, also if that panics.
	testkit.Contains(t, testkit.Panic(t, func() { x.Use(nil, func() { panic("on purpose") }) }), "on purpose")
	goesTo(b.s, mem.PoolID{})
	testkit.Equal(t, "users after a panic", x.UseCount(), 1)

	// A pool that is closed within its scope serves it to the end.
	end := x.Begin(nil)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	goesTo(b.s, x.ID())
	end()
	testkit.Contains(t, testkit.Panic(t, func() { x.Begin(nil) }), "was closed")
	b.emptyCache()
	testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 1)
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMisuseOfPools(t *testing.T) {
	b := newBench(t, gib, "")
	x, y := b.NewPool(caching.PoolOptions{}), b.NewPool(caching.PoolOptions{})
	// the Pool's own use is its own to end
	testkit.Contains(t, testkit.Panic(t, func() { b.ReleasePool(x.ID()) }), "has no users")
	block, err := x.Alloc(b.s, 512)
	if err != nil {
		t.Fatal(err)
	}
	outside := b.alloc(512)
	testkit.Contains(t, testkit.Panic(t, func() { y.Free(block) }), "of a block of pool")
	testkit.Contains(t, testkit.Panic(t, func() { x.Free(outside) }), "of a block of pool")
	testkit.Contains(t, testkit.Panic(t, func() { x.Alloc(b.s, -1) }), "Alloc of -1 bytes")
	x.Free(block)
	testkit.Contains(t, testkit.Panic(t, func() { x.Free(block) }), "not live")
	b.Free(outside)
	b.BeginAllocateToPool(x.ID(), everyStream)
	testkit.Contains(t, testkit.Panic(t, func() { b.ReleasePool(x.ID()) }), "requests still go to pool")
	end := y.Begin(everyStream)
	for _, first := range []string{"end its scope", "call EndAllocateToPool"} {
		if err := b.Close(); err == nil || !strings.Contains(err.Error(), first) {
			t.Errorf("Close while requests go to a pool: %v; want it to say: %s", err, first)
		}
		if first == "end its scope" {
			end()
		}
	}
	b.EndAllocateToPool(x.ID())
	b.ReleasePool(x.ID())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*caching.Pool{x, y} {
		if _, err := p.Alloc(b.s, 512); err != caching.ErrClosed {
			t.Errorf("a request to a pool of a closed allocator: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A warm request to a pool looks whether frees are done that wait, as every other does.
func TestPoolsTakeBlocksThatCameBack(t *testing.T) {
	b := newBench(t, gib, "")
	p := b.NewPool(caching.PoolOptions{})
	side := b.stream()
	x, err := p.Alloc(b.s, 512)
	if err != nil {
		t.Fatal(err)
	}
	y, err := p.Alloc(b.s, 512)
	if err != nil {
		t.Fatal(err)
	}
	p.Free(x, side) // which has nothing to do
	again, err := p.Alloc(b.s, 512)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "the block that came back", again.Ptr, x.Ptr)
	p.Free(y)
	p.Free(again)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// While a scope is open frees that wait go on waiting, as in PyTorch, but a request that finds no room has everything
// given back. While a graph is captured it has not.
func TestScopesAreNoCaptures(t *testing.T) {
	for _, capture := range []bool{false, true} {
		b := newBench(t, gib, "limit:40MiB")
		p := b.NewPool(caching.PoolOptions{})
		side := b.stream()
		b.Free(b.alloc(20 * mib))
		waiting := b.alloc(512) // 2 MiB
		none := func(driver.Stream) bool { return false }
		end := func() {}
		if capture {
			b.BeginAllocateToPool(p.ID(), none)
		} else {
			end = p.Begin(none)
		}
		b.Free(waiting, side)
		b.ProcessPending()
		testkit.Equal(t, "blocks that wait", b.Stats().Active.All.Current, 1)
		b.emptyCache()
		testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 22*mib)
		if capture {
			b.fails(40 * mib)
			other := b.NewPool(caching.PoolOptions{})
			block, err := other.Alloc(b.s, 512)
			if err != nil {
				t.Fatal(err)
			}
			other.Free(block)
			if err := other.EmptyCache(); err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, "segments of a pool that is not released", len(other.Snapshot()), 1)
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, "segments of a pool that is", len(other.Snapshot()), 0)
			b.EndAllocateToPool(p.ID())
			b.ReleasePool(p.ID())
		}
		b.Free(b.alloc(40 * mib))
		end()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The ID of a pool that is gone may serve a graph: a pool of its own, which the dead one has no say in.
func TestADeadPoolLeavesItsIDAlone(t *testing.T) {
	b := newBench(t, gib, "")
	p := b.NewPool(caching.PoolOptions{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	b.BeginAllocateToPool(p.ID(), everyStream)
	if err := p.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	block := b.alloc(512)
	b.EndAllocateToPool(p.ID())
	if err := p.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 1)
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	b.Free(block)
	b.ReleasePool(p.ID())
	b.emptyCache()
	testkit.Equal(t, "pools in the end", len(b.ReservedByPrivatePools()), 0)
}

// Pools report events like the rest of the allocator, one after the other over all streams.
func TestEventsOfPools(t *testing.T) {
	b := newBench(t, gib, "")
	p := b.NewPool(caching.PoolOptions{})
	streams := []driver.Stream{b.s, b.stream(), b.stream()}
	kept, err := p.Alloc(b.s, 700)
	if err != nil {
		t.Fatal(err)
	}
	outside := b.alloc(512)
	var busy atomic.Bool
	var counts [mem.ActionSnapshot + 1]int
	var last mem.Event
	b.Observe(func(e mem.Event) {
		if !busy.CompareAndSwap(false, true) {
			t.Error("two events at once")
		}
		runtime.Gosched()
		if last = e; e.Pool == p.ID() {
			counts[e.Action]++
		}
		busy.Store(false)
	})
	var wg sync.WaitGroup
	for _, s := range streams {
		wg.Go(func() {
			for range 200 {
				block, err := p.Alloc(s, 512)
				if err != nil {
					t.Error(err)
					return
				}
				p.Free(block)
			}
		})
	}
	wg.Wait()
	for _, action := range []mem.Action{mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted} {
		testkit.Equal(t, "events of "+action.String(), counts[action], 600)
	}
	p.Snapshot()
	if want := (mem.Event{Action: mem.ActionSnapshot, Pool: p.ID(), Size: 1024}); last != want {
		t.Errorf("the pool's snapshot is %+v, want %+v", last, want)
	}
	b.Snapshot()
	if want := (mem.Event{Action: mem.ActionSnapshot, Size: 1536}); last != want {
		t.Errorf("the allocator's snapshot is %+v, want %+v", last, want)
	}
	b.Observe(nil)
	b.Free(kept)
	b.Free(outside)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// A scope catches what its goroutine asks for, on whatever stream, and nothing of others, however many have scopes at
// the same time: as PyTorch's scopes catch what their threads ask for.
func TestDefect14_AScopeCatchesItsGoroutine(t *testing.T) {
	b := newBench(t, gib, "")
	streams := []driver.Stream{b.s, b.stream()}
	var all sync.WaitGroup
	var began, checked sync.WaitGroup
	const goroutines = 4
	began.Add(goroutines)
	checked.Add(goroutines)
	blocks := make([][]mem.Block, goroutines+1)
	pools := make([]*caching.Pool, goroutines)
	take := func(i int) {
		for _, s := range streams {
			for _, size := range []int64{512, 3 * mib} {
				block, err := b.Alloc(s, size)
				if err != nil {
					t.Error(err)
				}
				blocks[i] = append(blocks[i], block)
			}
		}
	}
	for i := range goroutines {
		pools[i] = b.NewPool(caching.PoolOptions{})
		all.Go(func() {
			pools[i].Use(mem.CurrentGoroutine(), func() {
				began.Done()
				began.Wait() // all scopes are open
				take(i)
				checked.Done()
				checked.Wait()
			})
		})
	}
	began.Wait()
	take(goroutines) // this goroutine has none
	all.Wait()
	for i, list := range blocks {
		want := mem.PoolID{}
		if i < goroutines {
			want = pools[i].ID()
		}
		for _, block := range list {
			testkit.Equal(t, "the pool of a request", where(t, b.Allocator, block), want)
			b.Free(block)
		}
	}
	for _, p := range pools {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}

	// Captured work, too: PyTorch's filters of graphs are such.
	id := mem.PoolID{77, 0}
	b.BeginAllocateToPool(id, mem.CurrentGoroutine())
	var other mem.Block
	all.Go(func() { other = b.allocOn(b.s, 512) })
	all.Wait()
	own := b.allocOn(b.s, 512)
	b.EndAllocateToPool(id)
	testkit.Equal(t, "the goroutine that captures", where(t, b.Allocator, own), id)
	testkit.Equal(t, "another", where(t, b.Allocator, other), mem.PoolID{})
	b.Free(own)
	b.Free(other)
	b.ReleasePool(id)
}

// A scope catches the requests with its key, from any goroutine and through adaptors, also those that hold blocks
// themselves; and no others.
func TestDefect14_AScopeCatchesItsKey(t *testing.T) {
	b := newBench(t, gib, "")
	type thread int
	x, y := b.NewPool(caching.PoolOptions{}), b.NewPool(caching.PoolOptions{})
	endX := x.BeginKey(thread(1))
	endY := y.BeginKey("tenant")
	goesTo := func(a mem.Allocator, key any, want mem.PoolID) {
		t.Helper()
		var block mem.Block
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { block, err = mem.AllocWith(a, b.s, 600, mem.AllocOptions{Key: key}) })
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "the pool of a request", where(t, b.Allocator, block), want)
		a.Free(block)
	}
	held := magazine.New(b.Allocator, magazine.Options{})
	stacks := []mem.Allocator{b.Allocator, held, layer.NewSlabs(b.Allocator, 1024, 8), layer.NewSizeTracker(layer.NewLimiter(b.Allocator, gib), layer.SizeTrackerOptions{})}
	for range 2 { // the second time layers may hold blocks
		for _, a := range stacks {
			goesTo(a, nil, mem.PoolID{})
			goesTo(a, 1, mem.PoolID{}) // of another type
			goesTo(a, thread(1), x.ID())
			goesTo(a, "tenant", y.ID())
		}
	}
	all := y.Begin(nil)
	goesTo(b.Allocator, thread(1), y.ID())
	again := x.BeginKey(thread(1))
	goesTo(b.Allocator, thread(1), x.ID())
	goesTo(b.Allocator, nil, y.ID())
	testkit.Equal(t, "users", x.UseCount(), 3)
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = b.AllocWith(b.s, 600, mem.AllocOptions{Key: []int{1}}) }),
		"cannot be compared")
	for _, end := range []func(){all, again, endX, endY} {
		end()
	}
	goesTo(b.Allocator, thread(1), mem.PoolID{})

	// Without a scope, a key adds no further cost to a warm request.
	key := any(thread(1))
	if n := testing.AllocsPerRun(100, func() {
		block, _ := mem.AllocWith(b.Allocator, b.s, 600, mem.AllocOptions{Key: key})
		b.Free(block)
	}); n != 0 {
		t.Errorf("%v heap allocations", n)
	}
	testkit.Contains(t, testkit.Panic(t, func() { x.BeginKey(nil) }), "without a key")
	testkit.Contains(t, testkit.Panic(t, func() { x.BeginKey([]int{1}) }), "cannot be compared")
	testkit.Contains(t, testkit.Panic(t, endX), "ended twice")
	held.Flush()
}
