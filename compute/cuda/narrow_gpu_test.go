//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// An oracle is a function of kernels/narrow.cuh in double precision, and how far off it may be besides by rounding:
// relative to x below 0, and in units of 2^-126, below which the device's approximations are 0.
type oracle struct {
	op           backend.UnaryOp
	f            func(x float64) float64
	below0, tiny float64
}

func oracles() []oracle {
	gelu := func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 }
	logistic := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	return []oracle{
		{backend.Tanh, math.Tanh, 0, 0},
		{backend.Erf, math.Erf, 0, 0},
		{backend.Sigmoid, logistic, 0, 2},
		{backend.Silu, func(x float64) float64 { return x * logistic(x) }, 0, 200},
		{backend.Gelu, gelu, 0x1p-20, 2},
		{backend.GeluTanh, func(x float64) float64 {
			return x * logistic(2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))
		}, 0x1p-20, 2},
	}
}

// Functions with formulas for types of 16 bits are within 0.504 units in the last place of what they should be, for all
// numbers there are: half of one by rounding, and at most 2^-8 before.
func TestGPUNarrow(t *testing.T) {
	const all = 1 << 16
	const bound = 0.5 + 0x1p-8
	b := newBench(t)
	numbers := make([]uint16, all)
	for i := range numbers {
		numbers[i] = uint16(i)
	}
	for _, typ := range []struct {
		d               dtype.DType
		fraction, least int
		value           func(bits uint16) float64
	}{
		{dtype.Float16, 10, -14, halfValue},
		{dtype.BFloat16, 7, -126, func(bits uint16) float64 { return float64(math.Float32frombits(uint32(bits) << 16)) }},
	} {
		x, y, spread := b.array(typ.d, all), b.array(typ.d, all), b.array(typ.d, 2*all)
		put(b, x, numbers)
		wide := spread
		spread.Shape, spread.Strides = []int{all}, []int{2} // so that it is not done by vectors
		for _, o := range oracles() {
			testkit.Must(t, b.b.Unary(b.q, o.op, y, x))
			testkit.Must(t, b.b.Unary(b.q, o.op, spread, x))
			vectors, walked := get[uint16](b, y), get[uint16](b, wide)
			worst, at := 0.0, 0.0
			for i, bits := range vectors {
				v, got := typ.value(uint16(i)), typ.value(bits)
				if w := typ.value(walked[2*i]); w != got && !(math.IsNaN(w) && math.IsNaN(got)) {
					t.Errorf("%v of %v %v is %v by vectors and %v by elements", o.op, typ.d, v, got, w)
				}
				want := o.f(v)
				switch {
				case math.IsNaN(v):
					if !math.IsNaN(got) {
						t.Errorf("%v of %v NaN is %v", o.op, typ.d, got)
					}
				case math.IsInf(v, -1) && math.IsNaN(want):
					if !math.IsNaN(got) && got != 0 {
						t.Errorf("%v of %v %v is %v", o.op, typ.d, v, got)
					}
				case v == 0:
					if got != want || math.Signbit(got) != math.Signbit(want) {
						t.Errorf("%v of %v %v is %v, want %v", o.op, typ.d, v, got, want)
					}
				case math.IsInf(want, 0):
					if got != want {
						t.Errorf("%v of %v %v is %v, want %v", o.op, typ.d, v, got, want)
					}
				default:
					_, above := math.Frexp(want)
					unit := math.Ldexp(1, max(above-1, typ.least)-typ.fraction)
					off := math.Abs(got-want) - o.tiny*0x1p-126
					if v < 0 && !math.IsInf(v, 0) {
						off -= o.below0 * -v
					}
					if off/unit > worst {
						worst, at = off/unit, v
					}
					if !(off <= bound*unit) {
						t.Errorf("%v of %v %v is %v, want %v within %v: %.4f units in the last place", o.op, typ.d, v, got, want,
							unit*bound, off/unit)
					}
				}
			}
			t.Logf("%v of %v: %.5f units in the last place off at most, at %v", o.op, typ.d, worst, at)
		}
	}
}

// halfValue is the value of a binary16.
func halfValue(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	v := math.Ldexp(1024+fraction, exponent-25)
	switch {
	case exponent == 0:
		v = math.Ldexp(fraction, -24)
	case exponent == 31 && fraction == 0:
		v = math.Inf(1)
	case exponent == 31:
		return math.NaN()
	}
	if bits>>15 != 0 {
		return -v
	}
	return v
}
