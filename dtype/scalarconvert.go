package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

var order = binary.NativeEndian

// Load returns the first element of b. It panics if b has fewer than d.Size() bytes.
func (d DType) Load(b []byte) Scalar {
	switch d {
	case Bool:
		return ScalarOf(b[0] != 0)
	case Int8:
		return signed(int64(int8(b[0])))
	case Int16:
		return signed(int64(int16(order.Uint16(b))))
	case Int32:
		return signed(int64(int32(order.Uint32(b))))
	case Int64:
		return signed(int64(order.Uint64(b)))
	case Uint8:
		return unsigned(uint64(b[0]))
	case Uint16:
		return unsigned(uint64(order.Uint16(b)))
	case Uint32:
		return unsigned(uint64(order.Uint32(b)))
	case Uint64:
		return unsigned(order.Uint64(b))
	case Float16:
		return real32(F16(order.Uint16(b)).Float32())
	case Float32:
		return real32(math.Float32frombits(order.Uint32(b)))
	case Float64:
		return Scalar{kind: KindFloat, re: math.Float64frombits(order.Uint64(b))}
	case BFloat16:
		return real32(BF16(order.Uint16(b)).Float32())
	case Complex64:
		re, im := math.Float32frombits(order.Uint32(b)), math.Float32frombits(order.Uint32(b[4:]))
		return Scalar{kind: KindComplex, re: widen(re), im: widen(im)}
	case Complex128:
		re, im := math.Float64frombits(order.Uint64(b)), math.Float64frombits(order.Uint64(b[8:]))
		return Scalar{kind: KindComplex, re: re, im: im}
	case Float8E5M2:
		return real32(F8E5M2(b[0]).Float32())
	case Float8E4M3FN:
		return real32(F8E4M3FN(b[0]).Float32())
	}
	d.check("Load")
	return Scalar{}
}

// Put writes s, converted to type d as by Convert, as the first element of b. It panics if b has fewer than d.Size()
// bytes or d is not valid.
func (s Scalar) Put(b []byte, d DType) {
	switch d {
	case Bool:
		b[0] = 0
		if s.Bool() {
			b[0] = 1
		}
	case Int8:
		b[0] = uint8(toSize[int8](s))
	case Int16:
		order.PutUint16(b, uint16(toSize[int16](s)))
	case Int32:
		order.PutUint32(b, uint32(toSize[int32](s)))
	case Int64:
		order.PutUint64(b, uint64(toSize[int64](s)))
	case Uint8:
		b[0] = toSize[uint8](s)
	case Uint16:
		order.PutUint16(b, toSize[uint16](s))
	case Uint32:
		order.PutUint32(b, toSize[uint32](s))
	case Uint64:
		order.PutUint64(b, toSize[uint64](s))
	case Float16:
		order.PutUint16(b, uint16(ToF16(s.odd())))
	case Float32:
		order.PutUint32(b, math.Float32bits(s.float32()))
	case Float64:
		order.PutUint64(b, math.Float64bits(s.Float64()))
	case BFloat16:
		order.PutUint16(b, uint16(ToBF16(s.odd())))
	case Complex64:
		_ = b[7]
		order.PutUint32(b, math.Float32bits(s.float32()))
		order.PutUint32(b[4:], math.Float32bits(narrow(s.im)))
	case Complex128:
		_ = b[15]
		order.PutUint64(b, math.Float64bits(s.Float64()))
		order.PutUint64(b[8:], math.Float64bits(s.im))
	case Float8E5M2:
		b[0] = uint8(ToF8E5M2(s.odd()))
	case Float8E4M3FN:
		b[0] = uint8(ToF8E4M3FN(s.odd()))
	default:
		d.check("Put")
	}
}

// Convert returns s as an element of d: the result of Load after Put.
func (s Scalar) Convert(d DType) Scalar {
	var b [16]byte
	s.Put(b[:], d)
	return d.Load(b[:])
}

// Bool reports whether s is nonzero; NaN is.
func (s Scalar) Bool() bool { return s.bits != 0 || s.re != 0 || s.im != 0 }

// Int64 converts s to Int64: integers wrap, floats are truncated and saturate, NaN is 0.
func (s Scalar) Int64() int64 { return toSize[int64](s) }

// Uint64 converts s to Uint64: integers wrap, floats are truncated and saturate, NaN is 0.
func (s Scalar) Uint64() uint64 { return toSize[uint64](s) }

// Float64 returns s, or its real part if it is complex. Integers are rounded to nearest, ties to even.
func (s Scalar) Float64() float64 {
	switch s.Kind() {
	case KindSigned:
		return float64(int64(s.bits))
	case KindFloat, KindComplex:
		return s.re
	}
	return float64(s.bits)
}

// Complex128 returns s. Integers are rounded to nearest, ties to even.
func (s Scalar) Complex128() complex128 { return complex(s.Float64(), s.im) }

// String returns the number in Go's notation: "true", "-1", "0.5", "NaN", "+Inf", "(1+2i)".
func (s Scalar) String() string {
	switch s.Kind() {
	case KindBool:
		return strconv.FormatBool(s.Bool())
	case KindSigned:
		return strconv.FormatInt(int64(s.bits), 10)
	case KindUnsigned:
		return strconv.FormatUint(s.bits, 10)
	case KindFloat:
		return strconv.FormatFloat(s.re, 'g', -1, 64)
	}
	return fmt.Sprint(s.Complex128())
}

// toSize returns s as an integer of type I.
func toSize[I integer](s Scalar) I {
	if s.Kind() >= KindFloat {
		return toInteger[I](s.re)
	}
	return I(s.bits)
}

// float32 returns s, or its real part, rounded once.
func (s Scalar) float32() float32 {
	switch s.Kind() {
	case KindSigned:
		return nearInt64(int64(s.bits))
	case KindFloat, KindComplex:
		return narrow(s.re)
	}
	return nearUint64(s.bits)
}

// odd returns s, or its real part, rounded to odd.
func (s Scalar) odd() float32 {
	switch s.Kind() {
	case KindSigned:
		return oddInt64(int64(s.bits))
	case KindFloat, KindComplex:
		return odd(s.re)
	}
	return oddUint64(s.bits)
}

func real32(x float32) Scalar { return Scalar{kind: KindFloat, re: widen(x)} }
