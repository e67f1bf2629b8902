package backendtest

import (
	"fmt"
	"math"
	"math/big"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// philox is Philox4x32-10 as its paper defines it, on words of 32 bits.
func philox(counter [4]uint64, key [2]uint64) [4]uint64 {
	const word = math.MaxUint32
	for range 10 {
		left, right := 0xD2511F53*counter[0], 0xCD9E8D57*counter[2]
		counter = [4]uint64{right>>32 ^ counter[1] ^ key[0], right & word, left>>32 ^ counter[3] ^ key[1], left & word}
		key[0], key[1] = (key[0]+0x9E3779B9)&word, (key[1]+0xBB67AE85)&word
	}
	return counter
}

// draw returns the 64 random bits of element i.
func draw(r backend.Random, i int) uint64 {
	at := r.Offset + uint64(i)
	w := philox([4]uint64{at & math.MaxUint32, at >> 32}, [2]uint64{r.Seed & math.MaxUint32, r.Seed >> 32})
	return w[0] | w[1]<<32
}

func checkRandom(s *suite) {
	offsets := []uint64{0, 1, 12345, 1<<32 - 100, math.MaxUint64 - 300, s.rng.Uint64()}
	for _, d := range floatTypes {
		for _, distribution := range []backend.Distribution{backend.Uniform, backend.Normal} {
			for round := range 3*s.rounds + 3 {
				r := backend.Random{Distribution: distribution, Seed: s.rng.Uint64(), Offset: pick(s.rng, offsets...)}
				switch {
				case round == 0:
					r.High = 1
				case distribution == backend.Normal:
					r.Low, r.High = s.rng.NormFloat64(), s.rng.ExpFloat64()
				case round == 1: // much is rounded up to the end
					r.Low, r.High = 1, 1+2*formats[d].epsilon()
				case round == 2:
					r.Low, r.High = -3, -3
				default:
					r.Low = s.rng.NormFloat64() * 10
					r.High = r.Low + s.rng.ExpFloat64()*10
				}
				t := s.trial("random %v of %v", map[backend.Distribution]string{
					backend.Uniform: "uniform", backend.Normal: "normal",
				}[distribution], d)
				t.note = describeRandom(r)
				dst := t.output("dst", d, s.shape(1500), near(d, func(i int) answer { return randomFloat(d, r, i) }))
				t.call(func(q backend.Queue) error { return s.rig.Backend.Random(q, dst.array, r) })
			}
		}
	}
	for _, d := range integralTypes {
		for range 2 * (s.rounds + 1) {
			r := backend.Random{Distribution: backend.Integers, Seed: s.rng.Uint64(), Offset: pick(s.rng, offsets...)}
			width := 8 * d.Size()
			switch least := math.MinInt64 >> (64 - width); {
			case d == dtype.Bool:
				r.HighInt = 2
			case d.Kind() == dtype.KindUnsigned:
				r.HighInt = 1 + s.rng.Int64()>>(64-min(width, 63))
			case s.oneIn(3): // as far apart as it goes
				r.LowInt = int64(least)
				r.HighInt = -1
			default:
				r.LowInt = int64(least)>>1 + s.rng.Int64N(10)
				r.HighInt = r.LowInt + 1 + s.rng.Int64N(-int64(least/2))
			}
			t := s.trial("random integers of %v", d)
			t.note = describeRandom(r)
			dst := t.output("dst", d, s.shape(1500), integers(d, func(i int) int64 { return randomInteger(r, i) }))
			t.call(func(q backend.Queue) error { return s.rig.Backend.Random(q, dst.array, r) })
		}
	}
}

// randomInteger is element i.
func randomInteger(r backend.Random, i int) int64 {
	span := new(big.Int).SetUint64(uint64(r.HighInt - r.LowInt))
	return r.LowInt + new(big.Int).Rsh(span.Mul(span, new(big.Int).SetUint64(draw(r, i))), 64).Int64()
}

// randomFloat is element i, every operation rounded to a float64 and the result once more.
func randomFloat(d dtype.DType, r backend.Random, i int) answer {
	f, w := formats[d], draw(r, i)
	if r.Distribution == backend.Normal {
		z := backend.NormInv((float64(w>>12) + 0.5) * 0x1p-52)
		return exact(r.Low + float64(r.High*z))
	}
	u := float64(w>>11) * 0x1p-53
	v := f.round(r.Low + float64(u*(r.High-r.Low)))
	if v >= r.High && r.Low < r.High {
		v = f.below(r.High)
	}
	return exact(v)
}

// below is the greatest number of the format that is less than x.
func (f format) below(x float64) float64 {
	v := f.round(x)
	for step := f.ulp(x); v >= x; step /= 2 {
		// From a power of two the next number down is half an ulp away.
		if down := f.round(v - step/2); down < v {
			v = down
		} else {
			v = f.round(v - step)
		}
	}
	return v
}

func describeRandom(r backend.Random) string { return fmt.Sprintf("%+v", r) }
