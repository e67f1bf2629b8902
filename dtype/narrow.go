package dtype

import "math"

// The bits of a float32 and of the formats narrower than it.
const (
	signBit  = 1 << 31
	infinity = 0xff << 23       // of float32
	quietNaN = infinity | 1<<22 // the one that every conversion makes, but for the sign
)

// ToF16 rounds x to the nearest binary16, ties to even. A number that rounds beyond 65504 becomes an infinity.
func ToF16(x float32) F16 {
	b := math.Float32bits(x)
	// Normal results from 2^-14 to below 2^16: the exponent's bias goes from 127 to 15, and adding just under half of
	// the last place kept, or half if that place is odd, carries where rounding goes up, into the exponent if need be.
	if a := b &^ signBit; a-0x38800000 < 0x47800000-0x38800000 {
		return F16(b>>16&0x8000 | (a-112<<23+0xfff+a>>13&1)>>13)
	}
	return f16Edge(b)
}

// f16Edge is ToF16 for results that are not normal numbers.
func f16Edge(b uint32) F16 {
	sign, a := F16(b>>16&0x8000), b&^signBit
	switch {
	case a > infinity:
		return sign | 0x7e00
	case a >= 0x47800000:
		return sign | 0x7c00
	}
	return sign | F16(subnormal(a, 0x3f000000))
}

// subnormal returns the float32 with the bits a as a multiple of unit, to nearest, ties to even: the last place of the
// float32 with the bits magic is that unit, so that the sum is rounded to it.
func subnormal(a, magic uint32) uint32 {
	return math.Float32bits(math.Float32frombits(a)+math.Float32frombits(magic)) - magic
}

// Float32 returns the same number as a float32.
func (h F16) Float32() float32 {
	sign, a := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	if a-0x400 < 0x7c00-0x400 {
		return math.Float32frombits(sign | (a<<13 + 112<<23))
	}
	return f16Rest(sign, a)
}

// f16Rest is Float32 for zeros, subnormal numbers, infinities and NaNs.
func f16Rest(sign, a uint32) float32 {
	switch {
	case a > 0x7c00:
		return math.Float32frombits(sign | quietNaN)
	case a == 0x7c00:
		return math.Float32frombits(sign | infinity)
	}
	return math.Float32frombits(sign | math.Float32bits(float32(a)*0x1p-24))
}

