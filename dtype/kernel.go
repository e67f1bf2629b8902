package dtype

import (
	"math"
	"unsafe"
)

// The kernels: each converts as many elements as src has, to a dst as long, in a single step that rounds at most once.

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// cast converts integers to integers, which wrap, and to floats, rounded to nearest, ties to even.
func cast[D integer | float, S integer](dst []D, src []S) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = D(x)
	}
}

// The conversions that cast does not do in one rounding on every machine.

func nearSigned(dst []float32, src []int64) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = nearInt64(x)
	}
}

func nearUnsigned(dst []float32, src []uint64) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = nearUint64(x)
	}
}

// truncate converts floats to integers.
func truncate[D integer, S float](dst []D, src []S) {
	dst = dst[:len(src)]
	least, greatest, low, high := bounds[D, S]()
	for i, x := range src {
		switch {
		case x > low && x < high:
			dst[i] = D(x)
		case x >= high:
			dst[i] = greatest
		case x <= low:
			dst[i] = least
		default:
			dst[i] = 0 // NaN
		}
	}
}

// toInteger is truncate of a single number.
func toInteger[D integer](x float64) D {
	var d [1]D
	truncate(d[:], []float64{x})
	return d[0]
}

// bounds returns the range of D, and the float nearest to the least integer and the one just beyond the greatest, which
// are both powers of two or 0, and so exact.
func bounds[D integer, S float]() (least, greatest D, low, high S) {
	bits := int(unsafe.Sizeof(least)) * 8
	if greatest = ^D(0); greatest > 0 {
		return 0, greatest, 0, S(math.Ldexp(1, bits))
	}
	least = D(1) << (bits - 1)
	high = S(math.Ldexp(1, bits-1))
	return least, ^least, -high, high
}

// nonzero converts anything to Bool.
func nonzero[S integer | float | complex64 | complex128](dst []uint8, src []S) {
	dst = dst[:len(src)]
	for i, x := range src {
		var b uint8
		if x != 0 {
			b = 1
		}
		dst[i] = b
	}
}

// double widens, also the parts of complex numbers.
func double(dst []float64, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = widen(x)
	}
}

func widen(x float32) float64 {
	if x != x {
		return math.Float64frombits(uint64(math.Float32bits(x)&signBit)<<32 | 0x7ff8<<48)
	}
	return float64(x)
}

// single narrows, also the parts of complex numbers.
func single(dst []float32, src []float64) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = narrow(x)
	}
}

func narrow(x float64) float32 {
	if x != x {
		return math.Float32frombits(uint32(math.Float64bits(x)>>32)&signBit | quietNaN)
	}
	return float32(x)
}

// The conversions that prepare numbers for a narrow format: to float32, rounded to odd.

func oddFloats(dst []float32, src []float64) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = odd(x)
	}
}

func oddSigned[S int32 | int64](dst []float32, src []S) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = oddInt64(int64(x))
	}
}

func oddUnsigned[S uint32 | uint64](dst []float32, src []S) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = oddUint64(uint64(x))
	}
}

// The conversions between float32 and the narrow formats.

func toF16s(dst []F16, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		b := math.Float32bits(x)
		// As in ToF16, which is too large to be inlined.
		if a := b &^ signBit; a-0x38800000 < 0x47800000-0x38800000 {
			dst[i] = F16(b>>16&0x8000 | (a-112<<23+0xfff+a>>13&1)>>13)
		} else {
			dst[i] = f16Edge(b)
		}
	}
}

func fromF16s(dst []float32, src []F16) {
	dst = dst[:len(src)]
	for i, h := range src {
		sign, a := uint32(h&0x8000)<<16, uint32(h&0x7fff)
		if a-0x400 < 0x7c00-0x400 {
			dst[i] = math.Float32frombits(sign | (a<<13 + 112<<23))
		} else {
			dst[i] = f16Rest(sign, a)
		}
	}
}

func toBF16s(dst []BF16, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = ToBF16(x)
	}
}

func fromBF16s(dst []float32, src []BF16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = h.Float32()
	}
}

func toE5M2s(dst []F8E5M2, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = ToF8E5M2(x)
	}
}

func fromE5M2s(dst []float32, src []F8E5M2) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = wideE5M2[h]
	}
}

func toE4M3s(dst []F8E4M3FN, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = ToF8E4M3FN(x)
	}
}

func fromE4M3s(dst []float32, src []F8E4M3FN) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = wideE4M3[h]
	}
}

// Complex numbers, seen as twice as many floats, and their real parts: the same bits.

func realParts[F float](dst, src []F) {
	for i := range dst {
		dst[i] = src[2*i]
	}
}

func realOnly[F float](dst, src []F) {
	for i, x := range src {
		dst[2*i], dst[2*i+1] = x, 0
	}
}
