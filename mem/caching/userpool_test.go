package caching_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
)

// Behaviours 39 to 51: what PyTorch's tests of torch.cuda.MemPool say, with goroutines for threads and streams, or the
// pool itself, for "the current thread".

// A counted is an upstream that counts, straight from the device.
type counted struct {
	*direct.Allocator
	mu            sync.Mutex
	allocs, frees int
	streams       []driver.StreamID // of allocs
}

func (c *counted) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	c.mu.Lock()
	c.allocs++
	c.streams = append(c.streams, s.ID())
	c.mu.Unlock()
	return c.Allocator.Alloc(s, size)
}

func (c *counted) Free(b mem.Block, used ...driver.Stream) {
	c.mu.Lock()
	c.frees++
	c.mu.Unlock()
	c.Allocator.Free(b, used...)
}

// counts fails the test unless so many segments were asked for and came back.
func (c *counted) counts(t *testing.T, allocs, frees int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	testkit.Equal(t, "segments from the upstream", c.allocs, allocs)
	testkit.Equal(t, "segments back", c.frees, frees)
}

func newCounted(dev driver.Device) *counted {
	return &counted{Allocator: direct.New(dev, direct.Config{})}
}

// set changes the settings.
func (b *graphBench) set(settings string) {
	b.t.Helper()
	cfg, _, err := caching.ParseConfig(settings)
	b.ok(err)
	b.ok(b.Configure(cfg))
}

// refused fails the test unless there is no room for a request.
func refused(t *testing.T, a mem.Allocator, s driver.Stream, size int64) *mem.OutOfMemory {
	t.Helper()
	_, err := a.Alloc(s, size)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) {
		t.Fatalf("a request of %d bytes: %v, want *mem.OutOfMemory", size, err)
	}
	return oom
}

func (b *graphBench) from(p *caching.Pool, s driver.Stream, size int64) mem.Block {
	b.t.Helper()
	block, err := p.Alloc(s, size)
	b.ok(err)
	return block
}

func TestBehaviour39_PoolIDs(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		first, second := b.NewPool(caching.PoolOptions{}), b.NewPool(caching.PoolOptions{})
		testkit.Equal(t, "the first component", first.ID()[0], 0)
		if second.ID()[1] <= first.ID()[1] {
			t.Errorf("pool %v was made after pool %v", second.ID(), first.ID())
		}
		ids := make([]mem.PoolID, 4)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() { ids[i] = b.NewPool(caching.PoolOptions{}).ID() })
		}
		wg.Wait()
		ids = append(ids, first.ID(), second.ID())
		slices.SortFunc(ids, func(x, y mem.PoolID) int { return slices.Compare(x[:], y[:]) })
		testkit.Equal(t, "different pools", len(slices.Compact(ids)), 6)

		// An ID that a caller chose is not used again, and the IDs of another allocator differ.
		taken := mem.PoolID{0, ids[5][1] + 1}
		b.BeginAllocateToPool(taken, everyStream)
		b.EndAllocateToPool(taken)
		if got := b.NewPool(caching.PoolOptions{}).ID(); got[1] <= taken[1] {
			t.Errorf("the pool after %v is %v", taken, got)
		}
	})
}

