package pack_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/fit/pack"
)

// few returns n random buffers in a world so small that everything touches something.
func few(rng *rand.Rand, n int) []pack.Buffer {
	buffers := make([]pack.Buffer, n)
	for i := range buffers {
		lower := rng.Int64N(7) - 3
		buffers[i] = pack.Buffer{ID: string(rune('a' + i)), Lower: lower, Upper: lower + 1 + rng.Int64N(4), Size: 1 + rng.Int64N(4)}
	}
	return buffers
}

func TestValidateSeesWhatEachPairShows(t *testing.T) {
	const seed = 1
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	good := 0
	for range 20_000 {
		buffers := few(rng, 1+rng.IntN(5))
		offsets := make([]int64, len(buffers))
		var height int64
		for i, b := range buffers {
			offsets[i] = rng.Int64N(12)
			height = max(height, offsets[i]+b.Size)
		}
		clash := false
		for i, x := range buffers {
			for j, y := range buffers[:i] {
				clash = clash || x.Lower < y.Upper && y.Lower < x.Upper &&
					offsets[i] < offsets[j]+y.Size && offsets[j] < offsets[i]+x.Size
			}
		}
		got, err := pack.Validate(buffers, offsets)
		if (err != nil) != clash {
			t.Fatalf("%v at %v: error %v, overlap %v", buffers, offsets, err, clash)
		}
		if err == nil {
			good++
			if got != height {
				t.Fatalf("%v at %v: height %d, want %d", buffers, offsets, got, height)
			}
		}
	}
	if good < 1000 || good > 19_000 {
		t.Errorf("%d of 20000 were packings: the test sees one side only", good)
	}
}

// Of many buffers, any two that touch are found, and no others: each lies on one of a few shelves, a unit high at least, and now
// and then one is a unit too low, or lives on for a moment.
func TestValidateOfMany(t *testing.T) {
	const seed = 3
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	clashes := 0
	for round := range 2000 {
		n := 60 + rng.IntN(600)
		if round%200 == 0 {
			n = 4000 + rng.IntN(2000)
		}
		buffers, offsets := make([]pack.Buffer, n), make([]int64, n)
		shelves := 1 + rng.IntN(n)
		if rng.IntN(2) == 0 {
			shelves = 2 + rng.IntN(40) // few are alive at a time
		}
		free := make([]int64, shelves) // from when, by shelf
		for i := range buffers {
			shelf := rng.IntN(len(free))
			lower := free[shelf] + rng.Int64N(3)
			buffers[i] = pack.Buffer{Lower: lower, Upper: lower + 1 + rng.Int64N(50), Size: 1 + rng.Int64N(8)}
			offsets[i], free[shelf] = int64(shelf)*8, buffers[i].Upper
		}
		clash := false
		if i := rng.IntN(n); round%2 == 1 {
			if rng.IntN(2) == 0 && offsets[i] > 0 {
				offsets[i]--
			} else {
				buffers[i].Upper += 3
			}
			for j, y := range buffers {
				x := buffers[i]
				clash = clash || j != i && x.Lower < y.Upper && y.Lower < x.Upper &&
					offsets[i] < offsets[j]+y.Size && offsets[j] < offsets[i]+x.Size
			}
		}
		if clash {
			clashes++
		}
		if _, err := pack.Validate(buffers, offsets); (err != nil) != clash {
			t.Fatalf("round %d, %d buffers: error %v, overlap %v", round, n, err, clash)
		}
	}
	if clashes < 100 || clashes > 900 {
		t.Errorf("%d of 1000 overlapped: the test sees one side only", clashes)
	}
}

func TestValidateSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		buffers []pack.Buffer
		offsets []int64
		want    string
	}{
		{[]pack.Buffer{{"x", 0, 5, 10}, {"y", 3, 9, 1}}, []int64{0, 9}, `buffers "x" (0) and "y" (1) overlap: [0,10) and [9,10), both alive during [3,5)`},
		{[]pack.Buffer{{"x", 0, 5, 10}, {"y", 3, 9, 1}}, []int64{0}, "1 offsets for 2 buffers"},
		{[]pack.Buffer{{"x", 5, 5, 1}}, []int64{0}, `buffer "x" (0): lifetime [5,5) is empty`},
		{[]pack.Buffer{{"x", 0, 5, 0}}, []int64{0}, `buffer "x" (0): size 0`},
		{[]pack.Buffer{{"x", 0, 5, -1}}, []int64{0}, `buffer "x" (0): size -1`},
		{[]pack.Buffer{{"x", 0, 5, 1}}, []int64{-1}, `buffer "x" (0): offset -1`},
		{[]pack.Buffer{{"x", 0, 5, 1}}, []int64{math.MaxInt64}, `buffer "x" (0): offset 9223372036854775807`},
	} {
		_, err := pack.Validate(c.buffers, c.offsets)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v at %v: %v, want %q", c.buffers, c.offsets, err, c.want)
		}
	}
	if h, err := pack.Validate(nil, nil); h != 0 || err != nil {
		t.Errorf("nothing: %d, %v", h, err)
	}
}
