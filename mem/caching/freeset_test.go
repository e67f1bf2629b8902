package caching

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// A freeSet must contain exactly the same entries as a sorted slice, for any mix of sizes: all different (one entry per
// bin), all equal (one tree), and clustered.
func TestFreeSetAgainstSortedSlice(t *testing.T) {
	sizes := map[string]func(r *rand.Rand) int64{
		"equal":     func(*rand.Rand) int64 { return 512 },
		"few":       func(r *rand.Rand) int64 { return 512 * (1 + r.Int64N(4)) },
		"clustered": func(r *rand.Rand) int64 { return 1<<20 + 512*r.Int64N(64) },
		"log":       func(r *rand.Rand) int64 { return (512 << r.IntN(30)) + 512*r.Int64N(1000) },
		"huge":      func(r *rand.Rand) int64 { return 1<<40 + 512*r.Int64N(1<<20) },
	}
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			const seed = 11
			r := rand.New(rand.NewPCG(seed, 0))
			var s freeSet
			var model []entry
			order := func(a, b entry) int { return cmp.Or(cmp.Compare(a.size(), b.size()), cmp.Compare(a.ptr, b.ptr)) }
			for step := range 30_000 {
				grow := step < 10_000 || step%3 == 0
				if grow || len(model) == 0 {
					e := makeEntry(size(r), 512*r.Uint64N(1<<40), blockRef(step+1))
					i, found := slices.BinarySearchFunc(model, e, order)
					if found {
						continue
					}
					model = slices.Insert(model, i, e)
					s.insert(e.size(), e.ptr, e.ref())
				} else {
					i := r.IntN(len(model))
					if !s.remove(model[i].size(), model[i].ptr) {
						t.Fatalf("seed %d, step %d: remove of %v found nothing", seed, step, model[i])
					}
					model = slices.Delete(model, i, i+1)
				}
				if s.remove(512, 1) {
					t.Fatal("remove found an entry that was never inserted")
				}
				want := size(r)
				i, _ := slices.BinarySearchFunc(model, makeEntry(want, 0, 0), order)
				e, c := s.best(want)
				if (e.word != 0) != (i < len(model)) || e.word != 0 && e != model[i] {
					t.Fatalf("seed %d, step %d: best(%d) is wrong", seed, step, want)
				}
				if e.word != 0 && step%5 == 0 {
					s.takeBest(c)
					model = slices.Delete(model, i, i+1)
				}
				if step%1000 == 0 {
					checkFreeSet(t, &s, model)
				}
			}
			for _, e := range model {
				s.remove(e.size(), e.ptr)
			}
			checkFreeSet(t, &s, nil)
		})
	}
}

func checkFreeSet(t *testing.T, s *freeSet, want []entry) {
	t.Helper()
	var up, down []entry
	for c := s.first(); c.ok(); c = s.next(c) {
		up = append(up, *c.entry())
	}
	for c := s.last(); c.ok(); c = s.prev(c) {
		down = append(down, *c.entry())
	}
	slices.Reverse(down)
	if !slices.Equal(up, want) || !slices.Equal(down, want) || s.n != len(want) {
		t.Fatalf("the set has %d entries upwards, %d downwards and counts %d; want %d", len(up), len(down), s.n, len(want))
	}
	if len(want) == 0 && (!s.used.Empty() || s.used.Next(0) != numBins) {
		t.Fatal("an empty set has bins that are not")
	}
}

func TestBinsAreMonotone(t *testing.T) {
	last := 0
	for size := int64(512); size < 1<<61; size += max(512, size/200&^511) {
		b := binOf(size)
		if b < last || b >= numBins {
			t.Fatalf("size %d is in bin %d, after bin %d", size, b, last)
		}
		last = b
	}
}

func BenchmarkFreeSet(b *testing.B) {
	for _, n := range []int{1, 16, 1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var s freeSet
			entries := make([]entry, n)
			for i := range entries {
				entries[i] = makeEntry((512<<r.IntN(17))+512*r.Int64N(1<<10), uint64(i)*512, 1)
				s.insert(entries[i].size(), entries[i].ptr, 1)
			}
			for i := 0; b.Loop(); i++ {
				e := entries[r.IntN(n)]
				s.remove(e.size(), e.ptr)
				s.insert(e.size(), e.ptr, 1)
			}
		})
	}
}

// The host memory of a set depends on how many entries it had at once, not on how many sizes it has seen; and an empty
// set keeps none when it is asked to drop it.
func TestFreeSetOfManySizes(t *testing.T) {
	var s freeSet
	for i := range int64(1000) {
		size := 512 << (i % 20) * (1 + i%7)
		s.insert(size, 1<<40, 1)
		s.insertHot()
		if e, c := s.best(size); i%2 == 0 {
			s.takeBest(c)
		} else if !s.remove(e.size(), e.ptr) {
			t.Fatalf("no entry of %d bytes", size)
		}
	}
	if n := nodes(&s); n != 1 {
		t.Errorf("a set that had one entry at a time has %d nodes", n)
	}
	if s.dropSpare(); nodes(&s) != 0 || s.bins != nil {
		t.Errorf("an empty set keeps %d nodes, and bins: %v", nodes(&s), s.bins != nil)
	}
}

// nodes returns how many leaves a set has that has no tree deeper than a leaf.
func nodes(s *freeSet) (n int) {
	if s.bins != nil {
		for _, nd := range s.bins {
			if nd != nil {
				n++
			}
		}
	}
	for nd := s.spare[0]; nd != nil; nd = nd.next {
		n++
	}
	return n
}

// After EmptyCache the host memory of free lists that were long is garbage.
func TestEmptyCacheKeepsNoNodes(t *testing.T) {
	dev := sim.New(sim.Options{Total: 1 << 30})
	a, err := New(dev, Default())
	testkit.Must(t, err)
	var blocks []mem.Block
	for range 1000 {
		b, err := a.Alloc(dev.DefaultStream(), 4096)
		testkit.Must(t, err)
		blocks = append(blocks, b)
	}
	for i := range blocks { // those between live ones first: they are not merged
		a.Free(blocks[(2*i+i/(len(blocks)/2))%len(blocks)])
	}
	pool := a.live[0].pools[classSmall]
	if pool.free.spare == [2]*node{} {
		t.Fatal("the list was never long")
	}
	testkit.Must(t, a.EmptyCache())
	if pool.free.spare != [2]*node{} {
		t.Error("recycled nodes are kept")
	}
	testkit.Must(t, errors.Join(a.Close(), dev.Close()))
}
