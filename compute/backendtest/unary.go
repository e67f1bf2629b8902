package backendtest

import (
	"math"
	"math/big"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// unaryTypes returns the types that op must know.
func unaryTypes(op backend.UnaryOp) []dtype.DType {
	switch op {
	case backend.Neg, backend.Abs, backend.Sign, backend.Square, backend.Relu:
		return numberTypes
	case backend.Not:
		return allTypes
	case backend.Invert:
		return integralTypes
	}
	return floatTypes
}

func checkUnary(s *suite) {
	for op := backend.UnaryOp(0); op <= backend.LastUnaryOp; op++ {
		for _, d := range unaryTypes(op) {
			most := 4097
			if _, slow := unaryUlps[op]; slow && d == dtype.Float64 {
				most = 500 // precise references take their time
			}
			edges := edgesOf(d)
			s.unary(op, d, []int{len(edges)}, fromBits(edges), false) // all of them, unless x is one element, broadcast
			s.unary(op, d, []int{len(edges)}, fromBits(edges), true)
			s.unary(op, d, s.shape(most), s.anything(d), true)
			s.unary(op, d, s.shapeOf(1, most), s.spread(d), false)
			// Where functions are neither flat nor out of range: in place, so that nothing is broadcast, and enough of
			// them.
			s.unary(op, d, []int{257}, s.uniform(d, -8, 8), true)
			s.unary(op, d, []int{257}, s.uniform(d, -90, 90), true)
			for range s.rounds {
				s.unary(op, d, s.shape(most), s.anything(d), s.oneIn(4))
			}
		}
	}
}

// unary tries op on elements that make makes, and puts the result into x itself if inPlace says so.
func (s *suite) unary(op backend.UnaryOp, d dtype.DType, shape []int, make maker, inPlace bool) {
	s.Helper()
	t := s.trial("unary %v of %v", op, d)
	to := d
	if op.Predicate() {
		to = dtype.Bool
	}
	var x *operand
	judge := unaryVerdict(op, d, func(i int) []byte { return x.at(i) })
	if inPlace && to == d {
		x = t.add("x and dst", d, s.layout(shape, false), make)
		x.judge = judge
		t.call(func(q backend.Queue) error { return s.rig.Backend.Unary(q, op, x.array, x.array) })
		return
	}
	x = t.input("x", d, shape, make)
	dst := t.output("dst", to, shape, judge)
	t.call(func(q backend.Queue) error { return s.rig.Backend.Unary(q, op, dst.array, x.array) })
}

// unaryVerdict judges op of the elements that at returns.
func unaryVerdict(op backend.UnaryOp, d dtype.DType, at func(i int) []byte) verdict {
	switch {
	case op.Predicate() && d.IsFloat():
		return truths(func(i int) bool {
			x := float(d, at(i))
			switch op {
			case backend.IsNaN:
				return math.IsNaN(x)
			case backend.IsInf:
				return math.IsInf(x, 0)
			}
			return x == 0
		})
	case op == backend.Not:
		return truths(func(i int) bool { return integer(d, at(i)) == 0 })
	case d == dtype.Bool:
		return truths(func(i int) bool { return at(i)[0] == 0 })
	case d.IsFloat():
		return near(d, func(i int) answer { return unaryFloat(op, d, float(d, at(i))) })
	}
	return integers(d, func(i int) int64 { return unaryInteger(op, d, integer(d, at(i))) })
}

// unaryInteger is op of an integer, to be wrapped.
func unaryInteger(op backend.UnaryOp, d dtype.DType, x int64) int64 {
	negative := less(d, x, 0)
	switch op {
	case backend.Neg:
		return -x
	case backend.Abs:
		if negative {
			return -x
		}
		return x
	case backend.Sign:
		switch {
		case negative:
			return -1
		case x == 0:
			return 0
		}
		return 1
	case backend.Invert:
		return ^x
	case backend.Square:
		return x * x
	case backend.Relu:
		if negative {
			return 0
		}
		return x
	}
	panic("backendtest: no reference for " + op.String() + " of integers")
}

// unaryFloat is op of a float.
func unaryFloat(op backend.UnaryOp, d dtype.DType, x float64) answer {
	c := computed(d)
	switch op {
	case backend.Neg:
		return exact(-x)
	case backend.Abs:
		return exact(math.Abs(x))
	case backend.Sign:
		switch {
		case math.IsNaN(x):
			return exact(x)
		case x == 0:
			return anyZero
		}
		return exact(math.Copysign(1, x))
	case backend.Floor:
		return exact(math.Floor(x))
	case backend.Ceil:
		return exact(math.Ceil(x))
	case backend.Round:
		return exact(math.RoundToEven(x))
	case backend.Trunc:
		return exact(math.Trunc(x))
	case backend.Sqrt:
		return exact(c.round(math.Sqrt(x)))
	case backend.Reciprocal:
		return exact(c.round(1 / x))
	case backend.Square:
		return exact(c.round(x * x))
	case backend.Relu:
		if x == 0 {
			return anyZero
		}
		if x < 0 {
			return exact(0)
		}
		return exact(x)
	}
	return curve(op, d, x)
}

// curve is op, a function that is not determined to the last bit.
func curve(op backend.UnaryOp, d dtype.DType, x float64) answer {
	c := computed(d)
	v := plainCurve(op, x)
	if d == dtype.Float64 && !math.IsInf(x, 0) && !math.IsNaN(v) && !math.IsInf(v, 0) && x != 0 {
		v = preciseCurve(op, x)
	}
	a := within(c, v, unaryUlps[op])
	switch op {
	case backend.Sigmoid, backend.Silu, backend.Gelu, backend.GeluTanh:
		if math.IsInf(x, -1) && op != backend.Sigmoid {
			// By the formulas infinity times 0, so NaN; in the limit 0.
			return answer{value: math.NaN(), others: []float64{0}}
		}
		if math.IsInf(x, 0) || math.IsNaN(v) || math.IsInf(v, 0) {
			return a
		}
		// Where exp(-x) overflows, 1/(1+exp(-x)) is 0 and not the tiny number that it should be.
		a.tolerance += math.Ldexp(2, c.least()) * max(1, math.Abs(x))
		if x < 0 && (op == backend.Gelu || op == backend.GeluTanh) {
			a.tolerance += cancelled * c.ulp(x)
		}
		if v == 0 {
			a.others = []float64{0}
		}
	}
	return a
}

const gelu0, gelu1 = 0.79788456080286535587989211986876, 0.044715 // sqrt(2/pi)

// plainCurve is op with the accuracy of Go's package math: plenty for float32, and right where x or the result is 0,
// infinite or NaN.
func plainCurve(op backend.UnaryOp, x float64) float64 {
	switch op {
	case backend.Rsqrt:
		return 1 / math.Sqrt(x)
	case backend.Exp:
		return math.Exp(x)
	case backend.Expm1:
		return math.Expm1(x)
	case backend.Log:
		return math.Log(x)
	case backend.Log1p:
		return math.Log1p(x)
	case backend.Log2:
		return math.Log2(x)
	case backend.Log10:
		return math.Log10(x)
	case backend.Sin:
		return math.Sin(x)
	case backend.Cos:
		return math.Cos(x)
	case backend.Tan:
		return math.Tan(x)
	case backend.Tanh:
		return math.Tanh(x)
	case backend.Erf:
		return math.Erf(x)
	case backend.Sigmoid:
		return 1 / (1 + math.Exp(-x))
	case backend.Silu:
		return x / (1 + math.Exp(-x))
	case backend.Gelu:
		return x * (math.Erfc(-x/math.Sqrt2) / 2) // halved first: x may be the greatest
	case backend.GeluTanh:
		// 1+tanh(u) is 2/(1+exp(-2u)).
		return x / (1 + math.Exp(-2*gelu0*(x+gelu1*x*x*x)))
	}
	panic("backendtest: no reference for " + op.String())
}

// preciseCurve is op to the last bit of a float64, for finite x other than 0 where the result is finite.
func preciseCurve(op backend.UnaryOp, x float64) float64 {
	b := number(x)
	switch op {
	case backend.Rsqrt:
		return rounded(over(one, new(big.Float).SetPrec(precision).Sqrt(b)))
	case backend.Exp:
		return rounded(preciseExp(b))
	case backend.Expm1:
		return rounded(preciseExpm1(b))
	case backend.Log:
		return rounded(preciseLog(b))
	case backend.Log1p:
		return rounded(preciseLog1p(b))
	case backend.Log2:
		return rounded(over(preciseLog(b), ln2))
	case backend.Log10:
		return rounded(over(preciseLog(b), ln10))
	case backend.Sin:
		sin, _ := preciseSincos(x)
		return rounded(sin)
	case backend.Cos:
		_, cos := preciseSincos(x)
		return rounded(cos)
	case backend.Tan:
		sin, cos := preciseSincos(x)
		return rounded(over(sin, cos))
	case backend.Tanh:
		return rounded(preciseTanh(b))
	case backend.Erf:
		return rounded(preciseErf(b))
	case backend.Sigmoid:
		return rounded(over(one, sum(one, preciseExp(number(-x)))))
	case backend.Silu:
		return rounded(over(b, sum(one, preciseExp(number(-x)))))
	case backend.Gelu:
		root := new(big.Float).SetPrec(precision).Sqrt(two)
		return rounded(scaled(times(b, sum(one, preciseErf(over(b, root)))), -1))
	case backend.GeluTanh:
		k := over(two, piWide)
		cubic := sum(b, times(number(gelu1), times(b, times(b, b))))
		u := times(k.Sqrt(k), cubic)
		return rounded(scaled(times(b, sum(one, preciseTanh(u))), -1))
	}
	panic("backendtest: no precise reference for " + op.String())
}
