package dtype

import "math"

// Limits are the bounds of a type, as in torch.iinfo and torch.finfo; for a complex type those of its parts.
type Limits struct {
	Bits     int    // of one number: 32 for Complex64
	Min, Max Scalar // the smallest and the largest finite number; false and true for Bool

	// For floating-point and complex types; 0 for others.
	Epsilon           float64 // distance from 1 to the next larger number
	SmallestNormal    float64 // the smallest positive number of full precision
	SmallestSubnormal float64 // the smallest positive number
	Digits            int     // bits of precision, including the leading one
}

// Limits returns the bounds of d. It panics if d is not valid.
func (d DType) Limits() Limits {
	d.check("Limits")
	bits := 8 * d.Size()
	switch d {
	case Bool:
		return Limits{Bits: bits, Min: ScalarOf(false), Max: ScalarOf(true)}
	case Float8E5M2:
		return floatLimits(bits, 3, -14, 57344)
	case Float8E4M3FN:
		return floatLimits(bits, 4, -6, 448)
	case Float16:
		return floatLimits(bits, 11, -14, 65504)
	case BFloat16:
		return floatLimits(bits, 8, -126, 0x1.fep127)
	case Float32, Complex64:
		return floatLimits(32, 24, -126, math.MaxFloat32)
	case Float64, Complex128:
		return floatLimits(64, 53, -1022, math.MaxFloat64)
	}
	if d.Kind() == KindUnsigned {
		return Limits{Bits: bits, Min: unsigned(0), Max: unsigned(math.MaxUint64 >> (64 - bits))}
	}
	return Limits{Bits: bits, Min: signed(math.MinInt64 >> (64 - bits)), Max: signed(math.MaxInt64 >> (64 - bits))}
}

// floatLimits returns those of a format of so many bits, digits of precision, the least exponent of a normal number and
// the greatest number.
func floatLimits(bits, digits, exponent int, greatest float64) Limits {
	return Limits{
		Bits: bits, Digits: digits, Min: ScalarOf(-greatest), Max: ScalarOf(greatest),
		Epsilon:        math.Ldexp(1, 1-digits),
		SmallestNormal: math.Ldexp(1, exponent), SmallestSubnormal: math.Ldexp(1, exponent+1-digits),
	}
}
