package backendtest

import (
	"math"
	"math/big"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// binaryTypes returns the types that op must know.
func binaryTypes(op backend.BinaryOp) []dtype.DType {
	switch op {
	case backend.Div, backend.Atan2:
		return floatTypes
	case backend.Sub, backend.FloorDiv, backend.Mod, backend.Pow:
		return numberTypes
	case backend.And, backend.Or, backend.Xor:
		return integralTypes
	case backend.ShiftLeft, backend.ShiftRight:
		return integerTypes
	}
	return allTypes
}

func checkBinary(s *suite) {
	for op := backend.BinaryOp(0); op <= backend.LastBinaryOp; op++ {
		for _, d := range binaryTypes(op) {
			most := 4000
			if op == backend.Pow || op == backend.Atan2 {
				most = 800
			}
			s.binaryEdges(op, d)
			for round := range s.rounds + 2 {
				switch round {
				case 0:
					s.binary(op, d, s.shape(800), s.anything(d), s.anything(d), 1+s.rng.IntN(3))
				case 1: // numbers of much the same size, with many equals
					s.binary(op, d, s.shape(800), s.uniform(d, -6, 7), s.uniform(d, -6, 7), 0)
				case 2:
					s.binary(op, d, s.shape(most), s.uniform(d, 0, 20), s.uniform(d, -9, 9), 0)
				default:
					s.binary(op, d, s.shape(most), s.anything(d), s.anything(d), 0)
				}
			}
		}
	}
}

// binaryEdges tries op on every pair of edges, y along the columns, one stride of each 0.
func (s *suite) binaryEdges(op backend.BinaryOp, d dtype.DType) {
	s.Helper()
	edges := edgesOf(d)
	if d == dtype.Bool {
		edges = []uint64{0, 1}
	}
	n := len(edges)
	t := s.trial("binary %v of %v", op, d)
	x := t.add("x", d, layout{shape: []int{n, n}, strides: []int{1, 0}, span: n}, func(i int, b []byte) {
		putBits(b, edges[i/n])
	})
	y := t.add("y", d, layout{shape: []int{n, n}, strides: []int{0, 1}, span: n}, func(i int, b []byte) {
		putBits(b, edges[i%n])
	})
	dst := t.output("dst", binaryResult(op, d), []int{n, n}, binaryVerdict(op, d, x, y))
	t.call(func(q backend.Queue) error { return s.rig.Backend.Binary(q, op, dst.array, x.array, y.array) })
}

// binaryResult is the type that op of two d gives.
func binaryResult(op backend.BinaryOp, d dtype.DType) dtype.DType {
	if op.Predicate() {
		return dtype.Bool
	}
	return d
}

// binary tries op: into memory of its own, or (1) into x or (2) into y, or (3) of one operand with itself.
func (s *suite) binary(op backend.BinaryOp, d dtype.DType, shape []int, makeX, makeY maker, alias int) {
	s.Helper()
	t := s.trial("binary %v of %v", op, d)
	to := binaryResult(op, d)
	if to != d && alias < 3 {
		alias = 0
	}
	var x, y, dst *operand
	switch alias {
	case 1:
		x, y = t.add("x and dst", d, s.layout(shape, false), makeX), t.input("y", d, shape, makeY)
		dst = x
	case 2:
		x, y = t.input("x", d, shape, makeX), t.add("y and dst", d, s.layout(shape, false), makeY)
		dst = y
	case 3:
		x = t.input("x and y", d, shape, makeX)
		y = x
	default:
		x, y = t.input("x", d, shape, makeX), t.input("y", d, shape, makeY)
	}
	judge := binaryVerdict(op, d, x, y)
	if dst == nil {
		dst = t.output("dst", to, shape, judge)
	}
	dst.judge = judge
	t.call(func(q backend.Queue) error { return s.rig.Backend.Binary(q, op, dst.array, x.array, y.array) })
}

func binaryVerdict(op backend.BinaryOp, d dtype.DType, x, y *operand) verdict {
	switch {
	case op.Predicate() && d.IsFloat():
		return truths(func(i int) bool { return compare(op, x.float(i), y.float(i)) })
	case op.Predicate() && d.Kind() == dtype.KindSigned:
		return truths(func(i int) bool { return compare(op, x.integer(i), y.integer(i)) })
	case op.Predicate():
		return truths(func(i int) bool { return compare(op, uint64(x.integer(i)), uint64(y.integer(i))) })
	case d.IsFloat():
		return near(d, func(i int) answer { return binaryFloat(op, d, x.float(i), y.float(i)) })
	case d == dtype.Bool:
		return truths(func(i int) bool { return binaryBool(op, x.at(i)[0] != 0, y.at(i)[0] != 0) })
	}
	return integers(d, func(i int) int64 { return binaryInteger(op, d, x.integer(i), y.integer(i)) })
}

// compare is a function whose result is Bool.
func compare[T int64 | uint64 | float64](op backend.BinaryOp, x, y T) bool {
	switch op {
	case backend.LogicalAnd:
		return x != 0 && y != 0
	case backend.LogicalOr:
		return x != 0 || y != 0
	case backend.LogicalXor:
		return (x != 0) != (y != 0)
	case backend.Equal:
		return x == y
	case backend.NotEqual:
		return x != y
	case backend.Less:
		return x < y
	case backend.LessEqual:
		return x <= y
	case backend.Greater:
		return x > y
	case backend.GreaterEqual:
		return x >= y
	}
	panic("backendtest: no reference for " + op.String())
}

func binaryBool(op backend.BinaryOp, x, y bool) bool {
	switch op {
	case backend.Add, backend.Maximum, backend.Or:
		return x || y
	case backend.Mul, backend.Minimum, backend.And:
		return x && y
	case backend.Xor:
		return x != y
	}
	panic("backendtest: no reference for " + op.String() + " of bool")
}

// binaryInteger is op of two integers of the type d, to be wrapped.
func binaryInteger(op backend.BinaryOp, d dtype.DType, x, y int64) int64 {
	signed, width := d.Kind() == dtype.KindSigned, int64(8*d.Size())
	switch op {
	case backend.Add:
		return x + y
	case backend.Sub:
		return x - y
	case backend.Mul:
		return x * y
	case backend.FloorDiv, backend.Mod:
		quotient, rest := floorDiv(signed, x, y)
		if op == backend.Mod {
			return rest
		}
		return quotient
	case backend.Pow:
		return power(d, x, y)
	case backend.Maximum, backend.Minimum:
		if less(d, x, y) == (op == backend.Maximum) {
			return y
		}
		return x
	case backend.And:
		return x & y
	case backend.Or:
		return x | y
	case backend.Xor:
		return x ^ y
	case backend.ShiftLeft:
		if less(d, y, 0) || !less(dtype.Uint64, y, width) {
			return 0
		}
		return x << y
	case backend.ShiftRight:
		outside := less(d, y, 0) || !less(dtype.Uint64, y, width)
		switch {
		case outside && less(d, x, 0):
			return -1
		case outside:
			return 0
		case signed:
			return x >> y
		}
		return int64(uint64(x) >> y)
	}
	panic("backendtest: no reference for " + op.String() + " of integers")
}

// floorDiv divides, rounding down; by 0 both results are 0.
func floorDiv(signed bool, x, y int64) (quotient, rest int64) {
	switch {
	case y == 0:
		return 0, 0
	case !signed:
		return int64(uint64(x) / uint64(y)), int64(uint64(x) % uint64(y))
	case y == -1:
		return -x, 0 // the least integer has no opposite: it wraps
	}
	quotient, rest = x/y, x%y
	if rest != 0 && (rest < 0) != (y < 0) {
		return quotient - 1, rest + y
	}
	return quotient, rest
}

// power is x to the power of y, wrapping; of a negative y it is 0, but for 1 and -1.
func power(d dtype.DType, x, y int64) int64 {
	if less(d, y, 0) {
		switch {
		case x == 1 || x == -1 && y%2 == 0:
			return 1
		case x == -1:
			return -1
		}
		return 0
	}
	result := int64(1)
	for n := uint64(y); n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= x
		}
		x *= x
	}
	return result
}

