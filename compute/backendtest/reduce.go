package backendtest

import (
	"math"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// reduceTypes returns the types of x that op must know, and the type of the result.
func reduceTypes(op backend.ReduceOp) (types []dtype.DType, result func(dtype.DType) dtype.DType) {
	same := func(d dtype.DType) dtype.DType { return d }
	switch op {
	case backend.Sum, backend.Prod:
		return allTypes, func(d dtype.DType) dtype.DType {
			if d.IsFloat() {
				return d
			}
			return dtype.Int64
		}
	case backend.Mean, backend.Norm2:
		return floatTypes, same
	case backend.Any, backend.AllTrue:
		return allTypes, func(dtype.DType) dtype.DType { return dtype.Bool }
	}
	return allTypes, same
}

func checkReduce(s *suite) {
	for op := backend.ReduceOp(0); op <= backend.LastReduceOp; op++ {
		types, result := reduceTypes(op)
		for _, d := range types {
			for round := range s.rounds + 2 {
				shape := s.shape(6000)
				if round == 0 {
					shape = []int{pick(s.rng, 4097, hugeLength)}
				}
				over := map[int]bool{}
				for k := range shape {
					over[k] = round == 0 || s.oneIn(2)
				}
				s.reduce(op, d, result(d), shape, over, s.terms(op, d, shape, over, round))
			}
		}
	}
	s.longSums()
}

// terms makes elements whose combination neither overflows nor underflows on the way.
func (s *suite) terms(op backend.ReduceOp, d dtype.DType, shape []int, over map[int]bool, round int) maker {
	switch {
	case !d.IsFloat() || op >= backend.Max && op <= backend.AllTrue:
		if s.oneIn(3) {
			return s.sparse(d) // Any and AllTrue have something to find
		}
		return s.anything(d)
	case op == backend.Prod:
		n := 1
		for k, o := range over {
			if o {
				n *= max(1, shape[k])
			}
		}
		off := min(0.5, 40/float64(n))
		return s.withSpecials(d, round == 2, s.uniform(d, 1-off, 1+off))
	case s.oneIn(3):
		return s.withSpecials(d, round == 2, s.uniform(d, 0, 1))
	}
	return s.withSpecials(d, round == 2, s.uniform(d, -3, 3))
}

// sparse makes zeros with few others between them, or ones with few zeros.
func (s *suite) sparse(d dtype.DType) maker {
	usual := uint64(s.rng.IntN(2))
	return func(_ int, b []byte) {
		v := usual
		if s.oneIn(500) {
			v = 1 - usual
		}
		if d.IsFloat() {
			putFloat(d, b, float64(v))
		} else {
			putBits(b, v)
		}
	}
}

// withSpecials makes a few of the elements infinite, NaN or zeros, if spice says so.
func (s *suite) withSpecials(d dtype.DType, spice bool, make maker) maker {
	if !spice {
		return make
	}
	specials := []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, math.Copysign(0, -1)}
	one := pick(s.rng, specials...) // mostly, so that not everything is NaN
	return func(i int, b []byte) {
		make(i, b)
		if s.oneIn(200) {
			putFloat(d, b, one)
		} else if s.oneIn(2000) {
			putFloat(d, b, pick(s.rng, specials...))
		}
	}
}

func (s *suite) reduce(op backend.ReduceOp, d, to dtype.DType, shape []int, over map[int]bool, make maker) {
	s.Helper()
	inGroup := func(k int) bool { return over[k] }
	to0 := append([]int{}, shape...)
	for k := range shape {
		if over[k] {
			to0[k] = 1
		}
	}
	if (op == backend.Max || op == backend.Min) && elements(to0) > 0 && elements(shape) == 0 {
		return // not asked for
	}
	t := s.trial("reduce %v of %v", op, d)
	x := t.input("x", d, shape, make)
	all := groups(shape, inGroup)
	dst := t.output("dst", to, to0, nil)
	switch {
	case to.IsFloat():
		dst.judge = near(to, func(i int) answer { return reduceFloats(op, d, x, all[i]) })
	default:
		dst.judge = integers(to, func(i int) int64 { return reduceIntegers(op, d, x, all[i]) })
	}
	t.call(func(q backend.Queue) error { return s.rig.Backend.Reduce(q, op, dst.array, x.array) })
}

