package reuse_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Sets of random streams are what they are by a model, and two of the same streams are equal; also after sets that
// nothing has any more were forgotten, of which there never are many.
func TestSetsAgainstAModel(t *testing.T) {
	type numbers map[int]bool
	const streams = 200
	c := newScene(t, streams, nil)
	rng := rand.New(rand.NewPCG(1, 22))
	const held = 40
	var sets [held]reuse.Set
	var models [held]numbers
	for i := range models {
		models[i] = numbers{}
	}
	sweeps := 0
	for op := range 20_000 {
		i, j := rng.IntN(held), rng.IntN(held)
		switch rng.IntN(4) {
		case 0: // one stream, near or far
			n := rng.IntN(streams)
			sets[i], models[i] = c.note(n), numbers{n: true}
		case 1:
			n := rng.IntN(streams)
			sets[i], models[i] = c.Union(sets[i], c.note(n)), maps.Clone(models[i])
			models[i][n] = true
		default:
			sets[i], models[i] = c.Union(sets[i], sets[j]), maps.Clone(models[i])
			maps.Copy(models[i], models[j])
		}
		within, overlap := true, false
		for n := range models[i] {
			within = within && models[j][n]
			overlap = overlap || models[j][n]
		}
		if c.Subset(sets[i], sets[j]) != within || c.Overlap(sets[i], sets[j]) != overlap ||
			(sets[i] == sets[j]) != maps.Equal(models[i], models[j]) {
			t.Fatalf("operation %d: sets %#x and %#x of %v and %v", op, sets[i], sets[j], models[i], models[j])
		}
		if c.NeedsCollect() {
			c.Collect(slices.Values(sets[:]))
			sweeps++
			if c.NeedsCollect() {
				t.Fatal("a sweep leaves as many sets as there were")
			}
		}
		got := numbers{}
		for s := range c.All(sets[i]) {
			got[int(s.ID())] = true
		}
		if !maps.Equal(got, models[i]) {
			t.Fatalf("operation %d: %v are in the set, want %v", op, got, models[i])
		}
	}
	if sweeps < 3 {
		t.Errorf("%d sweeps", sweeps)
	}
}