// binaryFloat is op of two floats.
func binaryFloat(op backend.BinaryOp, d dtype.DType, x, y float64) answer {
	c := computed(d)
	switch op {
	case backend.Add:
		return exact(c.round(x + y))
	case backend.Sub:
		return exact(c.round(x - y))
	case backend.Mul:
		return exact(c.round(x * y))
	case backend.Div:
		return exact(c.round(x / y))
	case backend.FloorDiv:
		return floorDivFloat(c, formats[d], x, y)
	case backend.Mod:
		rest := math.Mod(x, y)
		if rest == 0 {
			return anyZero
		}
		if rest < 0 != (y < 0) {
			rest = c.round(rest + y)
		}
		return exact(rest)
	case backend.Maximum, backend.Minimum:
		return extreme(op == backend.Maximum, x, y)
	case backend.Pow:
		return within(c, pow(d, x, y), binaryUlps[op])
	case backend.Atan2:
		v := math.Copysign(math.Atan2(x, y), x) // math.Atan2 loses the sign where x/y underflows
		if d == dtype.Float64 && x != 0 && y != 0 && !math.IsInf(x, 0) && !math.IsInf(y, 0) && !math.IsNaN(v) {
			v = rounded(preciseAtan2(x, y))
		}
		return within(c, v, binaryUlps[op])
	}
	panic("backendtest: no reference for " + op.String() + " of floats")
}