func TestBehaviour40_PoolWithAnUpstream(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		up := newCounted(b.dev)
		p := b.NewPool(caching.PoolOptions{Upstream: up})
		testkit.Equal(t, "users of a new pool", p.UseCount(), 1)
		s := b.s[1]
		var out []mem.Block
		p.Use(nil, func() {
			testkit.Equal(t, "users within a scope", p.UseCount(), 2)
			out = append(out, b.alloc(s, mib))
		})
		testkit.Equal(t, "users after it", p.UseCount(), 1)
		up.counts(t, 1, 0)
		out = append(out, b.alloc(s, mib)) // not within the pool
		up.counts(t, 1, 0)
		p.Use(nil, func() {
			testkit.Equal(t, "segments", len(p.Snapshot()), 1)
			out = append(out, b.alloc(s, mib)) // the rest of the segment of 2 MiB
			testkit.Equal(t, "segments", len(p.Snapshot()), 1)
			out = append(out, b.alloc(s, mib))
			testkit.Equal(t, "segments", len(p.Snapshot()), 2)
		})
		testkit.Equal(t, "segments after the scope", len(p.Snapshot()), 2)
		for _, segment := range p.Snapshot() {
			testkit.Equal(t, "the pool of a segment", segment.Pool, p.ID())
		}
		up.counts(t, 2, 0)
		testkit.Equal(t, "reserved by the pool", p.Reserved().SmallPool.Current, 4*mib)
		testkit.Equal(t, "reserved in all", b.Stats().ReservedBytes.All.Current, 6*mib)
		if !slices.Equal(up.streams, []driver.StreamID{s.ID(), s.ID()}) {
			t.Errorf("the upstream was asked on streams %v, want the segments' own, %d", up.streams, s.ID())
		}
		for _, block := range out {
			b.Free(block)
		}
		up.counts(t, 2, 0)
		b.ok(p.Close())
		up.counts(t, 2, 2)
		testkit.Equal(t, "reserved by the pool after its death", p.Reserved().All.Current, 0)
		testkit.Equal(t, "pools after its death", len(b.ReservedByPrivatePools()), 0)
		b.finish(nil, nil)
	})
}

func TestBehaviour41_ABlockOutlivesItsPool(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		up := newCounted(b.dev)
		p := b.NewPool(caching.PoolOptions{Upstream: up})
		block := b.from(p, b.s[1], mib)
		b.ok(p.Close())
		up.counts(t, 1, 0)
		b.ok(b.s[1].Fill(block.Ptr, 7, block.Size)) // it is still memory
		b.ok(b.EmptyCache())
		up.counts(t, 1, 0)
		if _, err := p.Alloc(b.s[1], 512); !errors.Is(err, caching.ErrPoolClosed) {
			t.Errorf("a request to a closed pool: %v", err)
		}
		p.Free(block)
		up.counts(t, 1, 0)
		b.ok(b.EmptyCache())
		up.counts(t, 1, 1)
		b.ok(p.Close())
		up.counts(t, 1, 1)
		b.finish(nil, nil)
	})
}

func TestBehaviour42_APoolKeepsItsUpstream(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		var block mem.Block
		up := newCounted(b.dev)
		func() { // afterwards only the allocator has references to the pool and the upstream
			p := b.NewPool(caching.PoolOptions{Upstream: up})
			block = b.from(p, b.s[0], 512)
			b.ok(p.Close())
		}()
		up.counts(t, 1, 0)
		b.Free(block)
		b.ok(b.EmptyCache())
		up.counts(t, 1, 1)
		b.finish(nil, nil)
	})
}

func TestBehaviour43_TheDefaultPoolBorrowsWhereItMay(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.set("limit:80MiB")
		s := b.s[1]
		keep := b.NewPool(caching.PoolOptions{Upstream: newCounted(b.dev)})
		lend := b.NewPool(caching.PoolOptions{Upstream: newCounted(b.dev), UseOnOOM: true})
		x, y := b.from(keep, s, 40*mib), b.from(lend, s, 40*mib)
		refused(t, b, s, 40*mib)
		keep.Free(x)
		lend.Free(y)
		refused(t, b, b.s[2], 30*mib) // a block of another stream's is of no use
		z := b.alloc(s, 30*mib)
		testkit.Equal(t, "the borrowed block", z.Ptr, y.Ptr)
		b.ok(b.Check())
		oom := refused(t, b, s, 30*mib) // the other pool does not lend, and 10 MiB are left of this one
		testkit.Equal(t, "the pool of a request that found none", oom.Pool, mem.PoolID{})
		if !slices.ContainsFunc(oom.Remedies, func(r mem.Remedy) bool { return r.Name == fmt.Sprintf("UseOnOOM for pool %v", keep.ID()) }) {
			t.Errorf("the error does not name the pool that could lend:\n%v", oom)
		}
		b.Free(z)
		e := b.from(lend, s, 20*mib)
		testkit.Equal(t, "the block that went back", e.Ptr, y.Ptr)
		lend.Free(e)

		// A borrowed block counts as the pool's also when the pool takes it back.
		z = b.alloc(s, 30*mib)
		lend.Free(z)
		// A request to another pool does not borrow.
		other := b.NewPool(caching.PoolOptions{})
		if _, err := other.Alloc(s, 30*mib); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("a request to a pool: %v, want no memory", err)
		}
		b.ok(other.Close())
		b.ok(keep.Close())
		b.ok(lend.Close())
		b.finish(nil, nil)
	})
}

