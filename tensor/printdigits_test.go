package tensor

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

// Of the numbers of the narrow types, the digits are as few as can be, and the nearest that few: against exact
// arithmetic, with the neighbours taken from the bits.
func TestShortestDigitsOfNarrowTypes(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float8E5M2, dtype.Float8E4M3FN} {
		value := func(bits int) float64 { return d.Load([]byte{byte(bits), byte(bits >> 8)}).Float64() }
		n := 1 << (8*d.Size() - 1)
		for bits := 1; bits < n && finite(value(bits)); bits++ {
			if d == dtype.BFloat16 && bits%128 > 8 && bits%7 > 0 {
				continue // all powers of two, and enough of the rest
			}
			x, below := value(bits), value(bits-1)
			above := x + (x - below) // of the greatest, what would come
			if next := value(bits + 1); bits+1 < n && finite(next) {
				above = next
			}
			// The interval of numbers that round to x: from midpoint to midpoint, including both ends if x is even.
			low, high := half(below, x), half(x, above)
			inside := func(s string) bool {
				q, ok := new(big.Rat).SetString(s)
				if !ok {
					t.Fatalf("%q is no number", s)
				}
				a, b := q.Cmp(low), q.Cmp(high)
				return a > 0 && b < 0 || bits%2 == 0 && (a == 0 || b == 0)
			}
			s := strconv.FormatFloat(shortest(x, d), 'e', -1, 64)
			if !inside(s) {
				t.Fatalf("%v %#x = %v: %s is another number", d, bits, x, s)
			}
			if negative := shortest(-x, d); strconv.FormatFloat(negative, 'e', -1, 64) != "-"+s {
				t.Fatalf("%v -%v: %v, want -%s", d, x, negative, s)
			}
			digits := len(strings.Replace(s[:strings.IndexByte(s, 'e')], ".", "", 1))
			if digits > 1 && (inside(down(x, digits-1)) || inside(up(x, digits-1))) {
				t.Fatalf("%v %#x = %v: %s is not the shortest", d, bits, x, s)
			}
			for _, other := range []string{down(x, digits), up(x, digits)} {
				if inside(other) && apart(other, x).Cmp(apart(s, x)) < 0 {
					t.Fatalf("%v %#x = %v: %s is nearer than %s", d, bits, x, other, s)
				}
			}
		}
	}
}

// half is the number half way between.
func half(x, y float64) *big.Rat {
	sum := new(big.Rat).Add(new(big.Rat).SetFloat64(x), new(big.Rat).SetFloat64(y))
	return sum.Quo(sum, big.NewRat(2, 1))
}

// down cuts x, which is positive, to so many digits; up is the next number of so many.
func down(x float64, digits int) string {
	s := strconv.FormatFloat(x, 'e', 200, 64) // exact for the narrow types
	mantissa, exponent, _ := strings.Cut(s, "e")
	return mantissa[:1] + "." + mantissa[2:1+digits] + "e" + exponent
}

func up(x float64, digits int) string {
	mantissa, exponent, _ := strings.Cut(down(x, digits), "e")
	n, _ := new(big.Int).SetString(strings.Replace(mantissa, ".", "", 1), 10)
	e, _ := strconv.Atoi(exponent)
	return n.Add(n, big.NewInt(1)).String() + "e" + strconv.Itoa(e-digits+1)
}

// apart is the distance between a decimal and x.
func apart(s string, x float64) *big.Rat {
	q, _ := new(big.Rat).SetString(s)
	return q.Abs(q.Sub(q, new(big.Rat).SetFloat64(x)))
}

// strconv is right about float32, but not always about which of two equally near numbers is the even one: numpy,
// PyTorch's users and the golden cases want 2.4414062e-04 of 2^-12, which is 2.44140625e-04.
func TestShortestDigitsOfFloat32(t *testing.T) {
	rng := printRandom(t)
	for i := range 50_000 {
		x := float64(math.Float32frombits(rng.Uint32()))
		if i < 2*277 {
			x = math.Ldexp(float64(i/277*2+1), i%277-149)
		}
		if !finite(x) || float64(float32(x)) != x {
			continue
		}
		s := strconv.FormatFloat(shortest(x, dtype.Float32), 'e', -1, 64)
		theirs := strconv.FormatFloat(x, 'e', -1, 32)
		if y, err := strconv.ParseFloat(s, 32); err != nil || y != x || len(s) != len(theirs) {
			t.Fatalf("%v: %s, strconv says %s", x, s, theirs)
		}
	}
	whole, fraction, exponent := scientific(0x1p-12, dtype.Float32, 0, -1)
	if whole+fraction+exponent != "24414062-04" {
		t.Errorf("2^-12: %s.%se%s", whole, fraction, exponent)
	}
}

// Digits that are asked for beyond the fewest never make another number of it: below a power of two the numbers of a
// type lie closer together than above it.
func TestFurtherDigitsStillIdentifyTheNumber(t *testing.T) {
	for _, d := range []dtype.DType{dtype.BFloat16, dtype.Float16, dtype.Float32} {
		lowest := map[dtype.DType]int{dtype.BFloat16: -126, dtype.Float16: -14, dtype.Float32: -126}[d]
		for exponent := lowest; exponent <= 15; exponent++ {
			for least := range 8 {
				x := -math.Ldexp(1, exponent)
				whole, fraction, e := scientific(x, d, least, -1)
				if text := whole + "." + fraction + "e" + e; len(fraction) < least || !identifies(text, x, d) {
					t.Errorf("%v 2^%d with %d digits: %s", d, exponent, least, text)
				}
			}
		}
	}
}
