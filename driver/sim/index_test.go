package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// verify checks the invariants of an index.
func (x *index[V]) verify(t *testing.T) {
	t.Helper()
	n, last := 0, uint64(0)
	for b, block := range x.blocks {
		if len(*block) == 0 || len(*block) > blockMax || x.starts[b] != (*block)[0].start {
			t.Fatalf("block %d has %d entries, starts at %d, listed as %d", b, len(*block), (*block)[0].start, x.starts[b])
		}
		for i := range *block {
			e := &(*block)[i]
			if e.start < last || e.size == 0 || e.size > x.sizes[b] {
				t.Fatalf("entry [%d, +%d) after %d, in a block of sizes up to %d", e.start, e.size, last, x.sizes[b])
			}
			last = e.end()
			n++
		}
	}
	if n != x.n || len(x.blocks) != len(x.starts) || len(x.blocks) != len(x.sizes) {
		t.Fatalf("%d entries counted as %d", n, x.n)
	}
}

// TestIndexAgreesWithBytes keeps intervals as an index and as an array with an interval's start at each address.
func TestIndexAgreesWithBytes(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		const size = 6000
		var x index[int]
		var values [size]int // 0: none
		for step := 1; step <= 3000; step++ {
			start := rng.IntN(size - 8)
			n := 1 + rng.IntN(8)
			switch rng.IntN(8) {
			case 0:
				end := min(start+rng.IntN(800), size)
				for _, cut := range []int{start, end} {
					x.divide(uint64(cut), func(v int, _ uint64) (int, int) { return v, v })
				}
				x.removeFrom(uint64(start), uint64(end))
				clear(values[start:end])
			default:
				if slices.Max(values[start:start+n]) == 0 {
					x.insert(uint64(start), uint64(n), step)
					for i := range n {
						values[start+i] = step
					}
				}
			}
			for range 4 {
				at := rng.IntN(size)
				e := x.find(uint64(at))
				if e == nil && values[at] != 0 || e != nil && e.value != values[at] {
					t.Fatalf("seed %d, step %d: find(%d) is %+v, want value %d", seed, step, at, e, values[at])
				}
				p := x.from(uint64(at))
				for at < size && values[at] == 0 {
					at++
				}
				if x.valid(p) != (at < size) || x.valid(p) && x.at(p).value != values[at] {
					t.Fatalf("seed %d, step %d: from finds something other than value at %d", seed, step, at)
				}
			}
		}
		x.verify(t)
	}
}

// TestSpaceIsFirstFit compares with an array of taken addresses, searched from the start.
func TestSpaceIsFirstFit(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		const base, size = 64, 4096
		s := space{}
		s.give(base, size)
		var taken [base + size]bool
		type span struct{ start, size int }
		var spans []span
		for step := range 3000 {
			if rng.IntN(100) < 45 && len(spans) > 0 {
				i := rng.IntN(len(spans))
				sp := spans[i]
				spans = slices.Delete(spans, i, i+1)
				s.give(uint64(sp.start), uint64(sp.size))
				clear(taken[sp.start : sp.start+sp.size])
				continue
			}
			n := 1 + rng.IntN(40)
			want := -1
			for at := base; at+n <= base+size && want < 0; at++ {
				if !slices.Contains(taken[at:at+n], true) {
					want = at
				}
			}
			got, ok := s.take(uint64(n))
			if ok != (want >= 0) || ok && int(got) != want {
				t.Fatalf("seed %d, step %d: take(%d) is %d, %v, want %d", seed, step, n, got, ok, want)
			}
			if ok {
				spans = append(spans, span{want, n})
				for i := range n {
					taken[want+i] = true
				}
			}
		}
		s.holes.verify(t)
		for _, sp := range spans {
			s.give(uint64(sp.start), uint64(sp.size))
		}
		if s.holes.n != 1 || s.holes.at(s.holes.first()).size != size {
			t.Fatalf("seed %d: %d holes when all is given back", seed, s.holes.n)
		}
	}
}
