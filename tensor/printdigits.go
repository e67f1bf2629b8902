package tensor

import (
	"math"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/dtype"
)

// The digits of floats as numpy chooses them: the fewest that identify a number among those of its type. Where a
// precision says fewer, or wants more, they are those of the exact value, rounded half to even.

// shortest returns the float64 that is written with the fewest digits that identify x, which is one of d's numbers, in d:
// of the float32 nearest to a tenth, 0.1. Of two such numbers it is the nearer one, of two equally near the even one. So
// what strconv knows of float64 serves every type.
func shortest(x float64, d dtype.DType) float64 {
	digits := 0
	switch d {
	case dtype.Float64:
		return x
	case dtype.Float32: // strconv knows how many digits, but does not always take the even one: of 2^-12
		mantissa, _, _ := strings.Cut(strconv.FormatFloat(x, 'e', -1, 32), "e")
		_, fraction, _ := strings.Cut(mantissa, ".")
		digits = len(fraction)
	}
	for ; ; digits++ {
		// The nearest number of so many digits, or the next beyond it: below a power of two numbers lie closer together
		// than above, so that the nearest may be another's.
		s := strconv.FormatFloat(x, 'e', digits, 64)
		if identifies(s, x, d) {
			return parse(s)
		}
		mantissa, exponent, _ := strings.Cut(s, "e")
		n, _ := strconv.ParseInt(strings.Replace(mantissa, ".", "", 1), 10, 64)
		e, _ := strconv.Atoi(exponent)
		if n < 0 {
			n--
		} else {
			n++
		}
		s = strconv.FormatInt(n, 10) + "e" + strconv.Itoa(e-digits)
		if identifies(s, x, d) {
			return parse(s)
		}
	}
}

// identifies reports whether x is d's number that s is nearest to.
func identifies(s string, x float64, d dtype.DType) bool {
	if d == dtype.Float32 {
		y, _ := strconv.ParseFloat(s, 32)
		return y == x
	}
	return dtype.ScalarOf(parse(s)).Convert(d).Float64() == x
}

// parse returns the number that strconv wrote.
func parse(s string) float64 {
	x, _ := strconv.ParseFloat(s, 64)
	return x
}

// positional writes x, finite, with at most so many digits after the point; negative: as many as it needs. Digits before
// the point are exact: 65504, though 65500 identifies it among float16s.
func positional(x float64, d dtype.DType, most int) (whole, fraction string) {
	y := x
	if x != math.Trunc(x) {
		y = shortest(x, d)
	}
	whole, fraction, _ = strings.Cut(strconv.FormatFloat(y, 'f', -1, 64), ".")
	if most >= 0 && len(fraction) > most {
		whole, fraction, _ = strings.Cut(strconv.FormatFloat(x, 'f', most, 64), ".")
		fraction = strings.TrimRight(fraction, "0")
	}
	return whole, fraction
}

// scientific writes x, finite, with one digit before the point and from least to most after it, if most is not negative.
// The exponent has a sign and at least two digits.
func scientific(x float64, d dtype.DType, least, most int) (whole, fraction, exponent string) {
	split := func(s string) {
		whole, exponent, _ = strings.Cut(s, "e")
		whole, fraction, _ = strings.Cut(whole, ".")
	}
	split(strconv.FormatFloat(shortest(x, d), 'e', -1, 64))
	switch n := len(fraction); {
	case n < least:
		// Further digits of the exact value, unless they lead to another number: bfloat16's 2^-69 is 1.7e-21 and not 1.69e-21.
		if longer := strconv.FormatFloat(x, 'e', least, 64); identifies(longer, x, d) {
			split(longer)
		} else {
			fraction += strings.Repeat("0", least-n)
		}
	case most >= 0 && n > most:
		split(strconv.FormatFloat(x, 'e', most, 64))
		for len(fraction) > least && fraction[len(fraction)-1] == '0' {
			fraction = fraction[:len(fraction)-1]
		}
	}
	return whole, fraction, exponent
}
