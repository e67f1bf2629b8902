package host

import (
	"math"
	"math/bits"

	"github.com/ashlar-go/ashlar/compute/backend"
)

// Functions of float64 numbers that package math computes less well than a few units in the last place: logarithms to
// other bases (which cancel near 1), sines of great numbers, and powers with great exponents. A number of more than 53
// bits is a sum high + low, with |low| at most half a unit in the last place of high.

// The two parts of log(2): the first has 32 bits, so that its product with an exponent is exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = math.Ln2 - ln2High
)

// split returns x > 0 as m * 2^k, with m from sqrt(1/2) to sqrt(2).
func split(x float64) (m float64, k int) {
	m, k = math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, k = 2*m, k-1
	}
	return m, k
}

func log2(x float64) float64 {
	if !(x > 0) || x > math.MaxFloat64 {
		return backend.ExactLog(x)
	}
	m, k := split(x)
	return float64(k) + backend.ExactLog(m)*math.Log2E
}

// log10 adds the exponent's part as a product that is exact and a small one, so that powers of ten come out whole.
func log10(x float64) float64 {
	const high, low = 0x1.34413508p-2, 0x1.f79fef311f12bp-34 // of log10(2)
	if !(x > 0) || x > math.MaxFloat64 {
		return backend.ExactLog(x)
	}
	m, k := split(x)
	return float64(k)*high + (float64(k)*low + backend.ExactLog(m)*math.Log10E)
}

// pow is exp(y*log(x)), with the logarithm and the product as two numbers each.
func pow(x, y float64) float64 {
	a := math.Abs(x)
	if !(a > 0 && a <= math.MaxFloat64) || a == 1 || y == 0 || math.IsInf(y, 0) || math.IsNaN(y) || x < 0 &&
		y != math.Trunc(y) {
		return math.Pow(x, y)
	}
	high, low := logParts(a)
	p := y * high
	e := math.FMA(y, high, -p) + y*low
	if p > 800 || p < -800 {
		p, e = math.Copysign(800, p), 0 // far out of range, and e may be no number
	}
	k := math.RoundToEven(p * math.Log2E)
	r := math.Ldexp(expOf(sumParts(p-k*ln2High, e-k*ln2Low)), int(k))
	if x < 0 && math.Mod(y, 2) != 0 {
		return -r
	}
	return r
}

// expOf returns exp(x+low), |x| < 0.4, by its series, whose first terms are added last.
func expOf(x, low float64) float64 {
	t := 1.0 / 1307674368000 // 15!
	for _, c := range [...]float64{
		1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
	} {
		t = t*x + c
	}
	high := 1 + x
	return high + (1 - high + x + (low*(1+x) + x*x*t))
}

// logParts returns the logarithm of x, finite and greater than 0, to about 64 bits. With x = 2^k * (1+f) and s =
// f/(2+f) it is k*log(2) + s*(2 + 2s^2/3 + 2s^4/5 + ...): s, its square and the first two terms are of two parts each.
func logParts(x float64) (high, low float64) {
	const (
		third2  = 0x1.5555555555555p-1 // 2/3, and what is missing of it
		thirdLo = 0x1.5555555555555p-55
	)
	m, k := split(x)
	f, d := m-1, m+1
	dLow := m - (d - 1)
	s := f / d
	sLow := (math.FMA(-s, d, f) - s*dLow) / d
	z := s * s
	zLow := math.FMA(s, s, -z) + 2*s*sLow
	t := z * third2
	tLow := math.FMA(z, third2, -t) + z*thirdLo + zLow*third2
	tail := 0.0
	for i := 23.0; i >= 5; i -= 2 {
		tail = tail*z + 2/i
	}
	w := 2 + t
	wLow := 2 - w + t + tLow + z*z*tail
	p := s * w
	pLow := math.FMA(s, w, -p) + s*wLow + sLow*w
	n := float64(k)
	a := n * ln2High
	high, low = sumParts(a, p)
	return sumParts(high, low+pLow+n*ln2Low)
}

// sumParts returns a+b, and what rounding left of it.
func sumParts(a, b float64) (sum, low float64) {
	sum = a + b
	part := sum - a
	return sum, (a - (sum - part)) + (b - part)
}

func sin(x float64) float64 {
	if math.Abs(x) <= math.Pi/4 || math.IsNaN(x) {
		return sinOf(x, 0)
	}
	return sinQuarters(x, 0)
}

