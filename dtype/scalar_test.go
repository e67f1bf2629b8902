package dtype_test

import (
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

type (
	celsius float32
	level   int
	address uintptr
)

func TestScalar(t *testing.T) {
	for _, c := range []struct {
		v    any
		kind dtype.Kind
		text string
		i    int64
		u    uint64
		f    float64
		c    complex128
		b    bool
	}{
		{true, dtype.KindBool, "true", 1, 1, 1, 1, true},
		{false, dtype.KindBool, "false", 0, 0, 0, 0, false},
		{-1, dtype.KindSigned, "-1", -1, math.MaxUint64, -1, -1, true},
		{int8(-128), dtype.KindSigned, "-128", -128, math.MaxUint64 - 127, -128, -128, true},
		{int64(math.MinInt64), dtype.KindSigned, "-9223372036854775808", math.MinInt64, 1 << 63, -0x1p63, -0x1p63, true},
		{uint64(math.MaxUint64), dtype.KindUnsigned, "18446744073709551615", -1, math.MaxUint64, 0x1p64, 0x1p64, true},
		{uint8(200), dtype.KindUnsigned, "200", 200, 200, 200, 200, true},
		{0.5, dtype.KindFloat, "0.5", 0, 0, 0.5, 0.5, true},
		{-2.9, dtype.KindFloat, "-2.9", -2, 0, -2.9, -2.9, true},
		{1e30, dtype.KindFloat, "1e+30", math.MaxInt64, math.MaxUint64, 1e30, 1e30, true},
		{math.Inf(-1), dtype.KindFloat, "-Inf", math.MinInt64, 0, math.Inf(-1), complex(math.Inf(-1), 0), true},
		{float32(0.25), dtype.KindFloat, "0.25", 0, 0, 0.25, 0.25, true},
		{dtype.F16(0x3c00), dtype.KindFloat, "1", 1, 1, 1, 1, true},
		{dtype.BF16(0xbf80), dtype.KindFloat, "-1", -1, 0, -1, -1, true},
		{dtype.F8E5M2(0x3c), dtype.KindFloat, "1", 1, 1, 1, 1, true},
		{dtype.F8E4M3FN(0x38), dtype.KindFloat, "1", 1, 1, 1, 1, true},
		{3 + 4i, dtype.KindComplex, "(3+4i)", 3, 3, 3, 3 + 4i, true},
		{complex64(4i), dtype.KindComplex, "(0+4i)", 0, 0, 0, 4i, true},
		{0i, dtype.KindComplex, "(0+0i)", 0, 0, 0, 0, false},
		{celsius(0.5), dtype.KindFloat, "0.5", 0, 0, 0.5, 0.5, true},
		{level(-3), dtype.KindSigned, "-3", -3, math.MaxUint64 - 2, -3, -3, true},
		{address(3), dtype.KindUnsigned, "3", 3, 3, 3, 3, true},
		{dtype.Scalar{}, dtype.KindSigned, "0", 0, 0, 0, 0, false},
	} {
		s := dtype.ScalarOf(c.v)
		if s.Kind() != c.kind || s.String() != c.text || s.Int64() != c.i || s.Uint64() != c.u || s.Float64() != c.f ||
			s.Complex128() != c.c || s.Bool() != c.b {
			t.Errorf("%T %v: kind %d, %q, %d, %d, %v, %v, %v", c.v, c.v, s.Kind(), s, s.Int64(), s.Uint64(), s.Float64(),
				s.Complex128(), s.Bool())
		}
	}
	nan := dtype.ScalarOf(math.NaN())
	if nan.Int64() != 0 || nan.Uint64() != 0 || !nan.Bool() || nan.String() != "NaN" {
		t.Errorf("NaN: %d, %d, %v, %v", nan.Int64(), nan.Uint64(), nan.Bool(), nan)
	}
}

func TestScalarConvert(t *testing.T) {
	for _, c := range []struct {
		v    any
		d    dtype.DType
		want any
	}{
		{300, dtype.Uint8, uint8(44)},
		{300.0, dtype.Uint8, uint8(255)},
		{-1, dtype.Uint64, uint64(math.MaxUint64)},
		{-1.0, dtype.Uint64, uint64(0)},
		{math.NaN(), dtype.Bool, true},
		{2i, dtype.Bool, true},
		{2i, dtype.Float32, float32(0)},
		{0.1, dtype.Float32, float32(0.1)},
		{0.1, dtype.Float64, 0.1},
		{1 + 0x1p-11 + 0x1p-40, dtype.Float16, 1 + 0x1p-10},
		{int64(1<<60 + 1<<49 + 1), dtype.Float16, math.Inf(1)},
		{int64(1<<60 + 1<<52 + 1), dtype.BFloat16, 0x1p60 + 0x1p53},
		{int64(1<<60 + 1<<52), dtype.BFloat16, 0x1p60},
		{uint64(1<<63 + 1<<55 + 1), dtype.BFloat16, 0x1p63 + 0x1p56},
		{1e9, dtype.Float8E4M3FN, nil},
		{true, dtype.Complex64, complex64(1)},
		{-1, dtype.Complex128, complex128(-1)},
	} {
		got := dtype.ScalarOf(c.v).Convert(c.d)
		if c.want == nil {
			if !math.IsNaN(got.Float64()) {
				t.Errorf("%v as %v: %v, want NaN", c.v, c.d, got)
			}
		} else if got != dtype.ScalarOf(c.want) {
			t.Errorf("%v as %v: %v, want %v", c.v, c.d, got, c.want)
		}
		if got.Kind() != c.d.Kind() {
			t.Errorf("%v as %v is of kind %d", c.v, c.d, got.Kind())
		}
	}
}

// The limits are elements themselves, and nothing lies beyond them.
func TestLimits(t *testing.T) {
	for _, d := range dtype.All() {
		l := d.Limits()
		if l.Bits != 8*d.Size() && (!d.IsComplex() || l.Bits != 4*d.Size()) {
			t.Errorf("%v: %d bits", d, l.Bits)
		}
		if d.IsInteger() {
			if l.Min.Convert(d) != l.Min || l.Max.Convert(d) != l.Max || dtype.ScalarOf(-1e30).Convert(d) != l.Min ||
				dtype.ScalarOf(1e30).Convert(d) != l.Max || l.Min.Kind() != d.Kind() {
				t.Errorf("%v: from %v to %v", d, l.Min, l.Max)
			}
			continue
		}
		if d == dtype.Bool {
			if l.Min.Bool() || !l.Max.Bool() {
				t.Errorf("bool: from %v to %v", l.Min, l.Max)
			}
			continue
		}
		as := func(x float64) float64 { return dtype.ScalarOf(x).Convert(d).Float64() }
		greatest := l.Max.Float64()
		if as(greatest) != greatest || as(-greatest) != l.Min.Float64() {
			t.Errorf("%v: %v is no element", d, greatest)
		}
		if next := greatest * (1 + l.Epsilon/2); l.Bits < 64 && !math.IsInf(as(next*1.001), 1) && !math.IsNaN(as(next*1.001)) {
			t.Errorf("%v: %v is finite", d, next)
		}
		if as(1+l.Epsilon) != 1+l.Epsilon || as(1+l.Epsilon/2) != 1 || l.Epsilon != math.Ldexp(1, 1-l.Digits) {
			t.Errorf("%v: epsilon %v", d, l.Epsilon)
		}
		if s := l.SmallestSubnormal; as(s) != s || as(s/2) != 0 || s != l.SmallestNormal*l.Epsilon {
			t.Errorf("%v: smallest number %v", d, s)
		}
		if s := l.SmallestNormal * (1 + l.Epsilon); as(s) != s || as(s/2)*2 == s {
			t.Errorf("%v: smallest normal number %v", d, l.SmallestNormal)
		}
	}
}
