package dtype

import (
	"fmt"
	"reflect"
)

// A Scalar is one number of any type, kept exactly: an integer as an integer, the rest as float64 or complex128. The zero
// value is the integer 0. A NaN of less than 64 bits keeps its sign alone. What it is as another type, scalarconvert.go
// says; == tells numbers of different kinds apart.
type Scalar struct {
	kind Kind // KindInvalid and KindSigned: bits is an int64; KindUnsigned: a uint64; KindBool: 0 or 1
	bits uint64
	re   float64
	im   float64
}

// ScalarOf returns v, which is a bool, a number of any Go type, a Scalar, or an F16, BF16, F8E5M2 or F8E4M3FN. A type
// defined from one of the plain types (type celsius float32) counts as it. It panics on anything else.
func ScalarOf(v any) Scalar {
	switch v := v.(type) {
	case Scalar:
		return v
	case bool:
		s := Scalar{kind: KindBool}
		if v {
			s.bits = 1
		}
		return s
	case int:
		return signed(int64(v))
	case int8:
		return signed(int64(v))
	case int16:
		return signed(int64(v))
	case int32:
		return signed(int64(v))
	case int64:
		return signed(v)
	case uint:
		return unsigned(uint64(v))
	case uint8:
		return unsigned(uint64(v))
	case uint16:
		return unsigned(uint64(v))
	case uint32:
		return unsigned(uint64(v))
	case uint64:
		return unsigned(v)
	case float32:
		return real32(v)
	case float64:
		return Scalar{kind: KindFloat, re: v}
	case complex64:
		return Scalar{kind: KindComplex, re: widen(real(v)), im: widen(imag(v))}
	case complex128:
		return Scalar{kind: KindComplex, re: real(v), im: imag(v)}
	case F16:
		return real32(v.Float32())
	case BF16:
		return real32(v.Float32())
	case F8E5M2:
		return real32(v.Float32())
	case F8E4M3FN:
		return real32(v.Float32())
	}
	r := reflect.ValueOf(v)
	if d, ok := ofKind[r.Kind()]; ok {
		return ScalarOf(r.Convert(goTypes[d]).Interface())
	}
	if r.CanInt() {
		return signed(r.Int())
	}
	if r.CanUint() {
		return unsigned(r.Uint())
	}
	panic(fmt.Sprintf("dtype: ScalarOf: %T is no number", v))
}

func signed(v int64) Scalar { return Scalar{kind: KindSigned, bits: uint64(v)} }

func unsigned(v uint64) Scalar { return Scalar{kind: KindUnsigned, bits: v} }

// Kind returns what kind of number it is: KindBool, KindSigned or KindUnsigned (as the Go type was), KindFloat or
// KindComplex.
func (s Scalar) Kind() Kind {
	if s.kind == KindInvalid {
		return KindSigned
	}
	return s.kind
}