// nonzero reports whether an element is true.
func nonzero(d dtype.DType, b []byte) bool {
	if d.IsFloat() {
		return float(d, b) != 0
	}
	return integer(d, b) != 0
}

// reduceIntegers combines elements into an integer or a truth.
func reduceIntegers(op backend.ReduceOp, d dtype.DType, x *operand, group []int) int64 {
	var result int64
	switch op {
	case backend.Any, backend.AllTrue:
		for _, i := range group {
			if nonzero(d, x.at(i)) == (op == backend.Any) {
				return truth(op == backend.Any)
			}
		}
		return truth(op == backend.AllTrue)
	case backend.Prod:
		result = 1
	case backend.Max, backend.Min:
		result = x.integer(group[0])
	}
	for _, i := range group {
		v := x.integer(i)
		switch op {
		case backend.Sum:
			result += v
		case backend.Prod:
			result *= v
		case backend.Max, backend.Min:
			if less(d, result, v) == (op == backend.Max) {
				result = v
			}
		default:
			panic("backendtest: no reference for " + op.String() + " of integers")
		}
	}
	return result
}

// A total adds up float64s and, beside them, what each addition rounds away (Neumaier's variant of Kahan's sum).
type total struct{ sum, lost float64 }

func (t *total) add(v float64) {
	next := t.sum + v
	if math.Abs(t.sum) >= math.Abs(v) {
		t.lost += t.sum - next + v
	} else {
		t.lost += v - next + t.sum
	}
	t.sum = next
}

func (t *total) value() float64 {
	if math.IsInf(t.sum, 0) || math.IsNaN(t.sum) {
		return t.sum
	}
	return t.sum + t.lost
}

// sumError is the factor of the sum of absolute values by which a sum of n numbers may be off: blocks of 32 one after
// the other, and pairs of blocks from there on.
func sumError(c format, n int) float64 { return c.epsilon() * (2*math.Log2(float64(max(1, n))) + 32) }

// reduceFloats combines floats.
func reduceFloats(op backend.ReduceOp, d dtype.DType, x *operand, group []int) answer {
	c, n := computed(d), len(group)
	if n == 1 && op != backend.Norm2 {
		return answer{value: x.float(group[0]), others: []float64{x.float(group[0])}}
	}
	var sums, squares total
	absolute, product, best := 0.0, 1.0, math.Inf(-1)
	for _, i := range group {
		v := x.float(i)
		sums.add(v)
		absolute += math.Abs(v)
		squares.add(v * v)
		product *= v
		if op == backend.Min {
			v = -v
		}
		if v > best || math.IsNaN(v) {
			best = v
		}
		if math.IsNaN(best) {
			best = math.NaN()
		}
	}
	sum := sums.value()
	switch op {
	case backend.Max, backend.Min:
		if op == backend.Min {
			best = -best
		}
		return answer{value: best, others: []float64{best}}
	case backend.Sum:
		return withTolerance(sum, sumError(c, n)*absolute)
	case backend.Mean:
		mean := sum / float64(n)
		return withTolerance(mean, sumError(c, n)*absolute/float64(n)+c.epsilon()*math.Abs(mean))
	case backend.Prod:
		return withTolerance(product, float64(n)*c.epsilon()*math.Abs(product))
	case backend.Norm2:
		norm := math.Sqrt(squares.value())
		return withTolerance(norm, (sumError(c, n)+2*c.epsilon())*norm)
	}
	panic("backendtest: no reference for " + op.String() + " of floats")
}

// withTolerance is an answer with a tolerance; 0 is taken with either sign.
func withTolerance(v, tolerance float64) answer {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return exact(v)
	}
	return answer{value: v, tolerance: tolerance, others: []float64{v}}
}

