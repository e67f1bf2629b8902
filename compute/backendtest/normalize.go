package backendtest

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

func checkSoftmax(s *suite) {
	for _, log := range []bool{false, true} {
		for _, d := range floatTypes {
			for round := range s.rounds + 3 {
				shape := s.shapeOf(1+s.rng.IntN(4), 6000)
				if round == 0 {
					shape = []int{pick(s.rng, 4097, hugeLength)}
				}
				axis := s.rng.IntN(len(shape))
				make := pick(s.rng, s.uniform(d, -3, 3), s.uniform(d, -60, 60), s.uniform(d, 1000, 1010))
				if round == 1 {
					make = s.withSpecials(d, true, make)
				}
				s.softmax(log, d, shape, axis, make)
			}
			// most of it is 0, whose logarithm is not asked for
			s.softmax(log, d, []int{3, 50}, 1, s.uniform(d, -1000, 1000))
			inf := math.Inf(-1)
			s.softmax(log, d, []int{3, 4}, 1, floats(d, inf, inf, inf, inf, 0, inf, 1, inf, inf, 5, inf, inf))
		}
	}
}

func (s *suite) softmax(log bool, d dtype.DType, shape []int, axis int, make maker) {
	s.Helper()
	t := s.trial("softmax of %v, log %v", d, log)
	x := t.input("x", d, shape, make)
	want := softmaxAnswers(log, x, axis)
	dst := t.output("dst", d, shape, near(d, func(i int) answer { return want[i] }))
	t.call(func(q backend.Queue) error { return s.rig.Backend.Softmax(q, log, dst.array, x.array, axis) })
}

// softmaxAnswers returns what becomes of each element of x.
func softmaxAnswers(log bool, x *operand, axis int) map[int]answer {
	c, want := computed(x.array.DType), map[int]answer{}
	for _, line := range groups(x.layout.shape, along(axis)) {
		greatest, sums := math.Inf(-1), total{}
		for _, i := range line {
			greatest = math.Max(greatest, x.float(i))
		}
		for _, i := range line {
			sums.add(math.Exp(x.float(i) - greatest))
		}
		sum := sums.value()
		for _, i := range line {
			// What rounds in below is a factor of its exp, as the 8 ulps of exp, division and sum are.
			below := x.float(i) - greatest
			factor := sumError(c, len(line)) + c.epsilon()*(math.Abs(below)+8)
			if log {
				v := below - math.Log(sum)
				want[i] = withTolerance(v, factor+c.epsilon()*(math.Abs(v)+math.Log(sum)))
			} else {
				v := math.Exp(below) / sum
				want[i] = withTolerance(v, factor*v+math.Ldexp(1, c.least()-c.fraction+2))
			}
		}
	}
	return want
}

func checkNorm(s *suite) {
	for _, rms := range []bool{false, true} {
		for _, d := range floatTypes {
			for round := range 2*s.rounds + 2 {
				shape := s.shapeOf(1+s.rng.IntN(4), 6000)
				if round == 0 {
					shape = []int{1 + s.rng.IntN(3), pick(s.rng, 1025, 4097)}
				}
				make := pick(s.rng, s.uniform(d, -3, 3), s.uniform(d, 8, 12), s.uniform(d, -0.01, 0.01))
				if round == 1 {
					make = s.withSpecials(d, true, make)
				}
				s.norm(rms, d, shape, 1+s.rng.IntN(len(shape)), make)
			}
		}
	}
}

func (s *suite) norm(rms bool, d dtype.DType, shape []int, n int, make maker) {
	s.Helper()
	t := s.trial("norm of %v, rms %v", d, rms)
	x := t.input("x", d, shape, make)
	optional := func(role string) (*operand, *backend.Array) {
		if s.oneIn(3) {
			return nil, nil
		}
		o := t.input(role, d, shape[len(shape)-n:], s.uniform(d, -2, 2))
		return o, &o.array
	}
	weight, weightArray := optional("weight")
	bias, biasArray := optional("bias")
	eps := pick(s.rng, 1e-5, 1e-12, 0.1)

	want := normAnswers(rms, x, n, weight, bias, eps)
	dst := t.output("dst", d, shape, near(d, func(i int) answer { return want[i] }))
	t.call(func(q backend.Queue) error {
		return s.rig.Backend.Norm(q, rms, dst.array, x.array, n, weightArray, biasArray, eps)
	})
}

// normAnswers returns what becomes of each element of x; weight and bias may be nil.
func normAnswers(rms bool, x *operand, n int, weight, bias *operand, eps float64) map[int]answer {
	c, want, first := computed(x.array.DType), map[int]answer{}, len(x.layout.shape)-n
	for _, group := range groups(x.layout.shape, func(k int) bool { return k >= first }) {
		for place, a := range normalized(c, rms, x, group, eps) {
			w, b := 1.0, 0.0
			if weight != nil {
				w = weight.float(place)
			}
			if bias != nil {
				b = bias.float(place)
			}
			v := a.value * w
			want[group[place]] = withTolerance(v+b, a.tolerance*math.Abs(w)+3*c.epsilon()*(math.Abs(v)+math.Abs(b)))
		}
	}
	return want
}

// normalized returns the elements of a group less their mean, over their deviation; or over their mean size.
func normalized(c format, rms bool, x *operand, group []int, eps float64) []answer {
	n := float64(len(group))
	var sums, squares total
	absolute := 0.0
	for _, i := range group {
		sums.add(x.float(i))
		absolute += math.Abs(x.float(i))
	}
	mean := sums.value() / n
	if rms {
		mean, absolute = 0, 0
	}
	for _, i := range group {
		off := x.float(i) - mean
		squares.add(off * off)
	}
	variance := squares.value() / n
	scale := math.Sqrt(variance + eps)
	// The mean is off by the error of a sum; so is the variance, and the more, the larger the mean is beside the
	// deviation, as it is in Welford's way of computing both in one pass.
	factor := sumError(c, len(group))
	meanOff := factor * absolute / n
	scaleOff := factor + c.epsilon()*4
	if variance+eps > 0 {
		scaleOff *= 1 + math.Abs(mean)/scale
	}
	all := make([]answer, len(group))
	for k, i := range group {
		off := x.float(i) - mean
		tolerance := (meanOff+c.epsilon()*math.Abs(x.float(i)))/scale + math.Abs(off/scale)*scaleOff
		all[k] = answer{value: off / scale, tolerance: tolerance}
	}
	return all
}
