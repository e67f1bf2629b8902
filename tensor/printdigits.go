package tensor

import (
	"math"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/dtype"
)

// Floats are printed with the digits that NumPy chooses: the fewest that identify a number within its type. If the
// precision is lower, or asks for more, they are the digits of the exact value, rounded half to even.

// shortest returns the float64 with the shortest decimal form that identifies x, one of d's numbers, within d: 0.1 for
// the float32 nearest to a tenth. Of two such numbers it is the nearer one, and the even one on a tie. strconv can then
// print the result as a float64 for every type.
func shortest(x float64, d dtype.DType) float64 {
	digits := 0
	switch d {
	case dtype.Float64:
		return x
	case dtype.Float32: // strconv finds the number of digits, but does not always round a tie to even: 2^-12
		mantissa, _, _ := strings.Cut(strconv.FormatFloat(x, 'e', -1, 32), "e")
		_, fraction, _ := strings.Cut(mantissa, ".")
		digits = len(fraction)
	}
	for ; ; digits++ {
		// Try the nearest number with that many digits, and then the next away from zero: numbers are closer together
		// below a power of two than above, so the nearest decimal may identify the neighbour below.
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

// identifies reports whether x is the number of type d that is nearest to s.
func identifies(s string, x float64, d dtype.DType) bool {
	if d == dtype.Float32 {
		y, _ := strconv.ParseFloat(s, 32)
		return y == x
	}
	return dtype.ScalarOf(parse(s)).Convert(d).Float64() == x
}

// parse returns the number in text from strconv.
func parse(s string) float64 {
	x, _ := strconv.ParseFloat(s, 64)
	return x
}

// positional formats x, which is finite, with at most most digits after the point, or as many as needed if most is
// negative. Digits before the point are exact: 65504, although 65500 identifies it among float16 numbers.
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

// scientific formats x, which is finite, with one digit before the point and from least to most after it; a negative
// most is no limit. The exponent has a sign and at least two digits.
func scientific(x float64, d dtype.DType, least, most int) (whole, fraction, exponent string) {
	split := func(s string) {
		whole, exponent, _ = strings.Cut(s, "e")
		whole, fraction, _ = strings.Cut(whole, ".")
	}
	split(strconv.FormatFloat(shortest(x, d), 'e', -1, 64))
	switch n := len(fraction); {
	case n < least:
		// Use further digits of the exact value unless they identify another number: bfloat16's 2^-69 is 1.7e-21.
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
