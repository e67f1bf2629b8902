package pinned_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// Memory of a private pool serves no other requests, and stays while the pool has users, which are counted: PyTorch's
// begin_allocate_to_pool, end_allocate_to_pool and release_pool.
func TestDefect14_PinnedPoolsAreApart(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	id := mem.PoolID{7, 0}
	first := alloc(t, a, 4096)
	a.Free(first)
	a.BeginAllocateToPool(id, nil)
	inside := alloc(t, a, 4096)
	if same(inside, first) {
		t.Error("a private pool has memory of the default one")
	}
	a.EndAllocateToPool(id)
	a.BeginAllocateToPool(id, nil) // another graph shares it
	testkit.Equal(t, "users", a.PoolUseCount(id), 2)
	a.Free(inside)
	again := alloc(t, a, 4096)
	if !same(again, inside) {
		t.Error("a pool does not reuse what is free of it")
	}
	a.EndAllocateToPool(id)
	a.Free(again)
	outside := alloc(t, a, 4096)
	if !same(outside, first) {
		t.Error("the default pool does not have its memory back")
	}
	a.Free(outside)
	testkit.Must(t, a.EmptyCache())
	want(t, a, "allocations.current", 1) // the pool has users
	a.ReleasePool(id)
	testkit.Must(t, a.EmptyCache())
	want(t, a, "allocations.current", 1)
	testkit.Equal(t, "users after one release", a.PoolUseCount(id), 1)
	a.ReleasePool(id)
	want(t, a, "allocations.current", 1)
	testkit.Must(t, a.EmptyCache())
	want(t, a, "allocations.current", 0)
	testkit.Equal(t, "users of a pool that is gone", a.PoolUseCount(id), 0)

	testkit.Contains(t, testkit.Panic(t, func() { a.ReleasePool(id) }), "no graph uses pool")
	testkit.Contains(t, testkit.Panic(t, func() { a.EndAllocateToPool(id) }), "no requests go to pool")
	testkit.Contains(t, testkit.Panic(t, func() { a.BeginAllocateToPool(mem.PoolID{}, nil) }), "default pool")
	a.BeginAllocateToPool(id, nil)
	testkit.Contains(t, testkit.Panic(t, func() { a.BeginAllocateToPool(id, nil) }), "already")
	testkit.Contains(t, testkit.Panic(t, func() { a.ReleasePool(id) }), "EndAllocateToPool first")
	if err := a.Close(); err == nil {
		t.Error("closed while requests go to a pool")
	}
	a.EndAllocateToPool(id)
	a.ReleasePool(id)
	closeAll(t, a, d)
}

// A block that captured work used is not reused while the graph exists, in its pool or elsewhere. It is free again when
// its pool is released. A block that captured work did not use is reused within the pool.
func TestDefect14_PinnedMemoryOfAGraphComesBackWithItsPool(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{MaxCachedSize: 4096})
	s := d.stream(t)
	id := mem.PoolID{7, 0}
	a.BeginAllocateToPool(id, func(x driver.Stream) bool { return x == s })
	d.begin(t, s)
	get := func() mem.Block {
		t.Helper()
		b, err := a.AllocOn(s, 9000, mem.AllocOptions{}) // larger than what is cached elsewhere
		testkit.Must(t, err)
		return b
	}
	b := get()
	unused := get()
	other := alloc(t, a, 100) // for the default stream
	fill(a.Bytes(b), 1)
	on := copyIn(t, d, a, s, b)
	piece(t, a, b, s)
	a.Free(b)
	a.Free(unused)
	if again := get(); !same(again, unused) {
		t.Error("what the capture does not use is not reused within it")
	} else {
		a.Free(again)
	}
	graph := d.end(t, s)
	a.EndAllocateToPool(id)
	for range 3 {
		x := alloc(t, a, 9000)
		if same(x, b) || same(x, unused) {
			t.Error("memory of a graph's pool serves others")
		}
		fill(a.Bytes(x), 2)
		a.Free(x)
	}
	testkit.Must(t, a.EmptyCache())
	launched := make([]byte, 9000)
	testkit.Must(t, graph.Launch(s))
	testkit.Must(t, s.CopyOut(launched, on))
	if slices.ContainsFunc(launched, func(c byte) bool { return c != 1 }) {
		t.Error("the graph did not copy what was captured")
	}
	want(t, a, "active_requests.current", 2)
	testkit.Must(t, graph.Close())
	a.ReleasePool(id)
	want(t, a, "active_requests.current", 1)
	testkit.Must(t, a.EmptyCache())
	want(t, a, "allocations.current", 1)
	a.Free(other)
	closeAll(t, a, d)
}

