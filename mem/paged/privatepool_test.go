package paged_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A Pool is an allocator like any other.
func TestPoolConformance(t *testing.T) {
	for name, o := range map[string]paged.PoolOptions{"pool": {}, "useOnOOM": {UseOnOOM: true}} {
		memtest.RunAll(t, memtest.Config{
			Sim:   sim.Options{Granularity: 1 << 20},
			Waits: true, Alignment: 512, Ops: 300, Seeds: 2, FaultOps: 12,
		}, func(dev driver.Device, cfg paged.Config) (*ownedPool, error) {
			a, err := paged.New(dev, cfg)
			if err != nil {
				return nil, err
			}
			return &ownedPool{a.NewPool(o), a}, nil
		}, map[string]paged.Config{name: {}, name + "Plain": {NoAliases: true, Limit: 200 << 20}})
	}
}

func TestPrivatePools(t *testing.T) {
	for name, cfg := range map[string]paged.Config{
		"defaults": {}, "plain": {NoAliases: true}, "limit": {Limit: 100 << 20}, "returning": {Keep: paged.KeepNone},
	} {
		t.Run(name, func(t *testing.T) {
			memtest.RunPools(t, memtest.Config{
				Sim: sim.Options{Granularity: 1 << 20},
				New: func(t testing.TB, dev driver.Device) mem.Allocator { return memtest.New(t, paged.New, dev, cfg) },
			})
		})
	}
}

// An ownedPool closes its allocator with itself.
type ownedPool struct {
	*paged.Pool
	a *paged.Allocator
}

func (p *ownedPool) Close() error { return errors.Join(p.Pool.Close(), p.a.Close()) }

func (p *ownedPool) EmptyCache() error { return errors.Join(p.Pool.EmptyCache(), p.a.EmptyCache()) }

func (p *ownedPool) Check() error { return p.a.Check() }

// every is a filter that all streams pass.
func every(driver.Stream) bool { return true }

// capture captures the work of f on a stream with memory of a pool, and returns the graph.
func (r *rig) capture(id mem.PoolID, s driver.Stream, f func()) driver.Graph {
	r.t.Helper()
	r.a.BeginAllocateToPool(id, every)
	r.must(r.dev.Graphs().Begin(s))
	f()
	g, err := r.dev.Graphs().End(s)
	r.must(err)
	r.a.EndAllocateToPool(id)
	r.check()
	return g
}

// The blocks that a capture frees serve it again, and no other request, until the graph is gone.
func TestPagesOfAGraphServeNoOtherRequest(t *testing.T) {
	r := newRig(t, 16, sim.Options{Completion: sim.OnDemand}, paged.Config{}, nil)
	s, id := r.stream(), mem.PoolID{1, 0}
	var result mem.Block
	g := r.capture(id, s, func() {
		for n := range 3 {
			b := r.alloc(s, 4*granule)
			r.fill(s, b, byte(n))
			r.free(b)
		}
		result = r.alloc(s, 2*granule)
		r.fill(s, result, 9)
	})
	if reserved := r.a.ReservedByPrivatePools()[id].All.Current; reserved != 4*granule {
		t.Errorf("the pool has %d bytes, want %d", reserved, 4*granule)
	}
	others := []mem.Block{r.granules(12)}
	r.fill(r.s, others[0], 1)
	if _, err := r.a.Alloc(r.s, granule); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a request beside a pool that has the rest: %v", err)
	}
	r.must(r.a.EmptyCache())
	r.must(g.Launch(s))
	r.holds(s, result, 9)
	r.holds(r.s, others[0], 1)
	r.must(g.Close())
	r.a.ReleasePool(id)
	r.free(result)
	others = append(others, r.granules(4)) // the pool's pages
	r.check()
	if pools := r.a.ReservedByPrivatePools(); len(pools) != 0 {
		t.Errorf("pools at the end: %v", pools)
	}
	r.free(others...)
}

// Two graphs share a pool: the second takes what the first freed. A result of the first that lives on is not touched.
func TestGraphsShareAPool(t *testing.T) {
	r := newRig(t, 64, sim.Options{Completion: sim.AtRandom, Seed: 3}, paged.Config{}, nil)
	s, id := r.stream(), mem.PoolID{1, 0}
	var graphs []driver.Graph
	var results []mem.Block
	for n := range 8 {
		size := int64(8-n) * granule
		graphs = append(graphs, r.capture(id, s, func() {
			x, y := r.alloc(s, size), r.alloc(s, size/2)
			r.fill(s, x, 100)
			r.fill(s, y, 101)
			r.free(x)
			out := r.alloc(s, 3000)
			r.fill(s, out, byte(n))
			results = append(results, out)
			r.free(y)
		}))
	}
	if reserved := r.a.ReservedByPrivatePools()[id].All.Current; reserved > 13*granule {
		t.Errorf("the pool has %d granules, and the largest graph needs 12", reserved/granule)
	}
	testkit.Equal(t, "users", r.a.PoolUseCount(id), 8)
	for range 3 {
		for n, g := range graphs {
			r.must(g.Launch(s))
			r.holds(s, results[n], byte(n))
		}
	}
	for n, g := range graphs {
		r.holds(s, results[n], byte(n))
		r.must(g.Close())
		r.a.ReleasePool(id)
	}
	r.free(results...)
}

