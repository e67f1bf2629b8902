package drivercost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLineOfExactSamples(t *testing.T) {
	for _, c := range []struct{ fixed, per float64 }{{3500, 0.0005}, {38_000, 24_700}, {0, 2}, {7, 0}} {
		var all []sample
		for size := 1.0; size < 1e9; size *= 8 {
			all = append(all, sample{size, c.fixed + c.per*size})
		}
		fixed, per := fitLine(all)
		if math.Abs(fixed-c.fixed) > 1e-6*c.fixed+1e-6 || math.Abs(per-c.per) > 1e-6*c.per+1e-12 {
			t.Errorf("%v + %v a unit, want %v + %v", fixed, per, c.fixed, c.per)
		}
	}
}

// Errors of some percent move the fit by some percent, at both ends.
func TestLineOfNoisySamples(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var all []sample
		for size := 1.0; size <= 512; size *= 2 {
			all = append(all, sample{size, (13_000 + 25_000*size) * (0.97 + 0.06*rng.Float64())})
		}
		fixed, per := fitLine(all)
		if math.Abs(per-25_000) > 1_250 || math.Abs(fixed+per-38_000) > 1_900 {
			t.Errorf("seed %d: %v + %v a page", seed, fixed, per)
		}
	}
}

func TestLineAtItsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		samples    []sample
		fixed, per float64
	}{
		"nothing":    {nil, 0, 0},
		"free":       {[]sample{{1, 0}, {2, 0}}, 0, 0},
		"one":        {[]sample{{5, 100}}, 100, 0},
		"one size":   {[]sample{{5, 100}, {5, 100}}, 100, 0},
		"descending": {[]sample{{0, 200}, {1, 200}, {2, 100}}, 400. / 3, 0},
		"below zero": {[]sample{{1, 1}, {2, 4}}, 0, 1.2},
	} {
		fixed, per := fitLine(c.samples)
		if math.Abs(fixed-c.fixed) > 1e-9 || math.Abs(per-c.per) > 1e-9 {
			t.Errorf("%s: %v + %v a unit, want %v + %v", name, fixed, per, c.fixed, c.per)
		}
	}
}

func TestAscending(t *testing.T) {
	for _, c := range []struct{ in, want []float64 }{
		{nil, nil},
		{[]float64{1, 2, 3}, []float64{1, 2, 3}},
		{[]float64{3, 1}, []float64{2, 2}},
		{[]float64{1, 5, 3, 2, 9}, []float64{1, 3, 3, 3, 9}}, // 10/3, rounded
		{[]float64{4, 4, 1}, []float64{3, 3, 3}},
		{[]float64{2, 4, 3, 2}, []float64{2, 3, 3, 3}},
	} {
		got := slices.Clone(c.in)
		if ascending(got); !slices.Equal(got, c.want) {
			t.Errorf("%v became %v, want %v", c.in, got, c.want)
		}
	}
}
