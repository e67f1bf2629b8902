package caching

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// onStreams opens an allocator and so many streams.
func onStreams(t *testing.T, n int) (*Allocator, []driver.Stream) {
	t.Helper()
	dev := sim.New(sim.Options{Unchecked: true})
	a, err := New(dev, Default())
	if err != nil {
		t.Fatal(err)
	}
	streams := make([]driver.Stream, n)
	for i := range streams {
		if streams[i], err = dev.NewStream(driver.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return a, streams
}

// A tally is a quantity and its peak, as a test counts them.
type tally struct{ current, peak int64 }

func (c *tally) add(n int64) {
	c.current += n
	c.peak = max(c.peak, c.current)
}

// The cost of peaks does not grow with the number of streams: each call involves few other streams.
func TestDefect26_PeaksOfManyStreams(t *testing.T) {
	const streams, calls = 4096, 40_000
	a, on := onStreams(t, streams)
	rng := rand.New(rand.NewPCG(26, 1))
	var live []mem.Block
	var blocks, bytes tally
	count := func(b mem.Block, n int64) {
		blocks.add(n)
		bytes.add(n * b.Size)
	}
	for i := range calls {
		if n := len(live); n > 0 && (i/10_000%2 == 1 || rng.IntN(3) == 0) { // it grows, shrinks, grows and shrinks
			at := rng.IntN(n)
			count(live[at], -1)
			a.Free(live[at])
			live[at] = live[n-1]
			live = live[:n-1]
			continue
		}
		b, err := a.Alloc(on[rng.IntN(streams)], 1+rng.Int64N(4096))
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, b)
		count(b, 1)
	}
	if n := a.totals.visits; n > 4*calls {
		t.Errorf("%d calls visited %d shards to find the peaks", calls, n)
	}
	s := a.Stats()
	if s.Allocation.All.Peak != blocks.peak || s.AllocatedBytes.All.Peak != bytes.peak || s.Active.All.Peak != blocks.peak {
		t.Errorf("peaks of %d blocks, %d bytes, %d active: want %d, %d and as many", s.Allocation.All.Peak, s.AllocatedBytes.All.Peak,
			s.Active.All.Peak, blocks.peak, bytes.peak)
	}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}

// Peaks are exact for every order of changes, queries and resets.
func TestPeaksAreExact(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a, on := onStreams(t, 1+rng.IntN(12))
		var live []mem.Block
		var blocks, bytes tally
		for i := range 600 {
			stream := on[rng.IntN(len(on))]
			if rng.IntN(50) > 0 {
				stream = on[i/60%len(on)] // mostly one after the other
			}
			switch k := rng.IntN(100); {
			case k < 52:
				b, err := a.Alloc(stream, 1+rng.Int64N(1<<rng.IntN(22)))
				if err != nil {
					t.Fatal(err)
				}
				live = append(live, b)
				blocks.add(1)
				bytes.add(b.Size)
			case k < 98 && len(live) > 0:
				at := rng.IntN(len(live))
				blocks.add(-1)
				bytes.add(-live[at].Size)
				a.Free(live[at])
				live[at] = live[len(live)-1]
				live = live[:len(live)-1]
			case k == 98:
				a.ResetPeakStats()
				blocks.peak, bytes.peak = blocks.current, bytes.current
			case rng.IntN(4) == 0:
				if s := a.Stats(); s.Allocation.All.Peak != blocks.peak || s.AllocatedBytes.All.Peak != bytes.peak {
					t.Fatalf("seed %d, call %d: peaks of %d blocks and %d bytes, want %d and %d", seed, i, s.Allocation.All.Peak,
						s.AllocatedBytes.All.Peak, blocks.peak, bytes.peak)
				}
			}
		}
		if s := a.Stats(); s.Allocation.All.Peak != blocks.peak || s.AllocatedBytes.All.Peak != bytes.peak {
			t.Errorf("seed %d: peaks of %d blocks and %d bytes, want %d and %d", seed, s.Allocation.All.Peak, s.AllocatedBytes.All.Peak,
				blocks.peak, bytes.peak)
		}
		if err := a.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// Peaks of active blocks are exact on streams that have no freed blocks in use, while another has many, and more blocks
// or bytes were allocated before.
func TestPeaksOfActiveBlocksAreExact(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		before, pending, later int // blocks
		beforeSize, size       int64
	}{
		"bytes":  {100, 1, 1, 512, 10 * mib},
		"blocks": {1, 40, 10, 64 * mib, 512},
	} {
		t.Run(name, func(t *testing.T) {
			a, on := onStreams(t, 4)
			alloc := func(s driver.Stream, size int64, n int) (blocks []mem.Block) {
				for range n {
					b, err := a.Alloc(s, size)
					testkit.Must(t, err)
					blocks = append(blocks, b)
				}
				return blocks
			}
			free := func(blocks []mem.Block, used ...driver.Stream) {
				for _, b := range blocks {
					a.Free(b, used...)
				}
			}
			busy, err := a.dev.Alloc(512)
			testkit.Must(t, err)
			a.dev.(*sim.Device).Hold(on[0].ID())
			testkit.Must(t, on[0].Fill(busy, 0, 512))
			size := min(c.size, 2*mib)
			// So that later requests make no peaks of segments and of splits.
			free(slices.Concat(alloc(on[1], c.size, c.pending), alloc(on[2], size, c.later), alloc(on[3], size, c.later)))
			free(alloc(on[1], c.beforeSize, c.before))
			free(alloc(on[1], c.size, c.pending), on[0])
			before := a.Stats()
			one, other := alloc(on[2], size, c.later), alloc(on[3], size, c.later)
			rounded := one[0].Size
			free(one)
			free(other)
			s := a.Stats()
			testkit.Equal(t, "active blocks", s.Active.All.Current, before.Active.All.Current)
			testkit.Equal(t, "their peak", s.Active.All.Peak,
				max(before.Active.All.Peak, before.Active.All.Current+2*int64(c.later)))
			testkit.Equal(t, "the peak of their bytes", s.ActiveBytes.All.Peak,
				max(before.ActiveBytes.All.Peak, before.ActiveBytes.All.Current+2*int64(c.later)*rounded))
			testkit.Must(t, a.Check())
		})
	}
}

// A stream, and a pool, that has a few blocks takes little memory of Go's.
// Checking every invariant allocates too.
func TestDefect26_StreamsAndPoolsTakeLittle(t *testing.T) {
	const n = 1000
	a, on := onStreams(t, n)
	before := testkit.Allocated()
	for _, s := range on {
		if _, err := a.Alloc(s, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if each := (testkit.Allocated() - before) / n; each > 96<<10 && !invariants.Enabled {
		t.Errorf("a stream with a block takes %d bytes", each)
	}
	before = testkit.Allocated()
	for i := range uint64(n) {
		id := mem.PoolID{0, 1 + i}
		a.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
		_, err := a.Alloc(on[0], 1000)
		a.EndAllocateToPool(id)
		if err != nil {
			t.Fatal(err)
		}
	}
	if each := (testkit.Allocated() - before) / n; each > 6<<10 && !invariants.Enabled {
		t.Errorf("a pool with a block takes %d bytes", each)
	}
}
