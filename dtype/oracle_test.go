package dtype_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"sort"

	"github.com/ashlar-go/ashlar/dtype"
)

// The oracle: what Convert's comment says, computed from exact values by enumeration and comparison, without the tricks of
// the package. It is for little-endian machines.

// A format is a binary floating-point format, by its parameters.
type format struct {
	exponent, fraction int  // bits
	finite             bool // no infinities: the greatest exponent is of numbers too, and one NaN
	values             []float64
}

func newFormat(exponent, fraction int, finite bool) *format {
	f := &format{exponent: exponent, fraction: fraction, finite: finite}
	for code := 0; !math.IsInf(f.value(code), 0) && !math.IsNaN(f.value(code)); code++ {
		f.values = append(f.values, f.value(code))
	}
	return f
}

var formats = map[dtype.DType]*format{
	dtype.Float16: newFormat(5, 10, false), dtype.BFloat16: newFormat(8, 7, false),
	dtype.Float8E5M2: newFormat(5, 2, false), dtype.Float8E4M3FN: newFormat(4, 3, true),
}

// value is the definition of the format: the number of a code without its sign.
func (f *format) value(code int) float64 {
	e, m := code>>f.fraction, code&(1<<f.fraction-1)
	bias, last := 1<<(f.exponent-1)-1, 1<<f.exponent-1
	switch {
	case f.finite && code == 1<<(f.exponent+f.fraction)-1, !f.finite && e == last && m != 0:
		return math.NaN()
	case !f.finite && e == last:
		return math.Inf(1)
	case e == 0:
		return math.Ldexp(float64(m), 1-bias-f.fraction)
	}
	return math.Ldexp(float64(m+1<<f.fraction), e-bias-f.fraction)
}

func (f *format) sign() int { return 1 << (f.exponent + f.fraction) }

// decode is value with the sign.
func (f *format) decode(code int) float64 {
	x := f.value(code &^ f.sign())
	if code&f.sign() != 0 {
		return math.Copysign(x, -1)
	}
	return x
}

// midpoint is what lies between a code and the next, which may be one beyond the greatest: a float64 too.
func (f *format) midpoint(code int) float64 {
	next := 2*f.values[code] - f.values[max(code-1, 0)]
	if code+1 < len(f.values) {
		next = f.values[code+1]
	}
	return f.values[code]/2 + next/2
}

// encode searches the nearest code of a number, given by its comparison with others, and its sign.
func (f *format) encode(negative bool, compare func(y float64) int) int {
	// The first code whose midpoint to the next is not below the number.
	code := sort.Search(len(f.values), func(i int) bool { return compare(f.midpoint(i)) <= 0 })
	if code < len(f.values) && compare(f.midpoint(code)) == 0 && code%2 == 1 {
		code++ // a tie, and the next is even
	}
	if code >= len(f.values) {
		code = len(f.values) // infinity, or the NaN of a finite format
		if f.finite {
			code = f.nan()
		}
	}
	if negative {
		code |= f.sign()
	}
	return code
}

// nan is the quiet NaN without payload: the greatest bit of the fraction alone, or all bits where PyTorch has them.
func (f *format) nan() int {
	if f.exponent+f.fraction == 7 {
		return 0x7f
	}
	return 1<<(f.exponent+f.fraction) - 1<<(f.fraction-1)
}

// A number is what elements stand for: an integer, or two floats.
type number struct {
	n      *big.Int // or nil
	re, im float64
}

func decode(d dtype.DType, b []byte) number {
	var u uint64
	for i := range min(d.Size(), 8) {
		u |= uint64(b[i]) << (8 * i)
	}
	bits := 8 * d.Size()
	float := func(b []byte) float64 { return wide(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	switch {
	case d == dtype.Bool:
		return number{n: big.NewInt(int64(u))}
	case d.Kind() == dtype.KindUnsigned:
		return number{n: new(big.Int).SetUint64(u)}
	case d.Kind() == dtype.KindSigned:
		return number{n: big.NewInt(int64(u<<(64-bits)) >> (64 - bits))}
	case d == dtype.Float32:
		return number{re: float(b)}
	case d == dtype.Float64:
		return number{re: math.Float64frombits(u)}
	case d == dtype.Complex64:
		return number{re: float(b), im: float(b[4:])}
	case d == dtype.Complex128:
		return number{re: math.Float64frombits(u), im: math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))}
	}
	return number{re: formats[d].decode(int(u))}
}

