package memtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// PrivatePools are the methods of an allocator with private pools, such as mem/caching and mem/paged.
type PrivatePools interface {
	mem.Allocator
	mem.Trimmer
	mem.Snapshotter
	mem.StatsReporter
	BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool)
	EndAllocateToPool(id mem.PoolID)
	ReleasePool(id mem.PoolID)
	CheckPoolLive(id mem.PoolID, live []driver.Pointer) error
	ReservedByPrivatePools() map[mem.PoolID]mem.StatArray
}

// RunPools tests the private pools of an allocator on simulated devices: which requests go to a pool, and that its
// memory serves no other request before its last user is gone.
func RunPools(t *testing.T, cfg Config) {
	for name, test := range poolChecks {
		t.Run(name, func(t *testing.T) { checkPools(t, cfg.complete(), test) })
	}
}

// poolChecks are the parts of RunPools.
var poolChecks = map[string]func(*poolBench){
	"Graphs": (*poolBench).graphs, "Scopes": (*poolBench).scopes, "Shared": (*poolBench).shared,
	"FailedCapture": (*poolBench).failedCapture,
}

// checkPools runs a part on a new allocator, which must have nothing left in the end.
func checkPools(t testing.TB, cfg Config, test func(*poolBench)) {
	b := &poolBench{t: t, dev: cfg.Device(t), size: cfg.MaxBlock}
	a, ok := cfg.New(t, b.dev).(PrivatePools)
	if !ok {
		t.Fatal("the allocator has no private pools")
	}
	b.PrivatePools = a
	for i := range b.s {
		s, err := b.dev.NewStream(driver.StreamOptions{})
		testkit.Must(t, err)
		b.s[i] = s
	}
	test(b)
	testkit.Must(t, a.EmptyCache())
	testkit.Equal(t, "pools at the end", len(a.ReservedByPrivatePools()), 0)
	testkit.Equal(t, "live blocks at the end", a.Stats().Allocation.All.Current, 0)
	if c, ok := a.(interface{ Check() error }); ok {
		testkit.Must(t, c.Check())
	}
}

// A poolBench is an allocator with private pools.
type poolBench struct {
	PrivatePools
	t    testing.TB
	dev  driver.Device
	s    [2]driver.Stream
	size int64
}

func (b *poolBench) alloc(s driver.Stream, size int64) mem.Block {
	b.t.Helper()
	block, err := b.Alloc(s, size)
	testkit.Must(b.t, err)
	return block
}

func everyStream(driver.Stream) bool { return true }

// capture captures the work of f on the first stream with memory of a pool.
func (b *poolBench) capture(id mem.PoolID, f func(s driver.Stream)) driver.Graph {
	b.t.Helper()
	b.BeginAllocateToPool(id, everyStream)
	testkit.Must(b.t, b.dev.Graphs().Begin(b.s[0]))
	f(b.s[0])
	g, err := b.dev.Graphs().End(b.s[0])
	b.EndAllocateToPool(id)
	testkit.Must(b.t, err)
	return g
}

// holds checks the contents of a block.
func (b *poolBench) holds(block mem.Block, value byte) {
	b.t.Helper()
	got := make([]byte, block.Size)
	testkit.Must(b.t, b.s[0].CopyOut(got, block.Ptr))
	if i := slices.IndexFunc(got, func(v byte) bool { return v != value }); i >= 0 {
		b.t.Fatalf("byte %d of %+v is %d, want %d", i, block, got[i], value)
	}
}

// graphs launches a graph again and again while its freed memory could tempt others, then has its memory given back.
func (b *poolBench) graphs() {
	b.t.Helper()
	id := mem.PoolID{5, 0}
	outside := []mem.Block{b.alloc(b.s[0], b.size)}
	b.Free(outside[0])
	outside = outside[:0]
	var result mem.Block
	g := b.capture(id, func(s driver.Stream) {
		for n := range byte(4) {
			x := b.alloc(s, b.size)
			testkit.Must(b.t, s.Fill(x.Ptr, n, b.size))
			result = b.alloc(s, 1000)
			testkit.Must(b.t, s.Copy(result.Ptr, x.Ptr, result.Size))
			b.Free(x)
			if n < 3 {
				b.Free(result)
			}
		}
	})
	if reserved := b.ReservedByPrivatePools()[id].All.Current; reserved >= 2*b.size {
		b.t.Errorf("the pool has %d bytes: freed memory of %d bytes was not allocated again", reserved, b.size)
	}
	for range 4 {
		outside = append(outside, b.alloc(b.s[0], b.size))
		block := outside[len(outside)-1]
		testkit.Must(b.t, b.s[0].Fill(block.Ptr, 0xAA, block.Size))
		testkit.Must(b.t, g.Launch(b.s[0]))
		testkit.Must(b.t, b.EmptyCache())
		b.holds(result, 3)
	}
	for _, block := range outside {
		b.holds(block, 0xAA)
		b.Free(block)
	}
	testkit.Must(b.t, g.Close())
	b.ReleasePool(id)
	b.holds(result, 3) // live blocks outlast the pool's users
	b.Free(result)
}

