package paged_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Repeating work soon needs few driver calls or none, in no more memory than its peak: here none for most of the seeds,
// and at most one for three requests.
func TestRepeatedWorkComesToFewCalls(t *testing.T) {
	none, all := 0, 0
	for seed := range uint64(12) {
		for _, streams := range []int{1, 3} {
			step := repeatable(seed, streams)
			r := simple(t, 4096, paged.Config{})
			own := r.streams(streams)
			var last int64
			for range 40 {
				last = r.calls(func() { step(r, own) }, sim.CallCreate, sim.CallDrop, sim.CallMap, sim.CallUnmap,
					sim.CallReserve, sim.CallSync, sim.CallAvailable, sim.CallReached, sim.CallNewStream)
			}
			if all++; last == 0 {
				none++
			} else if last > 40 {
				t.Errorf("seed %d, %d streams: in round 40 there were %d driver calls", seed, streams, last)
			}
			if n := r.calls(func() { step(r, own) }); last == 0 && n != 0 && streams == 1 {
				t.Errorf("seed %d: on one stream there were %d calls, marks and waits included", seed, n)
			}
		}
	}
	if none < all*2/3 {
		t.Errorf("%d of %d come to no calls", none, all)
	}
}

// streams returns n streams, including the default one.
func (r *rig) streams(n int) []driver.Stream {
	all := []driver.Stream{r.s}
	for len(all) < n {
		all = append(all, r.stream())
	}
	return all
}

// repeatable returns work that frees all that it allocates: blocks of many sizes, freed in random order.
func repeatable(seed uint64, streams int) func(r *rig, own []driver.Stream) {
	rng := rand.New(rand.NewPCG(seed, 5))
	type act struct {
		stream int
		size   int64 // 0: free
		which  int
	}
	var acts []act
	live := 0
	for range 120 {
		if live > 0 && rng.IntN(5) < 2 {
			acts = append(acts, act{which: rng.IntN(live)})
			live--
		} else {
			acts = append(acts, act{stream: rng.IntN(streams), size: 1 + rng.Int64N(20*granule)>>rng.IntN(10)})
			live++
		}
	}
	return func(r *rig, own []driver.Stream) {
		var blocks []mem.Block
		for _, a := range acts {
			if a.size > 0 {
				blocks = append(blocks, r.alloc(own[a.stream], a.size))
				continue
			}
			r.free(blocks[a.which])
			blocks = append(blocks[:a.which], blocks[a.which+1:]...)
		}
		r.free(blocks...)
	}
}

// A training step: weights stay, activations accumulate and are freed in reverse order, with scratch between. With just
// the memory of its peak, later rounds need a fifth of the driver calls of the first, often none. With a tenth more
// memory they always need none.
func TestTrainingStepsComeToFewCalls(t *testing.T) {
	none := 0
	for i := range uint64(16) {
		seed, spare := i/2, i%2 == 1
		rng := rand.New(rand.NewPCG(seed, 10))
		var sizes [24][3]int64
		for i := range sizes {
			for k := range sizes[i] {
				sizes[i][k] = slabbed + rng.Int64N(12*granule)>>rng.IntN(4)
			}
		}
		cfg := paged.Config{}
		if spare {
			cfg.Spare = 24 * granule
		}
		r := simple(t, 4096, cfg)
		var weights []mem.Block
		for i := range sizes {
			weights = append(weights, r.alloc(r.s, sizes[i][2]))
		}
		step := func() {
			var kept []mem.Block
			for _, size := range sizes {
				scratch := r.alloc(r.s, size[1])
				kept = append(kept, r.alloc(r.s, size[0]))
				r.free(scratch)
			}
			var grads []mem.Block
			for i := len(sizes) - 1; i >= 0; i-- {
				scratch := r.alloc(r.s, sizes[i][1])
				grads = append(grads, r.alloc(r.s, sizes[i][2]))
				r.free(kept[i], scratch)
			}
			r.free(grads...)
		}
		var rounds []int64
		for range 12 {
			rounds = append(rounds, r.calls(step))
		}
		last := rounds[len(rounds)-1]
		if last == 0 {
			none++
		}
		if most := rounds[0] / 5; spare && last != 0 || last > most {
			t.Errorf("seed %d, spare %v: driver calls by round: %d", seed, spare, rounds)
		}
		r.free(weights...)
	}
	if none < 12 {
		t.Errorf("%d of 16 come to no calls", none)
	}
}

