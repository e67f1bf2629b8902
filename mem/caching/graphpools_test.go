package caching_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
)

// Graphs that are captured one after another, each as though those before it had just been launched: what PyTorch's
// trees of graphs do. They are right in whichever order they are launched again, over pools of the device's memory and
// over such whose segments come from elsewhere.
func TestGraphsOverUserPools(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.graphsOverPools(1<<16, 10)
	})
}

func (b *graphBench) graphsOverPools(size int64, launches int) {
	b.t.Helper()
	main := b.s[0]
	zero := b.zeros(size)
	upstream := direct.New(b.dev, direct.Config{})
	for _, o := range []caching.PoolOptions{{}, {Upstream: upstream}, {NoSplit: true}} {
		pool := b.NewPool(o)
		capture := func(v byte) (g driver.Graph, result mem.Block) {
			g = b.capture(pool.ID(), main, func() { result = b.chain(main, zero, v) })
			return g, result
		}
		first, kept := capture(1)
		state, err := b.Checkpoint(pool.ID())
		b.ok(err)
		// Two ways to go on from there: the second graph begins where the first one began.
		second, result := capture(2)
		delta, err := b.Restore(state)
		b.ok(err)
		testkit.Equal(b.t, "the result of the second graph was freed", slices.Contains(delta.Freed, result), true)
		third, other := capture(2) // from the same state, but the pool has grown: perhaps elsewhere
		b.Free(other)
		kept, live := delta.At(kept.Ptr)
		if !live {
			b.t.Fatal("the result of the first graph is not live")
		}
		outside := b.alloc(b.s[1], size)
		for range launches {
			b.ok(b.s[1].Fill(outside.Ptr, 0xEE, size)) // memory outside the pool may be written
			for g, result := range map[driver.Graph]mem.Block{second: result, third: other} {
				b.ok(main.Fill(kept.Ptr, 0, size))
				b.ok(main.Fill(result.Ptr, 0, size))
				b.ok(first.Launch(main))
				b.ok(g.Launch(main))
				b.holds(main, kept, 94)
				b.holds(main, result, 156)
			}
			b.Free(outside)
			b.ok(b.EmptyCache())
			outside = b.alloc(b.s[1], size)
		}
		b.sync(main, b.s[1])
		for _, g := range []driver.Graph{first, second, third} {
			b.ok(g.Close())
			b.ReleasePool(pool.ID())
		}
		b.Free(kept)
		b.Free(outside)
		b.ok(pool.Close())
		b.ok(b.EmptyCache())
	}
	b.finish(nil, nil, zero)
	b.ok(upstream.Close())
}

// With a split limit, a request for which there is no room has free blocks of its pool given back that are large
// enough: but none that a captured graph writes to.
func TestOversizeBlocksOfAGraphStay(t *testing.T) {
	d := drivertest.OpenSim(t, 400*mib)
	b := newGraphBench(t, d, d)
	_, err := b.ParseConfigure("max_split_size_mb:20")
	b.ok(err)
	s, id := b.s[0], mem.PoolID{1, 0}
	g := b.capture(id, s, func() {
		used := b.alloc(s, 200*mib)
		b.ok(s.Fill(used.Ptr, 1, used.Size))
		b.Free(used)
		if _, err := b.Alloc(s, 300*mib); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("a request for more than there is: %v", err)
		}
	})
	b.ok(g.Launch(s))
	b.sync(s)
	b.BeginAllocateToPool(id, func(driver.Stream) bool { return true }) // a second graph's
	if _, err := b.Alloc(s, 300*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a request for more than there is: %v", err)
	}
	b.EndAllocateToPool(id)
	b.ok(g.Launch(s))
	b.sync(s)
	b.ReleasePool(id)
	b.finish([]driver.Graph{g}, []mem.PoolID{id})
}