// Blocks of expandable segments are not borrowed.
func TestBehaviour43_ExpandableSegmentsAreNotLent(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.set("expandable_segments:True,limit:80MiB")
		p := b.NewPool(caching.PoolOptions{UseOnOOM: true})
		p.Free(b.from(p, b.s[0], 40*mib))
		b.Free(b.alloc(b.s[1], 20*mib))
		block := b.alloc(b.s[0], 40*mib) // after the cache of the other stream was given back
		for _, s := range b.Snapshot() {
			testkit.Equal(t, fmt.Sprintf("that the segment at %#x can grow", s.Ptr), s.Expandable, true)
		}
		b.Free(block)
		b.ok(b.EmptyCache())
		b.set("expandable_segments:True,limit:60MiB")
		oom := refused(t, b, b.s[0], 40*mib)
		if slices.ContainsFunc(oom.Remedies, func(r mem.Remedy) bool { return strings.HasPrefix(r.Name, "UseOnOOM") }) {
			t.Errorf("a remedy is what was done:\n%v", oom)
		}
		b.ok(p.Close())
		b.Free(b.alloc(b.s[0], 40*mib))
		b.finish(nil, nil)
	})
}

func TestBehaviour44_DeletedPoolsLendNothing(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.set("limit:20MiB")
		s := b.s[0]
		for range 10 {
			p := b.NewPool(caching.PoolOptions{UseOnOOM: true})
			p.Free(b.from(p, s, 2*mib))
			b.ok(p.Close())
		}
		testkit.Equal(t, "reserved", b.Stats().ReservedBytes.All.Current, 0)

		p := b.NewPool(caching.PoolOptions{UseOnOOM: true})
		x, y := b.from(p, s, 2*mib), b.from(p, s, 2*mib)
		b.ok(p.Close())
		p.Free(x) // free, but in a segment that stays
		b.ok(b.CheckPoolLive(p.ID(), []driver.Pointer{y.Ptr}))
		if oom := refused(t, b, s, 2*mib); len(oom.Remedies) > 0 {
			t.Errorf("what a closed pool has is no remedy: %v", oom.Remedies)
		}
		p.Free(y)
		b.Free(b.alloc(s, 2*mib)) // the pool's memory was given back for it
		testkit.Equal(t, "pools", len(b.ReservedByPrivatePools()), 0)
		b.finish(nil, nil)
	})
}

func TestBehaviour45_APoolThatDoesNotSplit(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		splits, whole := b.NewPool(caching.PoolOptions{}), b.NewPool(caching.PoolOptions{NoSplit: true})
		blocks := map[*caching.Pool][]mem.Block{}
		for range 2 {
			for _, p := range []*caching.Pool{splits, whole} {
				p.Use(nil, func() { blocks[p] = append(blocks[p], b.alloc(b.s[0], 4*mib)) })
			}
		}
		testkit.Equal(t, "segments of the pool that splits", len(splits.Snapshot()), 1)
		testkit.Equal(t, "segments of the other", len(whole.Snapshot()), 2)
		for _, segment := range whole.Snapshot() {
			testkit.Equal(t, "blocks of a segment", len(segment.Blocks), 1)
		}
		testkit.Equal(t, "a whole block", blocks[whole][0].Size, 20*mib)
		for p, bs := range blocks {
			for _, block := range bs {
				p.Free(block)
			}
			b.ok(p.Close())
		}
		b.finish(nil, nil)
	})
}

func TestBehaviour46_NestedScopes(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		var pools [3]*caching.Pool
		for i := range pools {
			pools[i] = b.NewPool(caching.PoolOptions{})
		}
		var blocks []mem.Block
		alloc := func() { blocks = append(blocks, b.alloc(b.s[0], 20*mib)) }
		pools[0].Use(nil, func() {
			alloc()
			pools[1].Use(nil, func() {
				alloc()
				pools[2].Use(nil, alloc)
				alloc()
			})
			alloc()
		})
		for i, want := range []int{2, 2, 1} {
			testkit.Equal(t, fmt.Sprintf("segments of pool %d", i+1), len(pools[i].Snapshot()), want)
		}
		testkit.Equal(t, "segments in all", len(b.Snapshot()), 5)
		for _, block := range blocks {
			b.Free(block)
		}
		for _, p := range pools {
			b.ok(p.Close())
		}
		b.finish(nil, nil)
	})
}