// extreme is the greater or the lesser of two numbers: NaN if either is, and of two zeros anyone's.
func extreme(greater bool, x, y float64) answer {
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return exact(math.NaN())
	case x == 0 && y == 0:
		return anyZero
	case greater == (x > y):
		return exact(x)
	}
	return exact(y)
}

// pow is x to the power of y, as IEEE 754 and C say: where one of them or the result is special, by Go's math.Pow,
// which follows the same list, but loses bits with every doubling of y.
func pow(d dtype.DType, x, y float64) float64 {
	v := math.Pow(x, y)
	if d != dtype.Float64 && math.Abs(y) < 1000 || x == 0 || y == 0 || x == 1 || math.IsInf(x, 0) || math.IsInf(y, 0) ||
		math.IsNaN(v) {
		return v
	}
	return math.Copysign(rounded(precisePow(math.Abs(x), y)), v)
}

// floorDivFloat is x/y rounded down. The contract does not say of what: the exact quotient, the rounded one, or the one
// that Python and PyTorch find by subtracting the rest first. They differ where the quotient is next to an integer or
// infinity, and all are taken.
func floorDivFloat(c, f format, x, y float64) answer {
	quotient := c.round(x / y)
	a := exact(math.Floor(quotient))
	a.others = append(a.others, f.round(a.value))
	if y == 0 {
		return a
	}
	rest := math.Mod(x, y)
	v := c.round(c.round(x-rest) / y)
	if rest != 0 && (rest < 0) != (y < 0) {
		v = c.round(v - 1)
	}
	if whole := math.Floor(v); v-whole > 0.5 {
		v = whole + 1
	} else {
		v = whole
	}
	a.others = append(a.others, f.round(c.round(v)))
	if !math.IsInf(x, 0) && !math.IsInf(y, 0) && !math.IsNaN(quotient) {
		a.others = append(a.others, f.round(exactFloorDiv(c, x, y)))
	}
	return a
}

// exactFloorDiv is the greatest integer that is at most the exact quotient, rounded to c.
func exactFloorDiv(c format, x, y float64) float64 {
	q := new(big.Rat).Quo(new(big.Rat).SetFloat64(x), new(big.Rat).SetFloat64(y))
	n := new(big.Int).Div(q.Num(), q.Denom()) // the denominator is positive: rounded down
	v, _ := new(big.Float).SetPrec(uint(c.fraction) + 1).SetInt(n).Float64()
	return c.round(v)
}

func checkWhere(s *suite) {
	for _, d := range dtype.All() {
		if d.IsComplex() {
			continue
		}
		for range s.rounds + 1 {
			t := s.trial("where of %v", d)
			shape := s.shape(3000)
			cond := t.input("cond", dtype.Bool, shape, s.anything(dtype.Bool))
			var x, dst *operand
			if s.oneIn(3) {
				x = t.add("x and dst", d, s.layout(shape, false), s.anything(d))
				dst = x
			} else {
				x = t.input("x", d, shape, s.anything(d))
			}
			y := t.input("y", d, shape, s.anything(d))
			judge := exactly(d, func(i int) []byte {
				if cond.at(i)[0] != 0 {
					return x.at(i)
				}
				return y.at(i)
			})
			if dst == nil {
				dst = t.output("dst", d, shape, judge)
			}
			dst.judge = judge
			call := func(q backend.Queue) error {
				return s.rig.Backend.Where(q, dst.array, cond.array, x.array, y.array)
			}
			if d.Size() == 1 && d.IsFloat() {
				t.unsupported(call) // 8-bit floats are for storage
			} else {
				t.call(call)
			}
		}
	}
}
