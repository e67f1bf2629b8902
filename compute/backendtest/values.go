package backendtest

import (
	"math"

	"github.com/ashlar-go/ashlar/dtype"
)

// realPart is the float type of a complex type's two parts.
func realPart(d dtype.DType) dtype.DType {
	if d == dtype.Complex64 {
		return dtype.Float32
	}
	return dtype.Float64
}

// anything makes elements of every sort: ordinary numbers, small integers, all magnitudes, any bits, and the edges of
// the type.
func (s *suite) anything(d dtype.DType) maker {
	if d.IsComplex() {
		part := s.anything(realPart(d))
		return func(i int, b []byte) {
			part(i, b[:len(b)/2])
			part(i, b[len(b)/2:])
		}
	}
	edges := edgesOf(d)
	return func(_ int, b []byte) {
		switch {
		case d == dtype.Bool:
			b[0] = byte(s.rng.IntN(2))
		case s.oneIn(8):
			putBits(b, pick(s.rng, edges...))
		case s.oneIn(8):
			putBits(b, s.rng.Uint64())
		case d.IsFloat() && s.oneIn(2):
			putFloat(d, b, s.rng.NormFloat64()*2)
		case d.IsFloat() && s.oneIn(2):
			most := formats[d].most()
			putFloat(d, b, math.Ldexp(s.rng.Float64()-0.5, s.rng.IntN(2*most)-most))
		case d.IsFloat():
			putFloat(d, b, float64(s.rng.IntN(41)-20)/2)
		case s.oneIn(2):
			putBits(b, uint64(s.rng.IntN(25)-8))
		default:
			putBits(b, s.rng.Uint64()>>s.rng.IntN(64))
		}
	}
}

// edgesOf returns the bits of the elements at which something changes.
func edgesOf(d dtype.DType) []uint64 {
	var all []uint64
	if !d.IsFloat() {
		width := 8 * d.Size()
		for _, v := range []int64{
			0, 1, 2, -1, -2, math.MinInt64 >> (64 - width), 1<<(width-1) - 1, int64(width) - 1, int64(width),
			int64(width) + 1,
		} {
			all = append(all, uint64(v))
		}
		return all
	}
	f := formats[d]
	least := math.Ldexp(1, f.least())
	for _, v := range []float64{
		0, math.Ldexp(1, f.least()-f.fraction), least - math.Ldexp(1, f.least()-f.fraction), least, f.greatest(),
		math.Inf(1),
		math.NaN(), 1, 1 + f.epsilon(), 1 - f.epsilon()/2, 0.5, 1.5, 2, 2.5, 3, 4, 16, 127, 128, 255, 256, 32768, 65536,
		1 << 24, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64, math.Pi, math.Pi / 2,
	} {
		all = append(all, f.encode(v), f.encode(-v))
	}
	return all
}

// uniform makes numbers from low to high, rounded to the type.
func (s *suite) uniform(d dtype.DType, low, high float64) maker {
	return func(_ int, b []byte) {
		x := low + s.rng.Float64()*(high-low)
		switch {
		case d.IsFloat():
			putFloat(d, b, x)
		case d == dtype.Bool:
			b[0] = byte(truth(x > (low+high)/2))
		default:
			putBits(b, uint64(int64(math.Floor(x))))
		}
	}
}

// fromBits makes the elements with these bits, in turn.
func fromBits(all []uint64) maker {
	return func(i int, b []byte) { putBits(b, all[i%len(all)]) }
}

// floats makes these numbers, in turn.
func floats(d dtype.DType, all ...float64) maker {
	return func(i int, b []byte) { putFloat(d, b, all[i%len(all)]) }
}

// whole makes these integers, in turn.
func whole(all ...int64) maker {
	return func(i int, b []byte) { putBits(b, uint64(all[i%len(all)])) }
}