// Scopes apply by stream, by goroutine and by key. The last one begun wins. Requests to a Pool itself need no scope.
func TestDefect14_PinnedScopesCatchStreamsGoroutinesAndKeys(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	side := d.stream(t)
	x, y := a.NewPool(), a.NewPool()
	if x.ID() == y.ID() || x.ID()[0] != 0 {
		t.Errorf("pools %v and %v", x.ID(), y.ID())
	}
	// One free block each tells where a request goes.
	home := map[driver.Pointer]string{}
	note := func(name string, b mem.Block, err error) {
		t.Helper()
		testkit.Must(t, err)
		home[b.Ptr] = name
		a.Free(b)
	}
	bx, errX := x.Alloc(64)
	note("x", bx, errX)
	by, errY := y.Alloc(64)
	note("y", by, errY)
	note("default", alloc(t, a, 64), nil)
	goesTo := func(name string, get func() (mem.Block, error)) {
		t.Helper()
		b, err := get()
		testkit.Must(t, err)
		testkit.Equal(t, "a request goes to", home[b.Ptr], name)
		a.Free(b)
	}
	plain := func() (mem.Block, error) { return a.Alloc(64) }
	onSide := func() (mem.Block, error) { return a.AllocOn(side, 64, mem.AllocOptions{}) }
	keyed := func() (mem.Block, error) { return a.AllocOn(side, 64, mem.AllocOptions{Key: "tenant"}) }
	elsewhere := func(get func() (mem.Block, error)) func() (mem.Block, error) {
		return func() (b mem.Block, err error) {
			var wg sync.WaitGroup
			wg.Go(func() { b, err = get() })
			wg.Wait()
			return b, err
		}
	}

	x.Use(func(s driver.Stream) bool { return s == side }, func() {
		goesTo("default", plain)
		goesTo("x", onSide)
		y.Use(nil, func() { goesTo("y", onSide) })
		m := pinned.Mem(a)
		block, err := m.Alloc(side, 64)
		testkit.Must(t, err)
		testkit.Equal(t, "a request for a stream goes to", home[block.Ptr], "x")
		m.Free(block)
		testkit.Must(t, side.Sync(t.Context()))
	})
	x.Use(mem.CurrentGoroutine(), func() {
		goesTo("x", plain)
		goesTo("x", onSide)
		goesTo("default", elsewhere(plain))
		testkit.Equal(t, "users", x.UseCount(), 2)
	})
	end := x.BeginKey("tenant")
	goesTo("default", onSide)
	goesTo("x", elsewhere(keyed))
	end()
	goesTo("default", keyed)
	testkit.Equal(t, "users", x.UseCount(), 1)
	testkit.Contains(t, testkit.Panic(t, end), "ended twice")
	testkit.Contains(t, testkit.Panic(t, func() { x.BeginKey(nil) }), "without a key")
	testkit.Contains(t, testkit.Panic(t, func() { x.BeginKey([]int{}) }), "cannot be compared")
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = a.AllocOn(side, 64, mem.AllocOptions{Key: []int{}}) }),
		"cannot be compared")

	testkit.Must(t, x.Close())
	want(t, a, "allocations.current", 2)
	if _, err := x.Alloc(64); !errors.Is(err, pinned.ErrPoolClosed) {
		t.Errorf("a closed pool: %v", err)
	}
	testkit.Contains(t, testkit.Panic(t, func() { x.Begin(nil) }), "was closed")
	testkit.Must(t, y.EmptyCache())
	want(t, a, "allocations.current", 1)
	closeAll(t, a, d)
}

// Parts of the reserved segment that a private pool had serve the default pool once the pool is gone.
func TestPoolsGivePartsOfTheReservedSegmentBack(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{ReserveSegment: 8192})
	rest := alloc(t, a, 4096)
	p := a.NewPool()
	b, err := p.Alloc(4096)
	testkit.Must(t, err)
	a.Free(b)
	testkit.Must(t, p.Close())
	want(t, a, "allocations.current", 2)
	again := alloc(t, a, 4096)
	if !same(again, b) {
		t.Error("the part is not reused")
	}
	a.Free(rest)
	a.Free(again)
	closeAll(t, a, d)
}

// A request without room frees the cached memory of its own pool and of pools without users, and no more.
func TestPoolsMakeRoom(t *testing.T) {
	d := newDeviceOf(sim.Options{Pinned: 80 << 10})
	a := open(t, d, pinned.Config{})
	used, own := a.NewPool(), a.NewPool()
	for p, size := range map[*pinned.Pool]int64{used: 16 << 10, own: 32 << 10} {
		b, err := p.Alloc(size)
		testkit.Must(t, err)
		a.Free(b)
	}
	if _, err := a.Alloc(64 << 10); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("memory of pools with users was given back: %v", err)
	}
	b, err := own.Alloc(64 << 10)
	testkit.Must(t, err)
	want(t, a, "allocations.current", 2)
	a.Free(b)
	testkit.Must(t, used.Close())
	testkit.Must(t, own.Close())
	whole := alloc(t, a, 64<<10)
	a.Free(whole)
	closeAll(t, a, d)
}