func cos(x float64) float64 {
	if math.Abs(x) <= math.Pi/4 || math.IsNaN(x) {
		return cosOf(x, 0)
	}
	return sinQuarters(x, 1)
}

func tan(x float64) float64 { return sin(x) / cos(x) }

// sinQuarters returns the sine of x plus a number of right angles.
func sinQuarters(x float64, quarters int) float64 {
	if math.IsInf(x, 0) {
		return math.NaN()
	}
	q, r, low := reduce(math.Abs(x))
	if x < 0 {
		q, r, low = -q, -r, -low
	}
	switch (q + quarters) & 3 {
	case 0:
		return sinOf(r, low)
	case 1:
		return cosOf(r, low)
	case 2:
		return -sinOf(r, low)
	}
	return -cosOf(r, low)
}

// twoOverPi is 2/pi, after 64 bits of zeros: enough bits for every float64.
var twoOverPi = [20]uint64{
	0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
	0x06492eea09d1921c,
	0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
	0x1ff897ffde05980f,
	0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea,
	0x6bfb5fb11f8d5d08,
	0x56033046fc7b6bab,
}

// reduce returns x > pi/4 as q right angles and r+low, at most half a right angle: after M. Payne and R. Hanek, "Radian
// reduction for trigonometric functions" (SIGNUM Newsletter 18, 1983). Of x = m * 2^e times 2/pi only what is less than
// 4 counts, which begins at bit e-1 of 2/pi. With 192 bits from there, 190 of the product are a fraction: as the
// fraction of no float64 is less than about 2^-62, more than 70 are right.
func reduce(x float64) (q int, r, low float64) {
	b := math.Float64bits(x)
	m, at := b&(1<<52-1)|1<<52, int(b>>52)-1075+62
	word, shift := at/64, at%64
	var v [3]uint64
	for i := range v {
		v[i] = twoOverPi[word+i] << shift
		if shift > 0 && word+i+1 < len(twoOverPi) {
			v[i] |= twoOverPi[word+i+1] >> (64 - shift)
		}
	}
	// The product, without what is beyond 192 bits.
	c2, p2 := bits.Mul64(m, v[2])
	c1, p1 := bits.Mul64(m, v[1])
	p0 := m * v[0]
	p1, carry := bits.Add64(p1, c2, 0)
	p0, _ = bits.Add64(p0, c1, carry)

	q = int(p0 >> 62)
	p0, p1, p2 = p0<<2|p1>>62, p1<<2|p2>>62, p2<<2
	negative := p0>>63 != 0 // more than half: one more, less what is missing
	if negative {
		q++
		var borrow uint64
		p2, borrow = bits.Sub64(0, p2, 0)
		p1, borrow = bits.Sub64(0, p1, borrow)
		p0, _ = bits.Sub64(0, p0, borrow)
	}
	exponent := -64
	if p0 == 0 {
		p0, p1, p2, exponent = p1, p2, 0, exponent-64
	}
	zeros := bits.LeadingZeros64(p0)
	if zeros > 0 {
		p0, p1 = p0<<zeros|p1>>(64-zeros), p1<<zeros|p2>>(64-zeros)
	}
	exponent -= zeros
	f := math.Ldexp(float64(p0>>11), exponent+11)
	fLow := math.Ldexp(float64((p0&(1<<11-1))<<42|p1>>22), exponent-42)
	const half, halfLow = 0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54 // of pi
	r = f * half
	low = math.FMA(f, half, -r) + f*halfLow + fLow*half
	if negative {
		r, low = -r, -low
	}
	return q, r, low
}

// sinOf and cosOf return the sine and the cosine of x+low, |x| <= pi/4, by their series, whose first terms are added
// last.
func sinOf(x, low float64) float64 {
	if x == 0 {
		return x
	}
	z := x * x
	t := 1.0 / 355687428096000 // 17!
	for _, c := range [...]float64{
		-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6,
	} {
		t = t*z + c
	}
	return x + (x*z*t + low*(1-z/2))
}

func cosOf(x, low float64) float64 {
	z := x * x
	t := 1.0 / 20922789888000 // 16!
	for _, c := range [...]float64{
		-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720,
		1.0 / 24,
	} {
		t = t*z + c
	}
	half := z / 2
	w := 1 - half
	return w + (1 - w - half + (z*z*t - x*low))
}