// A page that moves is mapped at a second address. Its old mapping remains for a block that is allocated there again.
func TestAnAliasCostsOneMap(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	x, y := r.granules(3), r.granules(1)
	r.free(x)
	var z mem.Block
	kinds := []sim.Call{sim.CallCreate, sim.CallDrop, sim.CallUnmap, sim.CallSync}
	if maps := r.calls(func() {
		if n := r.calls(func() { z = r.granules(4) }, kinds...); n != 1 { // three idle pages, and a new one
			t.Errorf("%d calls to create, drop, unmap and wait, want one new page", n)
		}
	}, sim.CallMap); maps != 1 {
		t.Errorf("%d calls of Map, want 1 for all pages together", maps)
	}
	if f := r.a.PageStats(); f.Pages != 5 || f.Mappings != 8 {
		t.Errorf("%d pages at %d addresses, want 5 at 8", f.Pages, f.Mappings)
	}
	r.free(z)
	for range 3 {
		if n := r.calls(func() {
			x = r.granules(3)
			r.free(x)
			z = r.granules(4)
			r.free(z)
		}); n != 0 {
			t.Errorf("back at the old place, and there and back: %d driver calls", n)
		}
	}
	r.free(y)
}

// Allocating and freeing one block repeatedly makes no driver call and no Go heap allocation, whatever else is live.
// (The checks under the tag invariants allocate.)
func TestWarm(t *testing.T) {
	for _, live := range []int{0, 2000} {
		r := simple(t, 4096, paged.Config{})
		var others []mem.Block
		for i := range live {
			others = append(others, r.alloc(r.s, int64(512+i%64*512)))
		}
		s := r.stream()
		for _, size := range []int64{1, 512, 4096, granule, 9*granule + 1} {
			pair := func() {
				b, err := r.a.Alloc(s, size)
				if err != nil {
					t.Fatal(err)
				}
				r.a.Free(b)
			}
			pair()
			if n := r.calls(func() {
				if n := testing.AllocsPerRun(100, pair); n != 0 && !invariants.Enabled {
					t.Errorf("%d live, %d bytes: %v allocations", live, size, n)
				}
			}); n != 0 {
				t.Errorf("%d live, %d bytes: %d driver calls", live, size, n)
			}
			several := func() { // more than a processor cache holds
				var blocks [24]mem.Block
				for i := range blocks {
					blocks[i], _ = r.a.Alloc(s, size)
				}
				for _, b := range blocks {
					r.a.Free(b)
				}
			}
			several()
			if n := r.calls(func() {
				if n := testing.AllocsPerRun(20, several); n != 0 && !invariants.Enabled {
					t.Errorf("%d live, 24 times %d bytes: %v allocations", live, size, n)
				}
			}); n != 0 {
				t.Errorf("%d live, 24 times %d bytes: %d driver calls", live, size, n)
			}
		}
		r.free(others...)
	}
}

// Free makes no driver call, unless memory must be freed at once.
func TestFreeMakesNoCall(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 16 * granule})
	s := r.stream()
	x, y, z := r.granules(3), r.alloc(s, granule/2), r.granules(1)
	if n := r.calls(func() {
		r.a.Free(x)
		r.a.Free(y, s)
		r.a.Free(z)
	}); n != 0 {
		t.Errorf("%d driver calls", n)
	}
}
