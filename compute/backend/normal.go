package backend

import "math"

// Normal numbers have the same bits on every backend, so they are computed by a fixed sequence of operations that are
// each rounded once: additions, multiplications, divisions and a square root in float64. The conversions to float64
// around products prevent the Go compiler from fusing a product with a sum, which the language permits; a backend in
// another language must prevent fusion too. A polynomial c0 + c1*x + c2*x^2 + ... is computed by Horner's rule from its
// highest power: ((c2*x) + c1)*x + c0.

// NormInv returns z for which a standard normal number is less than z with probability p: -Inf for 0, +Inf for 1, NaN
// outside. It is PPND16 of M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied
// Statistics 37 (1988): about 16 digits.
func NormInv(p float64) float64 {
	q := p - 0.5
	if q >= -0.425 && q <= 0.425 {
		r := 0.180625 - float64(q*q)
		return float64(q*horner(&normA, r)) / horner(&normB, r)
	}
	switch {
	case !(p >= 0 && p <= 1):
		return math.NaN()
	case p == 0:
		return math.Inf(-1)
	case p == 1:
		return math.Inf(1)
	}
	r := p
	if q > 0 {
		r = 1 - p
	}
	r = math.Sqrt(-ExactLog(r))
	var z float64
	if r <= 5 {
		r -= 1.6
		z = horner(&normC, r) / horner(&normD, r)
	} else {
		r -= 5
		z = horner(&normE, r) / horner(&normF, r)
	}
	if q < 0 {
		return -z
	}
	return z
}

func horner(c *[8]float64, x float64) float64 {
	y := c[7]
	for i := 6; i >= 0; i-- {
		y = float64(y*x) + c[i]
	}
	return y
}

// Numerators and denominators, in the middle, in the tails, and far out.
var (
	normA = [8]float64{
		3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
		4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
	}
	normB = [8]float64{
		1, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
		2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
	}
	normC = [8]float64{
		1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
		1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
	}
	normD = [8]float64{
		1, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
		1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
	}
	normE = [8]float64{
		6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1,
		2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
	}
	normF = [8]float64{
		1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
		7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
	}
)

// ExactLog returns the natural logarithm of x with an error of at most 1 unit in the last place. It is -Inf for 0, and
// NaN for negative numbers and NaN.
//
// With x = 2^k * (1+f), 1+f from sqrt(1/2) to sqrt(2), and s = f/(2+f), log(1+f) is 2s + 2s^3/3 + 2s^5/5 + ..., which
// is f - s*(f-t) with t = 2s^2/3 + 2s^4/5 + ...: in this form the rounding of s has little effect. k*log(2) is added in
// two parts, of which the first is exact.
func ExactLog(x float64) float64 {
	switch {
	case !(x >= 0):
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	k := 0
	if x < 0x1p-1022 {
		x, k = x*0x1p54, -54
	}
	bits := math.Float64bits(x)
	k += int(bits>>52) - 1023
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52) // 1 <= m < 2
	if m > math.Sqrt2 {
		m, k = m*0.5, k+1
	}
	f := m - 1 // exact
	s := f / (2 + f)
	z := float64(s * s)
	t := logC[len(logC)-1]
	for i := len(logC) - 2; i >= 0; i-- {
		t = float64(t*z) + logC[i]
	}
	t = float64(t * z)
	n := float64(k)
	low := float64(s*(f-t)) - float64(n*logLow)
	return float64(n*logHigh) - (low - f)
}

// 2/3, 2/5, ..., 2/23: with s^2 < 0.0295, what is left out is less than 2^-58 of the sum.
var logC = [11]float64{
	2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23,
}

// log(2) in two parts: the first has 32 significant bits, so that its product with an exponent is exact.
const (
	logHigh = 0x1.62e42feep-1
	logLow  = math.Ln2 - logHigh
)
