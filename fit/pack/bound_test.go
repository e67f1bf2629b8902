package pack_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/fit/pack"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestBoundIsTheFullestMoment(t *testing.T) {
	const seed = 2
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		buffers := few(rng, rng.IntN(9))
		var want int64
		for now := int64(-4); now < 9; now++ {
			var alive int64
			for _, b := range buffers {
				if b.Lower <= now && now < b.Upper {
					alive += b.Size
				}
			}
			want = max(want, alive)
		}
		if got := pack.Bound(buffers); got != want {
			t.Fatalf("%v: %d, want %d", buffers, got, want)
		}
	}
}

func TestBoundAtTheEndOfInt64(t *testing.T) {
	if got := pack.Bound([]pack.Buffer{{"", 0, 2, math.MaxInt64}, {"", 1, 3, 1}}); got != math.MaxInt64 {
		t.Errorf("two that overflow: %d", got)
	}
	if got := pack.Bound([]pack.Buffer{{"", 0, 1, math.MaxInt64}, {"", 1, 3, 1}}); got != math.MaxInt64 {
		t.Errorf("one after the other: %d", got)
	}
	testkit.WantPanic(t, "a size of 0", "", func() { pack.Bound([]pack.Buffer{{"x", 0, 1, 0}}) })
}