// ToBF16 rounds x to the nearest bfloat16, ties to even. A number that rounds beyond the largest becomes an infinity.
func ToBF16(x float32) BF16 {
	b := math.Float32bits(x)
	if b&^signBit > infinity {
		return BF16(b>>16&0x8000 | quietNaN>>16)
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 returns the same number as a float32.
func (h BF16) Float32() float32 {
	b := uint32(h) << 16
	if b&^signBit > infinity {
		b = b&signBit | quietNaN
	}
	return math.Float32frombits(b)
}

// ToF8E5M2 rounds x to the nearest F8E5M2, ties to even. A number that rounds beyond 57344 becomes an infinity.
func ToF8E5M2(x float32) F8E5M2 {
	b := math.Float32bits(x)
	sign, a := F8E5M2(b>>24&0x80), b&^signBit
	switch {
	case a > infinity:
		return sign | 0x7f
	case a >= 0x47800000: // 2^16
		return sign | 0x7c
	case a >= 0x38800000: // 2^-14
		return sign | F8E5M2((a-112<<23+0xfffff+a>>21&1)>>21)
	}
	return sign | F8E5M2(subnormal(a, 0x43000000)) // 128, whose last place is 2^-16
}

// Float32 returns the same number as a float32.
func (h F8E5M2) Float32() float32 { return wideE5M2[h] }

// ToF8E4M3FN rounds x to the nearest F8E4M3FN, ties to even. A number that rounds beyond 448, or an infinity, becomes
// NaN, as in PyTorch; other libraries saturate.
func ToF8E4M3FN(x float32) F8E4M3FN {
	b := math.Float32bits(x)
	sign, a := F8E4M3FN(b>>24&0x80), b&^signBit
	switch {
	case a >= 0x43f00000: // 480, which the format would have if it were no NaN
		return sign | 0x7f
	case a >= 0x3c800000: // 2^-6
		return sign | F8E4M3FN((a-120<<23+0x7ffff+a>>20&1)>>20)
	}
	return sign | F8E4M3FN(subnormal(a, 0x46800000)) // 2^14, whose last place is 2^-9
}

// Float32 returns the same number as a float32.
func (h F8E4M3FN) Float32() float32 { return wideE4M3[h] }

// All numbers of the 8-bit formats.
var wideE5M2, wideE4M3 = func() (e5m2, e4m3 [256]float32) {
	for i := range 256 {
		e5m2[i] = F16(i << 8).Float32() // the upper half of a binary16
		sign, exponent, fraction := uint32(i>>7)<<31, i>>3&15, i&7
		x := math.Ldexp(float64(fraction), -9)
		if exponent > 0 {
			x = math.Ldexp(float64(8+fraction), exponent-10)
		}
		e4m3[i] = math.Float32frombits(sign | math.Float32bits(float32(x)))
		if i&0x7f == 0x7f {
			e4m3[i] = math.Float32frombits(sign | quietNaN)
		}
	}
	return e5m2, e4m3
}()

// F16FromFloat64 rounds x once, to nearest, ties to even. PyTorch rounds it to float32 first, and so twice.
func F16FromFloat64(x float64) F16 { return ToF16(odd(x)) }

// BF16FromFloat64 rounds x once, to nearest, ties to even. PyTorch rounds it to float32 first, and so twice.
func BF16FromFloat64(x float64) BF16 { return ToBF16(odd(x)) }

// F8E5M2FromFloat64 rounds x once, to nearest, ties to even. PyTorch rounds it to float32 first, and so twice.
func F8E5M2FromFloat64(x float64) F8E5M2 { return ToF8E5M2(odd(x)) }

// F8E4M3FNFromFloat64 rounds x once, to nearest, ties to even. PyTorch rounds it to float32 first, and so twice.
func F8E4M3FNFromFloat64(x float64) F8E4M3FN { return ToF8E4M3FN(odd(x)) }

// odd returns x as a float32 if that is exact, and otherwise the one of its two neighbours whose last bit is 1. The
// last bit thus records that bits were cut off, and another rounding, to at least two bits fewer, has the same result
// as rounding x itself (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
// rounding to odd", IEEE Transactions on Computers, 2008).
func odd(x float64) float32 {
	y := narrow(x)
	if wide := float64(y); wide != x && x == x {
		b := math.Float32bits(y)
		if math.Abs(wide) > math.Abs(x) {
			b-- // also from infinity to the greatest number, which is odd
		}
		y = math.Float32frombits(b | 1)
	}
	return y
}

// oddInt64 is odd of an integer.
func oddInt64(v int64) float32 { return odd(stickyInt64(v)) }

// oddUint64 is odd of an integer.
func oddUint64(v uint64) float32 { return odd(stickyUint64(v)) }

// nearInt64 is float32(v), rounded once; on 32-bit x86 Go rounds to float64 first.
func nearInt64(v int64) float32 { return float32(stickyInt64(v)) }

// nearUint64 is float32(v), rounded once; on 32-bit x86 Go rounds to float64 first.
func nearUint64(v uint64) float32 { return float32(stickyUint64(v)) }

// stickyInt64 returns v, or if a float64 cannot represent it, v with a last bit that records the bits cut off. Rounded
// to less than 52 bits the result is the same as for v.
func stickyInt64(v int64) float64 {
	if v > 1<<53 || v < -1<<53 {
		v = withStickyBit(v)
	}
	return float64(v)
}

// stickyUint64 is stickyInt64 for unsigned integers.
func stickyUint64(v uint64) float64 {
	if v > 1<<53 {
		v = withStickyBit(v)
	}
	return float64(v)
}

// withStickyBit clears the 11 lowest bits and sets the next one if any of them was 1. A float64 represents the result
// exactly.
func withStickyBit[I int64 | uint64](v I) I {
	if v&0x7ff != 0 {
		v |= 0x800
	}
	return v &^ 0x7ff
}
