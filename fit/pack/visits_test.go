package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// scattered returns n buffers of which a third is alive at a time, with gaps everywhere: each has to look at n of them.
func scattered(n int) []Buffer {
	rng := rand.New(rand.NewPCG(8, 0))
	buffers := make([]Buffer, n)
	for i := range buffers {
		lower := rng.Int64N(int64(n))
		buffers[i] = Buffer{Lower: lower, Upper: lower + 1 + rng.Int64N(int64(n)), Size: 1 + rng.Int64N(1e6)}
	}
	return buffers
}

// The greedy orders stop when their visits are spent, in whichever order that is, and there is a packing.
func TestDefect26_GreedyOrdersEnd(t *testing.T) {
	buffers := scattered(5000)
	if p := newPacker(t.Context(), buffers, Options{}); p.visits != greedyVisits {
		t.Errorf("%d visits, want %d", p.visits, int64(greedyVisits))
	}
	last, heights := int64(0), []int64{}
	for _, most := range []int64{0, 1 << 20, 1 << 24, 1 << 40} {
		p := newPacker(t.Context(), buffers, Options{})
		p.visits = most
		p.online()
		p.greedy()
		one := int64(4*len(buffers) + setVisits*len(p.occupied.sets)) // what the last buffer may take, and more
		if p.occupied.visits > most+one {
			t.Errorf("%d visits, want at most %d", p.occupied.visits, most)
		}
		if most < 1<<40 && p.occupied.visits < most {
			t.Errorf("stopped after %d visits of %d", p.occupied.visits, most)
		}
		if height, err := Validate(buffers, p.best.Offsets); err != nil || height != p.best.Height {
			t.Errorf("height %d, %d was said: %v", height, p.best.Height, err)
		}
		if last > 0 && p.best.Height > last {
			t.Errorf("height %d with %d visits, %d with fewer", p.best.Height, most, last)
		}
		last = p.best.Height
		heights = append(heights, last)
	}
	if slices.Max(heights) == last {
		t.Errorf("more visits gained nothing: heights %d", heights)
	}
}

// The tree takes O(log n) sets for a buffer, each once.
func TestDefect26_BuffersReadFewSets(t *testing.T) {
	buffers := scattered(5000)
	s := newOccupancy(buffers)
	for i := range buffers {
		for _, sets := range [][]int32{s.reads[i], s.writes[i]} {
			if len(sets) > 6*13 || len(sets) == 0 || !slices.IsSorted(sets) || len(slices.Compact(slices.Clone(sets))) != len(sets) {
				t.Fatalf("buffer %d: %d sets: %d", i, len(sets), sets)
			}
		}
	}
}
