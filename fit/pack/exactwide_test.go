package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The tables for long lifetimes change nothing but the time of a node: the search takes the same branches as with loops
// over the sections.
func TestTablesTakeTheSameBranches(t *testing.T) {
	const seed = 7
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{1, 2, 10, 60, 200} {
		for range 20 {
			buffers := make([]Buffer, n)
			for i := range buffers {
				lower := rng.Int64N(int64(2 * n))
				buffers[i] = Buffer{Lower: lower, Upper: lower + 1 + rng.Int64N(int64(n)), Size: 1 + rng.Int64N(20)}
			}
			capacity := Bound(buffers) + rng.Int64N(2)
			var searches [2]*exactSearch
			var answers [2]exactAnswer
			for k := range searches {
				s, err := newExactSearch(buffers, capacity)
				if err != nil {
					t.Fatal(err)
				}
				s.floors, s.unevens = nil, nil
				if k == 1 {
					s.floors, s.unevens = newMinima(len(s.rest)), newMinima(len(s.rest))
				}
				searches[k], answers[k] = s, s.search(t.Context(), 20_000)
			}
			loops, tables := searches[0], searches[1]
			if answers[0] != answers[1] || loops.nodes != tables.nodes || !slices.Equal(loops.offset, tables.offset) ||
				!slices.Equal(loops.weight, tables.weight) {
				t.Fatalf("%d buffers: %v in %d nodes with loops, %v in %d with tables", n, answers[0], loops.nodes, answers[1], tables.nodes)
			}
		}
	}
}

// Long lifetimes have tables, and short ones have loops, which are faster there.
func TestTablesAreForLongLifetimes(t *testing.T) {
	for life, want := range map[int64]bool{2: false, 1500: true} {
		var buffers []Buffer
		for i := range int64(2000) {
			buffers = append(buffers, Buffer{Lower: i, Upper: i + life, Size: 1})
		}
		s, err := newExactSearch(buffers, Bound(buffers))
		if err != nil || (s.floors != nil) != want {
			t.Errorf("lifetimes of %d: tables %v, want %v: %v", life, s.floors != nil, want, err)
		}
	}
}