func TestBehaviour47_EmptyCacheWithinScopes(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		var pools [4]*caching.Pool
		var wg, within sync.WaitGroup
		within.Add(len(pools))
		for i := range pools {
			pools[i] = b.NewPool(caching.PoolOptions{})
			wg.Go(func() {
				own := func(s driver.Stream) bool { return s == b.s[i] }
				pools[i].Use(own, func() {
					block, err := b.Alloc(b.s[i], 16)
					if err != nil {
						t.Error(err)
					}
					b.Free(block)
					if err := b.EmptyCache(); err != nil {
						t.Error(err)
					}
					within.Done()
					within.Wait() // until all have emptied the cache, each within at least its own scope
				})
			})
		}
		wg.Wait()
		for i, p := range pools {
			testkit.Equal(t, fmt.Sprintf("segments of pool %d", i), len(p.Snapshot()), 1)
		}
		b.ok(b.EmptyCache()) // and without a scope: they are in use
		for _, p := range pools {
			testkit.Equal(t, "segments", len(p.Snapshot()), 1)
			b.ok(p.EmptyCache())
			testkit.Equal(t, "segments after the pool's own EmptyCache", len(p.Snapshot()), 0)
			b.ok(p.Close())
		}
		b.finish(nil, nil)
	})
}

func TestBehaviour48_OtherGoroutinesAllocateOutside(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		for _, how := range []struct {
			name  string
			alloc func(p *caching.Pool, outside func()) mem.Block
		}{
			{"by streams", func(p *caching.Pool, outside func()) (block mem.Block) {
				p.Use(func(s driver.Stream) bool { return s == b.s[0] }, func() {
					outside()
					block = b.alloc(b.s[0], 2*mib)
				})
				return block
			}},
			{"by goroutine", func(p *caching.Pool, outside func()) (block mem.Block) {
				p.Use(mem.CurrentGoroutine(), func() {
					outside()
					block = b.alloc(b.s[0], 2*mib)
				})
				return block
			}},
			{"by the pool itself", func(p *caching.Pool, outside func()) mem.Block {
				outside()
				return b.from(p, b.s[0], 2*mib)
			}},
		} {
			p := b.NewPool(caching.PoolOptions{})
			var other mem.Block
			block := how.alloc(p, func() {
				var wg sync.WaitGroup
				wg.Go(func() {
					var err error
					if other, err = b.Alloc(b.s[1], 2*mib); err != nil {
						t.Error(err)
					}
				})
				wg.Wait()
			})
			segments := b.Snapshot()
			testkit.Equal(t, how.name+": segments", len(segments), 2)
			for _, s := range segments {
				want, who := p.ID(), block
				if s.Stream == b.s[1].ID() {
					want, who = mem.PoolID{}, other
				}
				testkit.Equal(t, how.name+": the pool", s.Pool, want)
				testkit.Equal(t, how.name+": active bytes", s.ActiveSize, 2*mib)
				if who.Ptr < s.Ptr || who.Ptr >= s.Ptr+driver.Pointer(s.TotalSize) {
					t.Errorf("%s: the block at %#x is not in its segment at %#x", how.name, who.Ptr, s.Ptr)
				}
			}
			p.Free(block)
			b.Free(other)
			b.ok(p.Close())
			b.ok(b.EmptyCache())
		}
		b.finish(nil, nil)
	})
}

