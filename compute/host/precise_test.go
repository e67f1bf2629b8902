package host

import (
	"math"
	"testing"
)

// Values that users know, to the bit. (compute/backendtest compares with results of 240 bits.)
func TestPreciseFunctions(t *testing.T) {
	for i := -307; i <= 308; i++ {
		if x := math.Pow10(i); i >= 0 && i <= 22 && log10(x) != float64(i) {
			t.Errorf("log10(%v) = %v", x, log10(x))
		}
	}
	for i := -1074; i < 1024; i++ {
		x := math.Ldexp(1, i)
		if log2(x) != float64(i) {
			t.Errorf("log2(%v) = %v, want %d", x, log2(x), i)
		}
		if pow(2, float64(i)) != x || pow(0.5, float64(-i)) != x {
			t.Errorf("2^%d = %v, 0.5^%d = %v", i, pow(2, float64(i)), -i, pow(0.5, float64(-i)))
		}
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"2^1024", pow(2, 1024), math.Inf(1)},
		{"2^-1075", pow(2, -1076), 0},
		{"(-3)^3", pow(-3, 3), -27},
		{"(-3)^-2", pow(-3, -2), 1.0 / 9},
		{"10^308", pow(10, 308), 1e308},
		{"1.0000001^1e9", pow(1.0000001, 1e9), 2.6881038582144647e+43},
		{"0^-1", pow(0, -1), math.Inf(1)},
		{"(-8)^(1/3)", pow(-8, 1.0/3), math.NaN()},
		// What W. Kahan, and K. C. Ng after him ("Argument reduction for huge arguments: good to the last bit", 1992), ask of
		// a library.
		{"sin 1e22", sin(1e22), -0.8522008497671888},
		{"cos 1e22", cos(1e22), 0.523214785395139},
		{"sin of the greatest", sin(math.MaxFloat64), 0.004961954789184062},
		{"cos of the greatest", cos(math.MaxFloat64), -0.9999876894265599},
		{"sin -0", 1 / sin(math.Copysign(0, -1)), math.Inf(-1)},
		{"sin Inf", sin(math.Inf(1)), math.NaN()},
		{"tan NaN", tan(math.NaN()), math.NaN()},
		{"sin pi", sin(math.Pi), 1.2246467991473532e-16},
		{"cos of what is closest to a multiple of a right angle", cos(6381956970095103 * 0x1p797), -4.687165924254628e-19},
	} {
		if c.got != c.want && !(math.IsNaN(c.got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}