// scopes sends requests to the pool of the last scope that matches.
func (b *poolBench) scopes() {
	b.t.Helper()
	one, two := mem.PoolID{1, 0}, mem.PoolID{2, 0}
	x, y := b.s[0], b.s[1]
	before := b.alloc(x, 100)
	b.BeginAllocateToPool(one, everyStream)
	b.BeginAllocateToPool(two, func(s driver.Stream) bool { return s == y })
	blocks := []mem.Block{b.alloc(x, 100), b.alloc(y, 100), b.alloc(x, b.size), b.alloc(y, b.size)}
	b.EndAllocateToPool(two)
	blocks = append(blocks, b.alloc(y, 100))
	b.EndAllocateToPool(one)
	b.Free(before)
	blocks = append(blocks, b.alloc(x, 100))
	testkit.Must(b.t, b.CheckPoolLive(one, []driver.Pointer{blocks[4].Ptr, blocks[0].Ptr, blocks[2].Ptr}))
	testkit.Must(b.t, b.CheckPoolLive(two, []driver.Pointer{blocks[1].Ptr, blocks[3].Ptr}))
	for _, live := range [][]driver.Pointer{{blocks[1].Ptr}, {blocks[1].Ptr, blocks[3].Ptr, blocks[5].Ptr}} {
		if b.CheckPoolLive(two, live) == nil {
			b.t.Errorf("the live blocks of the second pool count as %#x", live)
		}
	}
	if b.CheckPoolLive(mem.PoolID{3, 0}, nil) == nil {
		b.t.Error("a pool that was never used counts as one without live blocks")
	}
	want := []mem.PoolID{one, two, one, two, one, {}}
	for _, seg := range b.Snapshot() {
		for _, in := range seg.Blocks {
			i := slices.IndexFunc(blocks, func(block mem.Block) bool { return block.Ptr == in.Ptr })
			if i >= 0 && in.State == mem.ActiveAllocated && seg.Pool != want[i] {
				b.t.Errorf("block %d is in a segment of pool %v, want %v", i, seg.Pool, want[i])
			}
		}
	}
	for _, block := range blocks {
		b.Free(block)
	}
	b.ReleasePool(one)
	b.ReleasePool(two)
}

// shared captures graphs of several sizes with one pool, whose memory is kept until the last is gone.
func (b *poolBench) shared() {
	b.t.Helper()
	id := mem.PoolID{7, 0}
	var graphs []driver.Graph
	var results []mem.Block
	for n := range byte(4) {
		graphs = append(graphs, b.capture(id, func(s driver.Stream) {
			x := b.alloc(s, b.size/int64(n+1))
			testkit.Must(b.t, s.Fill(x.Ptr, 10*n, x.Size))
			results = append(results, b.alloc(s, 700))
			testkit.Must(b.t, s.Copy(results[n].Ptr, x.Ptr, results[n].Size))
			b.Free(x)
		}))
	}
	for len(graphs) > 0 {
		for n, g := range graphs {
			testkit.Must(b.t, g.Launch(b.s[0]))
			b.holds(results[n], byte(10*n))
		}
		last := len(graphs) - 1
		testkit.Must(b.t, graphs[last].Close())
		b.ReleasePool(id)
		b.Free(results[last])
		graphs, results = graphs[:last], results[:last]
		testkit.Must(b.t, b.EmptyCache())
	}
}

// failedCapture ends a pool after a capture that failed.
func (b *poolBench) failedCapture() {
	b.t.Helper()
	id := mem.PoolID{8, 0}
	b.BeginAllocateToPool(id, everyStream)
	testkit.Must(b.t, b.dev.Graphs().Begin(b.s[0]))
	x := b.alloc(b.s[0], b.size)
	testkit.Must(b.t, b.s[0].Fill(x.Ptr, 1, x.Size))
	mark, err := b.s[0].Mark()
	testkit.Must(b.t, err)
	testkit.Must(b.t, b.s[1].WaitFor(b.s[0], mark))
	testkit.Must(b.t, b.s[1].Fill(x.Ptr, 2, x.Size)) // and the first stream does not wait for it
	if _, err := b.dev.Graphs().End(b.s[0]); !errors.Is(err, driver.ErrInvalid) {
		b.t.Fatalf("End of a capture that a stream has not left: %v", err)
	}
	b.EndAllocateToPool(id)
	b.Free(x)
	b.ReleasePool(id)
}
