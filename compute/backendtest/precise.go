package backendtest

import (
	"math"
	"math/big"
)

// Functions of float64s to far more bits than a float64 has, so that what they return is the right float64 but for ties
// that do not happen. Arguments are finite, and of log positive.

const precision = 240

func number(x float64) *big.Float      { return new(big.Float).SetPrec(precision).SetFloat64(x) }
func sum(a, b *big.Float) *big.Float   { return new(big.Float).SetPrec(precision).Add(a, b) }
func minus(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Sub(a, b) }
func times(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Mul(a, b) }
func over(a, b *big.Float) *big.Float  { return new(big.Float).SetPrec(precision).Quo(a, b) }
func scaled(a *big.Float, e int) *big.Float {
	return new(big.Float).SetPrec(precision).SetMantExp(a, e)
}

func rounded(x *big.Float) float64 {
	f, _ := x.Float64()
	return f
}

var (
	one    = number(1)
	two    = number(2)
	piLong = machin(1500) // for arguments up to the greatest float64
	piWide = new(big.Float).SetPrec(precision).Set(piLong)
	ln2    = preciseLn2()
	ln10   = preciseLog(number(10))
)

// machin returns pi = 16 atan(1/5) - 4 atan(1/239).
func machin(bits uint) *big.Float {
	atan := func(n int64) *big.Float {
		of := func(v int64) *big.Float { return new(big.Float).SetPrec(bits).SetInt64(v) }
		power, total := new(big.Float).SetPrec(bits).Quo(of(1), of(n)), of(0)
		for k := int64(1); power.MantExp(nil) > -int(bits); k += 4 {
			for _, c := range []int64{k, -k - 2} {
				total.Add(total, new(big.Float).SetPrec(bits).Quo(power, of(c)))
				power.Quo(power, of(n*n))
			}
		}
		return total
	}
	a, b := atan(5), atan(239)
	return a.Sub(a.SetMantExp(a, 4), b.SetMantExp(b, 2))
}

// preciseLn2 returns the sum of 1/(k 2^k).
func preciseLn2() *big.Float {
	total := new(big.Float).SetPrec(precision)
	for k := 1; k <= precision+8; k++ {
		total.Add(total, scaled(over(one, number(float64(k))), -k))
	}
	return total
}

// preciseExp returns exp of x, which may be any number: x = n ln 2 + r, and the series of r/2^12, squared twelve times.
func preciseExp(x *big.Float) *big.Float {
	f := rounded(x)
	if f > 1e6 || f < -1e6 {
		f = math.Copysign(1e6, f)
		x = number(f)
	}
	n := int(math.RoundToEven(f / math.Ln2))
	r := scaled(minus(x, times(number(float64(n)), ln2)), -12)
	term, total := one, one
	for k := 1; k < 20; k++ {
		term = over(times(term, r), number(float64(k)))
		total = sum(total, term)
	}
	for range 12 {
		total = times(total, total)
	}
	return scaled(total, n)
}

// preciseExpm1 returns expm1 of x: near 0 by its series, elsewhere little is lost by subtracting.
func preciseExpm1(x *big.Float) *big.Float {
	if x.Sign() == 0 || x.MantExp(nil) > -40 {
		return minus(preciseExp(x), one)
	}
	term, total := x, x
	for k := 2; k < 8; k++ {
		term = over(times(term, x), number(float64(k)))
		total = sum(total, term)
	}
	return total
}

// preciseLog returns log of x: Halley's step from the float64, whose error it cubes.
func preciseLog(x *big.Float) *big.Float {
	e := x.MantExp(nil)
	if e < -1000 || e > 1000 { // out of a float64's reach
		return sum(preciseLog(scaled(x, -e)), times(number(float64(e)), ln2))
	}
	y := number(math.Log(rounded(x)))
	z := preciseExp(y)
	return sum(y, over(times(two, minus(x, z)), sum(x, z)))
}

// preciseLog1p returns log1p of x > -1.
func preciseLog1p(x *big.Float) *big.Float {
	if x.Sign() == 0 || x.MantExp(nil) > -40 {
		return preciseLog(sum(one, x))
	}
	power, total := x, x
	for k := 2; k < 8; k++ {
		power = times(power, x)
		term := over(power, number(float64(k)))
		if k%2 == 0 {
			total = minus(total, term)
		} else {
			total = sum(total, term)
		}
	}
	return total
}

// preciseSincos returns sincos of x: reduced by quarters of the circle, then the two series.
func preciseSincos(x float64) (sin, cos *big.Float) {
	long := func() *big.Float { return new(big.Float).SetPrec(1500) }
	quarter := long().SetMantExp(piLong, -1)
	q := long().Quo(long().SetFloat64(x), quarter)
	n, _ := q.Add(q, long().SetFloat64(math.Copysign(0.5, x))).Int(nil)
	rest := long().Sub(long().SetFloat64(x), long().Mul(quarter, long().SetInt(n)))
	r := new(big.Float).SetPrec(precision).Set(rest)
	sin, cos = new(big.Float).SetPrec(precision), new(big.Float).SetPrec(precision)
	term := one
	for k := 0; k < 60 && term.Sign() != 0; k++ {
		into := cos
		if k%2 == 1 {
			into = sin
		}
		if k%4 < 2 {
			into.Add(into, term)
		} else {
			into.Sub(into, term)
		}
		term = over(times(term, r), number(float64(k+1)))
	}
	switch new(big.Int).And(n, big.NewInt(3)).Int64() {
	case 1:
		return cos, sin.Neg(sin)
	case 2:
		return sin.Neg(sin), cos.Neg(cos)
	case 3:
		return cos.Neg(cos), sin
	}
	return sin, cos
}

// preciseTanh returns tanh of x.
func preciseTanh(x *big.Float) *big.Float {
	if f := rounded(x); math.Abs(f) > 100 {
		return number(math.Copysign(1, f))
	}
	e := preciseExpm1(times(two, x))
	return over(e, sum(e, two))
}

// preciseErf returns erf of x: the series with terms of one sign, 2/sqrt(pi) exp(-x^2) sum (2^n x^(2n+1) / (2n+1)!!).
func preciseErf(x *big.Float) *big.Float {
	if f := rounded(x); math.Abs(f) > 12 {
		return number(math.Copysign(1, f))
	}
	square := times(x, x)
	term, total := x, x
	for k := 1; term.Sign() != 0 && term.MantExp(nil) > total.MantExp(nil)-precision; k++ {
		term = over(times(term, times(two, square)), number(float64(2*k+1)))
		total = sum(total, term)
	}
	root := new(big.Float).SetPrec(precision).Sqrt(piWide)
	return over(times(times(two, total), preciseExp(minus(number(0), square))), root)
}

// preciseAtan2 returns atan2 of y and x, not both zero: the float64 turned back, and the angle that is left.
func preciseAtan2(y, x float64) *big.Float {
	guess := math.Copysign(math.Atan2(y, x), y)
	sin, cos := preciseSincos(guess)
	by, bx := number(y), number(x)
	d := over(minus(times(by, cos), times(bx, sin)), sum(times(bx, cos), times(by, sin)))
	cube := over(times(d, times(d, d)), number(3))
	return sum(number(guess), minus(d, cube))
}

// precisePow returns pow of positive x.
func precisePow(x, y float64) *big.Float { return preciseExp(times(number(y), preciseLog(number(x)))) }
