package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// random returns up to n buffers in few moments, so that many of them interlock.
func random(rng *rand.Rand, n int) []Buffer {
	buffers := make([]Buffer, 1+rng.IntN(n))
	moments, sizes := 1+rng.Int64N(8), 1+rng.Int64N(6)
	for i := range buffers {
		lower := rng.Int64N(moments)
		buffers[i] = Buffer{Lower: lower, Upper: lower + 1 + rng.Int64N(moments-lower), Size: 1 + rng.Int64N(sizes)}
	}
	return buffers
}

// aboveTheBound has no packing below 10, and a bound of 9.
var aboveTheBound = []Buffer{
	{"", 4, 8, 3}, {"", 7, 11, 3}, {"", 1, 3, 3}, {"", 3, 6, 1}, {"", 1, 4, 2}, {"", 5, 11, 3}, {"", 2, 7, 2}, {"", 2, 5, 2}, {"", 3, 5, 1},
}

// The search upwards has the same answer as the search by sections, which other tests compare with all packings.
func TestSearchUpwardsAgreesWithExact(t *testing.T) {
	const seed = 4
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	above := 0
	for k := range 3000 {
		buffers := random(rng, 11)
		if k%10 == 0 {
			buffers = slices.Clone(aboveTheBound)
			buffers[rng.IntN(len(buffers))].Size += rng.Int64N(2)
		}
		bound := Bound(buffers)
		for capacity := bound - 1; ; capacity++ {
			_, want, err := Exact(t.Context(), buffers, capacity)
			if err != nil {
				t.Fatal(err)
			}
			s, err := newExactSearch(buffers, capacity)
			if err != nil {
				t.Fatal(err)
			}
			s.upwards()
			answer := s.search(t.Context(), 1<<40)
			if (answer == exactFound) != want || answer == exactSpent {
				t.Fatalf("capacity %d of %v: %v, want %v", capacity, buffers, answer, want)
			}
			if !want {
				continue
			}
			offsets := make([]int64, len(buffers))
			for i, it := range s.items {
				offsets[it.index] = s.offset[i]
			}
			if height, err := Validate(buffers, offsets); err != nil || height > capacity {
				t.Fatalf("capacity %d of %v: height %d, %v", capacity, buffers, height, err)
			}
			if capacity > bound {
				above++
			}
			break
		}
	}
	if above == 0 {
		t.Error("the bound of each instance is its height: nothing was proved")
	}
}

// Every rule and order of the skyline makes a packing, whatever the ceiling. If there is room for gaps, it stays below
// the ceiling.
func TestSkylineMakesPackings(t *testing.T) {
	const seed = 5
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		buffers := random(rng, 40)
		s, bound := newSkyline(buffers, newItems(buffers)), Bound(buffers)
		var sum int64
		for _, b := range buffers {
			sum += b.Size
		}
		for _, ceiling := range []int64{0, bound, sum} {
			for _, before := range rebuildOrders {
				for c := range choices {
					if !s.build(t.Context(), ceiling, before, c) {
						t.Fatal("the context did not end")
					}
					if height, err := Validate(buffers, s.offsets); err != nil || ceiling == sum && height > sum {
						t.Fatalf("ceiling %d, rule %d for %v: height %d, %v", ceiling, c, buffers, height, err)
					}
				}
			}
		}
	}
}

// At the bound a skyline wastes nothing where the load is at its peak, so it comes nearer to the bound than greedy
// orders do.
func TestSkylineKeepsTheSlack(t *testing.T) {
	buffers := scattered(3000)
	p := newPacker(t.Context(), buffers, Options{})
	p.online()
	p.greedy()
	s := newSkyline(buffers, p.items)
	s.build(t.Context(), p.best.Bound+p.best.Bound/200, rebuildOrders[0], byLeastSlack)
	height, err := Validate(buffers, s.offsets)
	if err != nil || height >= p.best.Height {
		t.Errorf("height %d, greedy %d, bound %d: %v", height, p.best.Height, p.best.Bound, err)
	}
}

// A repair that ends with no buffer out has a packing below its ceiling.
func TestRepairLowersAPacking(t *testing.T) {
	const seed = 6
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	lowered := 0
	for range 300 {
		buffers := random(rng, 60)
		p := newPacker(t.Context(), buffers, Options{})
		p.online()
		r := newRepairer(buffers, rng)
		for ceiling := p.best.Height - 1; ceiling >= p.best.Bound; ceiling-- {
			if share := r.begin(p.best.Offsets, ceiling); share <= 0 || share > 1 || len(r.out) == 0 {
				t.Fatalf("ceiling %d: %d out, a share of %v", ceiling, len(r.out), share)
			}
			repaired := r.repair(t.Context(), 300)
			if repaired != (len(r.out) == 0) || r.moves > 300 {
				t.Fatalf("repaired %v with %d out after %d moves", repaired, len(r.out), r.moves)
			}
			if !repaired {
				break
			}
			if height, err := Validate(buffers, r.offsets); err != nil || height > ceiling {
				t.Fatalf("ceiling %d of %v: height %d, %v", ceiling, buffers, height, err)
			}
			lowered++
		}
	}
	if lowered < 100 {
		t.Errorf("%d repairs succeeded", lowered)
	}
}
