package backendtest

import (
	"math"

	"github.com/ashlar-go/ashlar/dtype"
)

// quiet is the bits of the NaN that conversions make, but for the sign.
var quiet = map[dtype.DType]uint64{
	dtype.Float16: 0x7e00, dtype.BFloat16: 0x7fc0, dtype.Float8E5M2: 0x7f, dtype.Float8E4M3FN: 0x7f,
	dtype.Float32: 0x7fc00000, dtype.Float64: 0x7ff8000000000000,
}

// convert returns an element of one type as one of another, by the rules of dtype.Convert.
func convert(to, from dtype.DType, b []byte) []byte {
	out := make([]byte, to.Size())
	half := len(b) / 2
	switch {
	case to == from:
		copy(out, b)
	case from.IsComplex() && to.IsComplex():
		copy(out, convert(realPart(to), realPart(from), b[:half]))
		copy(out[to.Size()/2:], convert(realPart(to), realPart(from), b[half:]))
	case to == dtype.Bool:
		zero := true
		switch {
		case from.IsComplex():
			zero = float(realPart(from), b[:half]) == 0 && float(realPart(from), b[half:]) == 0
		case from.IsFloat():
			zero = float(from, b) == 0
		default:
			zero = bits(b) == 0
		}
		out[0] = byte(truth(!zero))
	case from.IsComplex():
		copy(out, convert(to, realPart(from), b[:half]))
	case to.IsComplex():
		copy(out, convert(realPart(to), from, b))
	case from.IsFloat() && to.IsFloat():
		x := float(from, b)
		putFloat(to, out, x)
		if v := float(to, out); math.IsNaN(v) {
			putBits(out, quiet[to]|bits(b)>>(8*from.Size()-1)<<(8*to.Size()-1)) // the sign is x's, NaN or too great
		}
	case from.IsFloat():
		putBits(out, truncated(to, float(from, b)))
	case to.IsFloat():
		putBits(out, fromInteger(to, from, integer(from, b)))
	default:
		putBits(out, uint64(integer(from, b)))
	}
	return out
}

// truncated returns the bits of x as an integer: cut off, the least or the greatest if it is beyond them, 0 for NaN.
func truncated(d dtype.DType, x float64) uint64 {
	width := 8 * d.Size()
	x = math.Trunc(x)
	switch {
	case math.IsNaN(x):
		return 0
	case d.Kind() == dtype.KindUnsigned && x <= 0:
		return 0
	case d.Kind() == dtype.KindUnsigned && x >= math.Ldexp(1, width):
		return math.MaxUint64 >> (64 - width)
	case d.Kind() == dtype.KindUnsigned:
		return uint64(x)
	case x < -math.Ldexp(1, width-1):
		return 1 << (width - 1)
	case x >= math.Ldexp(1, width-1):
		return math.MaxInt64 >> (64 - width)
	}
	return uint64(int64(x))
}

// fromInteger returns the bits of v, an element of from, as a float rounded once.
func fromInteger(to, from dtype.DType, v int64) uint64 {
	negative := from.Kind() == dtype.KindSigned && v < 0
	u := uint64(v)
	if negative {
		u = -u
	}
	f := formats[to]
	// Rounding to f.fraction+1 bits, by hand: up if what is cut off is more than half, or half and the rest is odd.
	shift := 0
	for u>>shift >= 1<<(f.fraction+1) {
		shift++
	}
	kept, cut := u>>shift, u&(1<<shift-1)
	if half := uint64(1) << shift >> 1; shift > 0 && (cut > half || cut == half && kept&1 == 1) {
		kept++
	}
	x := math.Ldexp(float64(kept), shift)
	result := f.encode(x)
	if math.IsNaN(f.decode(result)) {
		result = quiet[to]
	}
	if negative {
		result |= 1 << (8*to.Size() - 1)
	}
	return result
}