// A pool with UseOnOOM lends its idle memory, unless graphs use it.
func TestUseOnOOM(t *testing.T) {
	r := simple(t, 8, paged.Config{})
	p := r.a.NewPool(paged.PoolOptions{UseOnOOM: true})
	b, err := p.Alloc(r.s, 8*granule)
	r.must(err)
	p.Free(b)
	lent := r.granules(5)
	r.check()
	if _, err := r.a.Checkpoint(p.ID()); !errors.Is(err, driver.ErrNotReady) {
		t.Errorf("a checkpoint of a pool that has lent a block: %v", err)
	}
	r.free(lent)
	r.a.RetainPool(p.ID())
	if _, err := r.a.Alloc(r.s, granule); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a pool that graphs use lends: %v", err)
	}
	r.a.ReleasePool(p.ID())
	r.must(p.Close())
	r.free(r.granules(8))
}

// SetUseOnOOM changes whether a pool lends its memory.
func TestSetUseOnOOM(t *testing.T) {
	r := simple(t, 8, paged.Config{})
	p := r.a.NewPool(paged.PoolOptions{})
	b, err := p.Alloc(r.s, 8*granule)
	r.must(err)
	p.Free(b)
	for _, yes := range []bool{true, false, true, true, false} {
		r.a.SetUseOnOOM(p.ID(), yes)
		b, err := r.a.Alloc(r.s, 5*granule)
		if yes == errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("SetUseOnOOM %v: a request got %+v, %v", yes, b, err)
		}
		r.free(b)
	}
	r.must(p.Close())
	r.free(r.granules(8))
}

// A pool that is not there has no options.
func TestOptionsOfNoPool(t *testing.T) {
	r := simple(t, 8, paged.Config{})
	for _, call := range []func(mem.PoolID){
		r.a.NeverSplit, r.a.ReleasePool, func(id mem.PoolID) { r.a.SetUseOnOOM(id, true) },
	} {
		testkit.Contains(t, testkit.Panic(t, func() { call(mem.PoolID{9, 9}) }), "pool (9, 9)")
	}
	testkit.Equal(t, "users", r.a.PoolUseCount(mem.PoolID{9, 9}), 0)
	testkit.Contains(t, testkit.Panic(t, func() { r.a.RetainPool(mem.PoolID{}) }), "default pool")
}

// A pool made by a capture and set to NeverSplit gives whole blocks.
func TestNeverSplit(t *testing.T) {
	r := simple(t, 8, paged.Config{})
	id := mem.PoolID{1, 0}
	r.a.BeginAllocateToPool(id, every)
	r.a.NeverSplit(id)
	r.free(r.granules(4))
	r.a.NeverSplit(id) // it has memory, but none that was split
	b := r.alloc(r.s, 3*granule)
	testkit.Equal(t, "the size of a block", b.Size, 4*granule)
	r.free(b)
	r.a.EndAllocateToPool(id)
	r.a.ReleasePool(id)
}

// Requests go to a pool while a scope of it is open. A scope that has ended is no user of the pool: graphs are, until
// they release it.
func TestScopesOfAPool(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	p := r.a.NewPool(paged.PoolOptions{})
	var inside mem.Block
	p.Use(nil, func() {
		testkit.Equal(t, "users within the scope", p.UseCount(), 2)
		inside = r.granules(2)
	})
	outside := r.granules(1)
	testkit.Equal(t, "users after the scope", p.UseCount(), 1)
	testkit.Equal(t, "reserved", p.Reserved().All.Current, 2*granule)
	r.must(r.a.CheckPoolLive(p.ID(), []driver.Pointer{inside.Ptr}))
	end := p.BeginKey("tenant")
	keyed, err := r.a.AllocWith(r.s, 100, mem.AllocOptions{Key: "tenant"})
	r.must(err)
	other := r.alloc(r.s, 100)
	end()
	r.must(r.a.CheckPoolLive(p.ID(), []driver.Pointer{inside.Ptr, keyed.Ptr}))
	testkit.Contains(t, testkit.Panic(t, end), "ended twice")

	r.a.RetainPool(p.ID())
	r.free(inside, keyed, outside, other)
	kept := p.Reserved().All.Current
	r.must(p.EmptyCache())
	testkit.Equal(t, "reserved while graphs use the pool", p.Reserved().All.Current, kept)
	r.a.ReleasePool(p.ID())
	r.must(p.EmptyCache())
	testkit.Equal(t, "reserved in the end", p.Reserved().All.Current, 0)
	r.must(p.Close())
}

