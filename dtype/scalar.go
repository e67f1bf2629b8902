package dtype

import (
	"fmt"
	"reflect"
)

// A Scalar is one number of any type, kept exactly: an integer as an integer, others as float64 or complex128. The zero
// value is the integer 0. Of a NaN of less than 64 bits only the sign is kept. Scalars of different kinds are not equal
// by ==.
type Scalar struct {
	kind Kind // KindInvalid and KindSigned: bits is an int64; KindUnsigned: a uint64; KindBool: 0 or 1
	bits uint64
	re   float64
	im   float64
}

// ScalarOf returns v as ToScalar does, and panics if v is not a number.
func ScalarOf(v any) Scalar {
	s, ok := ToScalar(v)
	if !ok {
		panic(fmt.Sprintf("dtype: ScalarOf: %T is no number", v))
	}
	return s
}

// ToScalar converts v, which may be a bool, a number of any Go type, a Scalar, an F16, BF16, F8E5M2 or F8E4M3FN, or of
// a type defined from a plain type (type celsius float32). It is not ok if v is anything else.
func ToScalar(v any) (s Scalar, ok bool) {
	if s, ok := plain(v); ok {
		return s, true
	}
	r := reflect.ValueOf(v)
	if d, ok := ofKind[r.Kind()]; ok {
		return plain(r.Convert(goTypes[d]).Interface())
	}
	switch {
	case r.CanInt():
		return signed(r.Int()), true
	case r.CanUint():
		return unsigned(r.Uint()), true
	}
	return Scalar{}, false
}

// plain is ToScalar for types that are not defined from others.
func plain(v any) (s Scalar, ok bool) {
	switch v := v.(type) {
	case Scalar:
		return v, true
	case bool:
		s := Scalar{kind: KindBool}
		if v {
			s.bits = 1
		}
		return s, true
	case int:
		return signed(int64(v)), true
	case int8:
		return signed(int64(v)), true
	case int16:
		return signed(int64(v)), true
	case int32:
		return signed(int64(v)), true
	case int64:
		return signed(v), true
	case uint:
		return unsigned(uint64(v)), true
	case uint8:
		return unsigned(uint64(v)), true
	case uint16:
		return unsigned(uint64(v)), true
	case uint32:
		return unsigned(uint64(v)), true
	case uint64:
		return unsigned(v), true
	case float32:
		return real32(v), true
	case float64:
		return Scalar{kind: KindFloat, re: v}, true
	case complex64:
		return Scalar{kind: KindComplex, re: widen(real(v)), im: widen(imag(v))}, true
	case complex128:
		return Scalar{kind: KindComplex, re: real(v), im: imag(v)}, true
	case F16:
		return real32(v.Float32()), true
	case BF16:
		return real32(v.Float32()), true
	case F8E5M2:
		return real32(v.Float32()), true
	case F8E4M3FN:
		return real32(v.Float32()), true
	}
	return Scalar{}, false
}

func signed(v int64) Scalar { return Scalar{kind: KindSigned, bits: uint64(v)} }

func unsigned(v uint64) Scalar { return Scalar{kind: KindUnsigned, bits: v} }

// Kind returns the class of the number: KindBool, KindSigned or KindUnsigned (by the Go type), KindFloat or
// KindComplex.
func (s Scalar) Kind() Kind {
	if s.kind == KindInvalid {
		return KindSigned
	}
	return s.kind
}
