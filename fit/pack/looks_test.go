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

// The greedy orders stop when their looks are spent, in whichever order that is, and there is a packing.
func TestDefect26_GreedyOrdersEnd(t *testing.T) {
	buffers := scattered(5000)
	if p := newPacker(t.Context(), buffers, Options{}); p.looks != greedyLooks {
		t.Errorf("%d looks, want %d", p.looks, int64(greedyLooks))
	}
	last, heights := int64(0), []int64{}
	for _, most := range []int64{0, 1 << 20, 1 << 24, 1 << 40} {
		p := newPacker(t.Context(), buffers, Options{})
		p.looks = most
		p.online()
		p.greedy()
		one := int64(4*len(buffers) + setLooks*len(p.shelf.sets)) // what the last buffer may take, and more
		if p.shelf.looks > most+one {
			t.Errorf("%d looks, want at most %d", p.shelf.looks, most)
		}
		if most < 1<<40 && p.shelf.looks < most {
			t.Errorf("stopped after %d looks of %d", p.shelf.looks, most)
		}
		if height, err := Validate(buffers, p.best.Offsets); err != nil || height != p.best.Height {
			t.Errorf("height %d, %d was said: %v", height, p.best.Height, err)
		}
		if last > 0 && p.best.Height > last {
			t.Errorf("height %d with %d looks, %d with fewer", p.best.Height, most, last)
		}
		last = p.best.Height
		heights = append(heights, last)
	}
	if slices.Max(heights) == last {
		t.Errorf("more looks gained nothing: heights %d", heights)
	}
}

// The tree takes O(log n) sets for a buffer, each once.
func TestDefect26_BuffersReadFewSets(t *testing.T) {
	buffers := scattered(5000)
	s := newShelf(buffers)
	for i := range buffers {
		for _, sets := range [][]int32{s.reads[i], s.writes[i]} {
			if len(sets) > 6*13 || len(sets) == 0 || !slices.IsSorted(sets) || len(slices.Compact(slices.Clone(sets))) != len(sets) {
				t.Fatalf("buffer %d: %d sets: %d", i, len(sets), sets)
			}
		}
	}
}