// A pool that does not split gives each block pages of its own, and the whole of a free block to the next request.
func TestNoSplit(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	p := r.a.NewPool(paged.PoolOptions{NoSplit: true})
	x, err := p.Alloc(r.s, 3*granule-1000)
	r.must(err)
	y, err := p.Alloc(r.s, 100)
	r.must(err)
	testkit.Equal(t, "reserved", p.Reserved().All.Current, 4*granule)
	p.Free(x)
	z, err := p.Alloc(r.s, granule/2)
	r.must(err)
	if z.Ptr != x.Ptr || z.Size != 3*granule {
		t.Errorf("the free block at %#x of 3 granules became %+v", uint64(x.Ptr), z)
	}
	testkit.Equal(t, "requested", r.a.Stats().RequestedBytes.All.Current, granule/2+100)
	r.check()
	p.Free(y)
	p.Free(z)
	r.must(p.Close())
}

func TestMisuseOfPools(t *testing.T) {
	r := simple(t, 16, paged.Config{})
	id := mem.PoolID{3, 0}
	testkit.Contains(t, testkit.Panic(t, func() { r.a.ReleasePool(id) }), "has no users")
	testkit.Contains(t, testkit.Panic(t, func() { r.a.EndAllocateToPool(id) }), "no requests go")
	testkit.Contains(t, testkit.Panic(t, func() { r.a.BeginAllocateToPool(mem.PoolID{}, every) }), "default pool")
	r.a.BeginAllocateToPool(id, every)
	testkit.Contains(t, testkit.Panic(t, func() { r.a.BeginAllocateToPool(id, every) }), "already")
	testkit.Contains(t, testkit.Panic(t, func() { r.a.ReleasePool(id) }), "EndAllocateToPool first")
	r.a.EndAllocateToPool(id)
	r.a.ReleasePool(id)
	p, q := r.a.NewPool(paged.PoolOptions{}), r.a.NewPool(paged.PoolOptions{})
	b, err := p.Alloc(r.s, 100)
	r.must(err)
	testkit.Contains(t, testkit.Panic(t, func() { q.Free(b) }), "of a block of pool")
	r.must(p.Close())
	if _, err := p.Alloc(r.s, 100); !errors.Is(err, paged.ErrPoolClosed) {
		t.Errorf("a request to a closed pool: %v", err)
	}
	testkit.Contains(t, testkit.Panic(t, func() { p.Begin(nil) }), "closed")
	r.free(b)
	testkit.Contains(t, testkit.Panic(t, func() { r.free(b) }), "not live")
	r.must(q.Close())
	r.must(r.a.EmptyCache())
	testkit.Equal(t, "pools", len(r.a.ReservedByPrivatePools()), 0)
}

func TestPoolWithAChosenID(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	id := mem.PoolID{1, 7}
	p := r.a.NewPool(paged.PoolOptions{ID: id})
	testkit.Equal(t, "ID", p.ID(), id)
	testkit.WantPanic(t, "a second pool with it", "paged: NewPool: there is a pool", func() {
		r.a.NewPool(paged.PoolOptions{ID: id})
	})
	r.must(p.Close())
	r.must(r.a.NewPool(paged.PoolOptions{ID: id}).Close())
}

// A pool gets memory of blocks that were freed just before, which a processor cache holds.
func TestPoolGetsMemoryOfCachedBlocks(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 8 * granule})
	p := r.a.NewPool(paged.PoolOptions{})
	r.free(r.granules(6))
	b, err := p.Alloc(r.s, 5*granule)
	r.must(err)
	p.Free(b)
	r.must(p.Close())
}

// With NoAliases no page of a pool has two addresses: other devices could not use it.
func TestPoolWithoutAliases(t *testing.T) {
	r := simple(t, 8, paged.Config{NoAliases: true})
	p := r.a.NewPool(paged.PoolOptions{})
	var blocks []mem.Block
	for range 3 {
		b, err := p.Alloc(r.s, 2*granule)
		r.must(err)
		blocks = append(blocks, b)
	}
	p.Free(blocks[0])
	p.Free(blocks[2])
	b, err := p.Alloc(r.s, 4*granule) // fits into no hole
	r.must(err)
	r.check()
	if reserved := r.a.Stats().ReservedBytes.All.Current; reserved > 6*granule {
		t.Errorf("%d granules, want the 4 that were freed and 2", reserved/granule)
	}
	p.Free(b)
	p.Free(blocks[1])
	r.must(p.Close())
}
