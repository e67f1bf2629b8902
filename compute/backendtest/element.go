package backendtest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/dtype"
)

// A format is a binary floating-point format: sign, exponent and fraction, from the high bits to the low.
type format struct {
	exponent, fraction int  // bits
	finite             bool // no infinities; all ones is the only NaN, and the rest of the last exponent are numbers
}

var formats = [...]format{
	dtype.Float64:      {11, 52, false},
	dtype.Float32:      {8, 23, false},
	dtype.Float16:      {5, 10, false},
	dtype.BFloat16:     {8, 7, false},
	dtype.Float8E5M2:   {5, 2, false},
	dtype.Float8E4M3FN: {4, 3, true},
}

// computed is the format that arithmetic on d is done in.
func computed(d dtype.DType) format {
	if d == dtype.Float64 {
		return formats[d]
	}
	return formats[dtype.Float32]
}

func (f format) bias() int { return 1<<(f.exponent-1) - 1 }

// least is the exponent of the least normal number, and of the subnormal ones' first bit.
func (f format) least() int { return 1 - f.bias() }

// most is the exponent of the greatest numbers.
func (f format) most() int {
	if f.finite {
		return f.bias() + 1
	}
	return f.bias()
}

// scale returns x times 2 to the power of e, faster than math.Ldexp.
func scale(x float64, e int) float64 {
	if e < -1022 || e > 1023 { // not a normal number
		return math.Ldexp(x, e)
	}
	return x * math.Float64frombits(uint64(e+1023)<<52)
}

// greatest is the greatest finite number.
func (f format) greatest() float64 {
	if f.finite {
		return scale(2-scale(2, -f.fraction), f.most())
	}
	return scale(2-scale(1, -f.fraction), f.most())
}

// ulp is the distance between neighbours at x, a finite number.
func (f format) ulp(x float64) float64 {
	e := f.least()
	if x != 0 {
		_, above := math.Frexp(x)
		e = min(max(e, above-1), f.most())
	}
	return scale(1, e-f.fraction)
}

// epsilon is the distance from 1 to the next number.
func (f format) epsilon() float64 { return scale(1, -f.fraction) }

// round returns the number of the format nearest to x, ties to even: an infinity if it is beyond the greatest, or NaN
// where there is none.
func (f format) round(x float64) float64 {
	if x == 0 || math.IsNaN(x) {
		return x
	}
	y := x
	if !math.IsInf(x, 0) && f.fraction < 52 {
		// Exact but for the rounding: a power of two scales, and 52 bits and less divide without a rest.
		e := f.least()
		if _, above := math.Frexp(x); above-1 > e {
			e = above - 1
		}
		y = scale(math.RoundToEven(scale(x, f.fraction-e)), e-f.fraction)
		if y == 0 {
			y = math.Copysign(0, x)
		}
	}
	switch {
	case math.Abs(y) <= f.greatest():
		return y
	case f.finite:
		return math.NaN()
	}
	return math.Inf(int(math.Copysign(1, x)))
}

// decode returns the number with these bits.
func (f format) decode(bits uint64) float64 {
	sign := 1.0
	if bits>>(f.exponent+f.fraction)&1 == 1 {
		sign = -1
	}
	exponent, fraction := int(bits>>f.fraction)&(1<<f.exponent-1), bits&(1<<f.fraction-1)
	last := exponent == 1<<f.exponent-1
	switch {
	case last && !f.finite && fraction == 0:
		return math.Inf(int(sign))
	case last && !f.finite, last && fraction == 1<<f.fraction-1:
		return math.NaN()
	case exponent == 0:
		return sign * scale(float64(fraction), f.least()-f.fraction)
	}
	return sign * scale(float64(fraction|1<<f.fraction), exponent-f.bias()-f.fraction)
}

// encode returns the bits of x rounded to the format.
func (f format) encode(x float64) uint64 {
	x = f.round(x)
	var sign uint64
	if math.Signbit(x) && !math.IsNaN(x) {
		sign = 1 << (f.exponent + f.fraction)
	}
	ones := uint64(1<<f.exponent-1) << f.fraction
	x = math.Abs(x)
	switch {
	case math.IsNaN(x) && f.finite:
		return sign | ones | (1<<f.fraction - 1)
	case math.IsNaN(x):
		return sign | ones | 1<<(f.fraction-1)
	case math.IsInf(x, 0):
		return sign | ones
	case x < scale(1, f.least()):
		return sign | uint64(scale(x, f.fraction-f.least()))
	}
	fraction, exponent := math.Frexp(x)
	return sign | uint64(exponent-1+f.bias())<<f.fraction | uint64(scale(fraction, f.fraction+1))&(1<<f.fraction-1)
}

// bits returns the bytes of an element of at most 64 bits as a number.
func bits(b []byte) uint64 {
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:])
}

func putBits(b []byte, v uint64) {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], v)
	copy(b, all[:])
}

// float reads an element of a float type.
func float(d dtype.DType, b []byte) float64 { return formats[d].decode(bits(b)) }

// putFloat writes x, rounded, as an element of a float type.
func putFloat(d dtype.DType, b []byte, x float64) { putBits(b, formats[d].encode(x)) }

// integer reads an element of an integer type or Bool: of Uint64, the same bits.
func integer(d dtype.DType, b []byte) int64 { return wrap(d, int64(bits(b))) }

// wrap returns v as it is once stored in an integer type.
func wrap(d dtype.DType, v int64) int64 {
	unused := 64 - 8*d.Size()
	if d.Kind() == dtype.KindSigned {
		return v << unused >> unused
	}
	return int64(uint64(v) << unused >> unused)
}

// less compares two integers as d's are.
func less(d dtype.DType, a, b int64) bool {
	if d.Kind() == dtype.KindSigned {
		return a < b
	}
	return uint64(a) < uint64(b)
}

// text shows an element for a message.
func text(d dtype.DType, b []byte) string {
	switch {
	case d.IsFloat():
		return fmt.Sprintf("%v (bits %#0*x)", float(d, b), 2+2*d.Size(), bits(b))
	case d.IsComplex():
		part := dtype.Float32
		if d == dtype.Complex128 {
			part = dtype.Float64
		}
		return fmt.Sprintf("(%v, %v) (bits %x)", float(part, b[:len(b)/2]), float(part, b[len(b)/2:]), b)
	case d == dtype.Uint64:
		return fmt.Sprint(bits(b))
	}
	return fmt.Sprint(integer(d, b))
}

// Sets of types, as op.go names them.
var (
	integerTypes = []dtype.DType{
		dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64, dtype.Uint8, dtype.Uint16, dtype.Uint32, dtype.Uint64,
	}
	floatTypes    = []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64}
	numberTypes   = append(append([]dtype.DType{}, integerTypes...), floatTypes...)
	allTypes      = append([]dtype.DType{dtype.Bool}, numberTypes...)
	integralTypes = append([]dtype.DType{dtype.Bool}, integerTypes...)
)
