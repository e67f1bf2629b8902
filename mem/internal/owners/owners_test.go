package owners

import (
	"math/rand/v2"
	"testing"
)

// TestMemory compares random claims with an array that has the owner of each unit of 64 KiB, over several chunks of
// which the last is short.
func TestMemory(t *testing.T) {
	const seed, unit, units = 1, 64 << 10, 100
	rng := rand.New(rand.NewPCG(seed, 0))
	m := New(units*unit-1, Fresh) // the last unit is a byte shorter
	var model [units]ID
	for i := range model {
		model[i] = Fresh
	}
	end := func(i int) int64 { return min(int64(i)*unit, units*unit-1) }
	for step := range 20_000 {
		if step%5000 == 4999 {
			m.Reset(Unknown)
			clear(model[:])
		}
		from := rng.IntN(units)
		to := from + 1 + rng.IntN(units-from)
		if rng.IntN(2) == 0 {
			to = min(to, from+3)
		}
		owner := First + ID(rng.IntN(3))
		at := end(from)
		m.Claim(end(from), end(to), owner, func(lo, hi int64, was ID) {
			if lo < at || hi <= lo || hi > end(to) || was == owner {
				t.Fatalf("step %d: foreign [%d, %d) of %d, after %d", step, lo, hi, was, at)
			}
			for ; from < to && end(from) < lo; from++ { // units that are passed over are the owner's
				if model[from] != owner {
					t.Fatalf("step %d: unit %d of %d is not foreign to %d", step, from, model[from], owner)
				}
			}
			for ; from < to && end(from) < hi; from++ {
				if model[from] != was {
					t.Fatalf("step %d: unit %d is of %d, want %d", step, from, was, model[from])
				}
				model[from] = owner
			}
			at = hi
		})
		for ; from < to; from++ {
			if model[from] != owner {
				t.Fatalf("step %d: unit %d of %d is not foreign to %d", step, from, model[from], owner)
			}
		}
		for i, c := range m.chunks {
			for j := range c.parts {
				if len(c.parts) < 2 || j > 0 && (c.parts[j].owner == c.parts[j-1].owner || c.parts[j].end <= c.parts[j-1].end) {
					t.Fatalf("step %d: chunk %d has parts %v", step, i, c.parts)
				}
			}
		}
	}
}

// A piece of memory of any size has a bounded number of chunks.
func TestMemoryOfAnExabyte(t *testing.T) {
	m := New(1<<60, Unknown)
	var n int64
	m.Claim(1<<59, 1<<59+1, First, func(from, to int64, _ ID) { n += to - from })
	m.Claim(1<<59-1, 1<<59+2, First, func(from, to int64, _ ID) { n += to - from })
	if n != 3 || len(m.chunks) > 1<<maxChunks {
		t.Errorf("%d bytes were foreign, of %d chunks", n, len(m.chunks))
	}
}

func BenchmarkClaimOwn(b *testing.B) {
	for _, c := range []struct {
		name string
		size int64
	}{{"1KiB", 1 << 10}, {"1GiB", 1 << 30}} {
		b.Run(c.name, func(b *testing.B) {
			m := New(2<<30, First)
			for b.Loop() {
				m.Claim(0, c.size, First, func(_, _ int64, _ ID) { b.Fatal("foreign") })
			}
		})
	}
}
