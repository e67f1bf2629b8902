package backendtest

import (
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

func checkFill(s *suite) {
	scalars := []any{
		true, false, 0, -1, 7, 255, 256, 300, -129, math.MaxInt64, math.MinInt64, uint64(math.MaxUint64), 1<<24 + 1,
		1<<53 + 1,
		0.0, math.Copysign(0, -1), 1.0, -2.5, 0.1, 1e-45, 65519.0, 65520.0, 1e300, -1e300, math.Inf(1), math.Inf(-1),
		math.NaN(),
		complex(1, -2), complex(0, 3), complex(math.Inf(-1), 0.1),
	}
	for _, d := range dtype.All() {
		for i := range 2*s.rounds + len(scalars) {
			v := any(s.rng.NormFloat64() * math.Ldexp(1, s.rng.IntN(100)-50))
			if i < len(scalars) {
				v = scalars[i]
			}
			value, want := dtype.ScalarOf(v), make([]byte, d.Size())
			value.Put(want, d)
			t := s.trial("fill of %v", d)
			t.note = fmt.Sprintf("with %T %v", v, v)
			dst := t.output("dst", d, s.shape(600), exactly(d, func(int) []byte { return want }))
			t.call(func(q backend.Queue) error { return s.rig.Backend.Fill(q, dst.array, value) })
		}
	}
}

func checkCopy(s *suite) {
	for _, from := range dtype.All() {
		for _, to := range dtype.All() {
			for round := range s.rounds {
				t := s.trial("copy of %v to %v", from, to)
				shape, make := s.shape(1500), s.anything(from)
				if round == 0 {
					shape, make = s.shapeOf(1+s.rng.IntN(3), 3000), s.spread(from)
				}
				src := t.input("src", from, shape, make)
				dst := t.output("dst", to, shape, exactly(to, func(i int) []byte {
					return convert(to, from, src.at(i))
				}))
				t.call(func(q backend.Queue) error { return s.rig.Backend.Copy(q, dst.array, src.array) })
			}
		}
	}
}

// spread makes the patterns of narrow types in turn, in steps of 13 from a random one on, and of the others patterns
// all over the range with many zeros at the end: of floats, numbers in the middle between two of a narrower type.
func (s *suite) spread(d dtype.DType) maker {
	start := s.rng.Uint64()
	return func(i int, b []byte) {
		switch {
		case d == dtype.Bool:
			b[0] = byte(i & 1)
		case len(b) <= 2:
			putBits(b, start+13*uint64(i))
		default:
			for at := 0; at < len(b); at += 8 {
				v := s.rng.Uint64()
				if cut := s.rng.IntN(8 * min(8, len(b))); s.oneIn(2) {
					v = v >> cut << cut
				}
				putBits(b[at:], v)
			}
		}
	}
}

func checkArange(s *suite) {
	starts := []any{
		0, 1, -5, 0.5, -1e3, 100, 1e-3, 1 << 24, math.MaxInt64 - 1000, uint64(math.MaxUint64 - 5), 3.0,
		math.Inf(1),
	}
	steps := []any{1, 2, -1, 0.1, -0.25, 1e-6, 0, 3, 1 << 40, 1000.0}
	for _, d := range numberTypes {
		f := formats[d]
		for range 4 * s.rounds {
			start, step := dtype.ScalarOf(pick(s.rng, starts...)), dtype.ScalarOf(pick(s.rng, steps...))
			want := integers(d, func(i int) int64 { return start.Int64() + int64(i)*step.Int64() })
			if d.IsFloat() {
				want = near(d, func(i int) answer {
					// Two roundings in float64, or one if the backend fuses them.
					a, b := start.Float64(), step.Float64()
					apart, fused := a+float64(float64(i)*b), math.FMA(float64(i), b, a)
					return answer{computed(d).round(apart), 0, []float64{f.round(computed(d).round(fused))}}
				})
			}
			t := s.trial("arange of %v", d)
			t.note = fmt.Sprintf("from %v by %v", start, step)
			dst := t.output("dst", d, s.shapeOf(1, 3000), want)
			t.call(func(q backend.Queue) error { return s.rig.Backend.Arange(q, dst.array, start, step) })
		}
	}
}