// longSums adds up the same number many times, which takes no memory: who adds to one sum in order is far off.
func (s *suite) longSums() {
	for _, op := range []backend.ReduceOp{backend.Sum, backend.Mean, backend.Norm2} {
		for _, d := range floatTypes {
			t := s.trial("reduce %v of many %v", op, d)
			v, c := s.orderSensitive(d), computed(d)
			x := t.add("x", d, layout{shape: []int{1}, strides: []int{0}, span: 1}, floats(d, v))
			x.array.Shape = []int{manyTerms}
			want := map[backend.ReduceOp]float64{
				backend.Sum: v * manyTerms, backend.Mean: v, backend.Norm2: v * math.Sqrt(manyTerms),
			}[op]
			dst := t.output("dst", d, []int{1}, near(d, func(int) answer {
				return withTolerance(want, sumError(c, manyTerms)*want)
			}))
			t.call(func(q backend.Queue) error { return s.rig.Backend.Reduce(q, op, dst.array, x.array) })
		}
	}
}

const manyTerms = 1 << 16

// orderSensitive returns an element of a type that shows who adds it up in order. What the additions round away, most
// numbers lose in one direction, but some in both by turns, so that they end nearly right: those are passed over.
// Narrow types show nothing, since their few bits fit in what is computed with.
func (s *suite) orderSensitive(d dtype.DType) float64 {
	for c := computed(d); ; {
		v, sum := formats[d].round(0.01+s.rng.Float64()/100), 0.0
		if formats[d] != c {
			return v
		}
		for range manyTerms {
			sum = c.round(sum + v)
		}
		if math.Abs(sum-v*manyTerms) > 2*sumError(c, manyTerms)*v*manyTerms {
			return v
		}
	}
}

func checkArgReduce(s *suite) {
	for _, d := range allTypes {
		for round := range 2 * (s.rounds + 1) {
			rank := 1 + s.rng.IntN(4)
			shape, least := s.shapeOf(rank, 6000), round%2 == 1
			if round < 2 {
				shape = []int{pick(s.rng, 4097, hugeLength)}
			}
			axis := s.rng.IntN(len(shape))
			if shape[axis] == 0 {
				shape[axis] = 1
			}
			make := pick(s.rng, s.anything(d), s.sparse(d), s.uniform(d, 0, 9))
			t := s.trial("argreduce of %v, least %v", d, least)
			x := t.input("x", d, shape, make)
			all := groups(shape, along(axis))
			dst := t.output("dst", dtype.Int64, with(shape, axis, 1), integers(dtype.Int64, func(i int) int64 {
				at := 0
				for k, e := range all[i] {
					if order := compareElements(d, x.at(e), x.at(all[i][at])); beats(d, least, order, x.at(e),
						x.at(all[i][at])) {
						at = k
					}
				}
				return int64(at)
			}))
			t.call(func(q backend.Queue) error { return s.rig.Backend.ArgReduce(q, least, dst.array, x.array, axis) })
		}
	}
}

// beats reports whether a is to be preferred to b, given their order: the first NaN to everything.
func beats(d dtype.DType, least bool, order int, a, b []byte) bool {
	if d.IsFloat() && (math.IsNaN(float(d, a)) || math.IsNaN(float(d, b))) {
		return !math.IsNaN(float(d, b))
	}
	return least && order < 0 || !least && order > 0
}

// compareElements orders elements: NaNs are equal and the greatest, and so are the two zeros equal.
func compareElements(d dtype.DType, a, b []byte) int {
	if d.IsFloat() {
		x, y := float(d, a), float(d, b)
		switch {
		case math.IsNaN(x) || math.IsNaN(y):
			return int(truth(math.IsNaN(x)) - truth(math.IsNaN(y)))
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	x, y := integer(d, a), integer(d, b)
	return int(truth(less(d, y, x)) - truth(less(d, x, y)))
}