// wide is float64(x), in which a NaN keeps its sign and nothing else.
func wide(x float32) float64 {
	if x == x {
		return float64(x)
	}
	return math.Copysign(math.NaN(), float64(int32(math.Float32bits(x))|1))
}

// isNegative, because a NaN has a sign too.
func (x number) isNegative() bool {
	return x.n != nil && x.n.Sign() < 0 || x.n == nil && math.Signbit(x.re)
}

// encode appends the element of d that x becomes, as the comment of Convert has it.
func encode(out []byte, d dtype.DType, x number) []byte {
	put := func(u uint64, size int) {
		for i := range size {
			out = append(out, byte(u>>(8*i)))
		}
	}
	nan32 := func(x float64, y float32) uint64 {
		if math.IsNaN(x) {
			return uint64(math.Float64bits(x)>>63<<31 | 0x7fc00000)
		}
		return uint64(math.Float32bits(y))
	}
	float32bits := func() uint64 {
		if x.n == nil {
			return nan32(x.re, float32(x.re))
		}
		y, _ := new(big.Float).SetInt(x.n).Float32()
		return uint64(math.Float32bits(y))
	}
	float64bits := func(y float64) uint64 {
		if math.IsNaN(y) {
			return math.Float64bits(y)>>63<<63 | 0x7ff8<<48
		}
		return math.Float64bits(y)
	}
	re64 := func() uint64 {
		if x.n == nil {
			return float64bits(x.re)
		}
		y, _ := new(big.Float).SetInt(x.n).Float64()
		return math.Float64bits(y)
	}
	switch {
	case d == dtype.Bool:
		if x.n != nil && x.n.Sign() != 0 || x.n == nil && (x.re != 0 || x.im != 0) {
			return append(out, 1)
		}
		return append(out, 0)
	case d.IsInteger():
		put(wrapOrSaturate(d, x), d.Size())
	case d == dtype.Float32:
		put(float32bits(), 4)
	case d == dtype.Complex64:
		put(float32bits(), 4)
		put(nan32(x.im, float32(x.im)), 4)
	case d == dtype.Float64:
		put(re64(), 8)
	case d == dtype.Complex128:
		put(re64(), 8)
		put(float64bits(x.im), 8)
	default:
		put(uint64(nearest(formats[d], x)), d.Size())
	}
	return out
}

func nearest(f *format, x number) int {
	if x.n == nil && math.IsNaN(x.re) {
		if x.isNegative() {
			return f.nan() | f.sign()
		}
		return f.nan()
	}
	if x.n != nil && x.n.BitLen() > 53 {
		exact := new(big.Float).SetInt(new(big.Int).Abs(x.n))
		return f.encode(x.isNegative(), func(y float64) int { return exact.Cmp(big.NewFloat(y)) })
	}
	exact := math.Abs(x.re)
	if x.n != nil {
		exact = math.Abs(float64(x.n.Int64()))
	}
	return f.encode(x.isNegative(), func(y float64) int {
		switch {
		case exact < y:
			return -1
		case exact > y:
			return 1
		}
		return 0
	})
}

func wrapOrSaturate(d dtype.DType, x number) uint64 {
	bits := uint(8 * d.Size())
	n := x.n
	if n == nil {
		least, beyond := new(big.Int), new(big.Int).Lsh(big.NewInt(1), bits)
		if d.Kind() == dtype.KindSigned {
			beyond.Rsh(beyond, 1)
			least.Neg(beyond)
		}
		greatest := new(big.Int).Sub(beyond, big.NewInt(1))
		switch {
		case math.IsNaN(x.re):
			n = new(big.Int)
		case math.IsInf(x.re, 1):
			n = greatest
		case math.IsInf(x.re, -1):
			n = least
		default:
			n, _ = big.NewFloat(x.re).Int(nil)
			if n.Cmp(least) < 0 {
				n = least
			} else if n.Cmp(greatest) > 0 {
				n = greatest
			}
		}
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), bits)
	return new(big.Int).Mod(n, modulus).Uint64()
}