func TestBehaviour49_PoolsWithAnUpstreamDoNotExpand(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.set("expandable_segments:True")
		p := b.NewPool(caching.PoolOptions{Upstream: newCounted(b.dev)})
		inside, outside := b.from(p, b.s[0], mib), b.alloc(b.s[0], mib)
		n := 0
		segments := b.Snapshot()
		for _, s := range segments {
			if s.Expandable {
				n++
				testkit.Equal(t, "the pool of the segment that expands", s.Pool, mem.PoolID{})
			}
		}
		testkit.Equal(t, "segments", len(segments), 2)
		testkit.Equal(t, "of them expandable", n, 1)
		more := b.from(p, b.s[0], mib) // from the rest of the segment, without a lock but the stream's
		testkit.Equal(t, "segments of the pool", len(p.Snapshot()), 1)
		for _, block := range []mem.Block{inside, more} {
			p.Free(block)
		}
		b.Free(outside)
		b.ok(p.Close())
		b.finish(nil, nil)
	})
}

func TestBehaviour50_AllocatingToTheSharedPoolOfAGraph(t *testing.T) {
	for _, c := range []struct {
		settings string
		segments int // of the pool: one small, and three large or one that has grown
	}{{"", 4}, {"expandable_segments:True", 2}} {
		onGraphDevices(t, func(b *graphBench) {
			b.set(c.settings)
			p := b.NewPool(caching.PoolOptions{})
			g := b.capture(p.ID(), b.s[1], func() {
				block := b.alloc(b.s[1], 16)
				b.ok(b.s[1].Fill(block.Ptr, 1, block.Size))
				b.Free(block)
			})
			testkit.Equal(t, "segments after the capture", len(p.Snapshot()), 1)
			testkit.Equal(t, "users after the capture", p.UseCount(), 2)
			three := func(a mem.Allocator, s driver.Stream) {
				for range 10 {
					var blocks [3]mem.Block
					for i := range blocks {
						block, err := a.Alloc(s, 20*mib)
						if err != nil {
							t.Error(err)
						}
						blocks[i] = block
					}
					for _, block := range blocks {
						a.Free(block)
					}
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				p.Use(func(s driver.Stream) bool { return s == b.s[2] }, func() { three(b, b.s[2]) })
				three(b, b.s[2]) // not in the pool
			})
			wg.Wait()
			wg.Go(func() { three(b, b.s[3]) })
			wg.Wait()
			testkit.Equal(t, "segments", len(p.Snapshot()), c.segments)
			b.ok(p.EmptyCache()) // nothing: the graph uses the pool's memory
			testkit.Equal(t, "segments while there is the graph", len(p.Snapshot()), c.segments)
			b.ok(p.Close())
			testkit.Equal(t, "segments of a closed pool while there is the graph", len(p.Snapshot()), c.segments)
			b.ok(g.Close())
			b.ReleasePool(p.ID())
			b.ok(b.EmptyCache())
			testkit.Equal(t, "segments without the graph", len(p.Snapshot()), 0)
			b.finish(nil, nil)
		})
	}
}

func TestBehaviour51_TheLiveBlocksOfAPool(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		p := b.NewPool(caching.PoolOptions{})
		var live []driver.Pointer
		var blocks []mem.Block
		outside := b.alloc(b.s[0], 512)
		for i, size := range []int64{512, 5 * mib, 512, 30 * mib} {
			block := b.from(p, b.s[i%2], size)
			blocks = append(blocks, block)
			live = append(live, block.Ptr)
		}
		check := func(want bool, live ...driver.Pointer) {
			t.Helper()
			if err := b.CheckPoolLive(p.ID(), live); (err == nil) != want {
				t.Errorf("that %d blocks are live: %v, want it to be %v", len(live), err, want)
			}
		}
		check(true, live...)
		slices.Reverse(live)
		check(true, live...)
		check(true, append(live, live[0])...)
		check(false)
		check(false, live[1:]...)
		check(false, append(slices.Clone(live), outside.Ptr)...)
		check(false, append(slices.Clone(live[1:]), live[0]+512)...)
		release := b.hold(b.s[2])
		p.Free(blocks[3], b.s[2]) // waits, but is not live
		check(true, live[1:]...)
		check(false, live...)
		release()
		for _, block := range blocks[:3] {
			p.Free(block)
		}
		check(true)
		if b.CheckPoolLive(mem.PoolID{0, 1 << 60}, nil) == nil {
			t.Error("there is a pool that was never made")
		}
		b.Free(outside)
		b.ok(p.Close())
		b.finish(nil, nil)
	})
}
