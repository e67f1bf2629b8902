package host

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// Unary computes op(x).
func (b *Backend) Unary(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) error {
	run, cost := unaryOf(op, x.DType)
	if run == nil {
		return unsupported(op, x.DType)
	}
	return b.elementwise(q, op.String(), run, cost, dst, x)
}

// unaryOf returns the loop of an operation on elements of type d, or nil, and its cost.
func unaryOf(op backend.UnaryOp, d dtype.DType) (run loop, cost int) {
	switch d {
	case dtype.Bool:
		if op == backend.Not || op == backend.Invert {
			return unaryLoop(isZeroOf[uint8]), 0
		}
	case dtype.Int8:
		return unaryInteger[int8](op), 0
	case dtype.Int16:
		return unaryInteger[int16](op), 0
	case dtype.Int32:
		return unaryInteger[int32](op), 0
	case dtype.Int64:
		return unaryInteger[int64](op), 0
	case dtype.Uint8:
		return unaryInteger[uint8](op), 0
	case dtype.Uint16:
		return unaryInteger[uint16](op), 0
	case dtype.Uint32:
		return unaryInteger[uint32](op), 0
	case dtype.Uint64:
		return unaryInteger[uint64](op), 0
	case dtype.Float16, dtype.BFloat16, dtype.Float32:
		return unaryFloat[float32](op)
	case dtype.Float64:
		return unaryFloat[float64](op)
	}
	return nil, 0
}

func unaryInteger[T integer](op backend.UnaryOp) loop {
	switch op {
	case backend.Neg:
		return unaryLoop(negOf[T])
	case backend.Abs:
		return unaryLoop(each1(func(x T) T { return max(x, -x&(x>>(width[T]()-1))) }))
	case backend.Sign:
		return unaryLoop(each1(sign[T]))
	case backend.Not:
		return unaryLoop(isZeroOf[T])
	case backend.Invert:
		return unaryLoop(invertOf[T])
	case backend.Square:
		return unaryLoop(squareOf[T])
	case backend.Relu:
		return unaryLoop(reluOf[T])
	}
	return nil
}

// sign returns -1, 0 or 1, and NaN for NaN.
func sign[T number](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		var zero T
		return zero - 1
	case x == 0:
		return 0
	}
	return x
}

func unaryFloat[T float](op backend.UnaryOp) (run loop, cost int) {
	switch op {
	case backend.Neg:
		return unaryLoop(negOf[T]), 0
	case backend.Abs:
		return unaryLoop(absOf[T]), 0
	case backend.Sign:
		return unaryLoop(each1(sign[T])), moderate
	case backend.Not:
		return unaryLoop(isZeroOf[T]), 0
	case backend.IsNaN:
		return unaryLoop(func(dst []bool, x []T) { notEqualOf(dst, x, x) }), 0
	case backend.IsInf:
		return unaryLoop(each1(func(x T) bool { return math.IsInf(float64(x), 0) })), moderate
	case backend.Sqrt:
		return unaryLoop(sqrtOf[T]), moderate
	case backend.Square:
		return unaryLoop(squareOf[T]), 0
	case backend.Relu:
		return unaryLoop(reluOf[T]), 0
	case backend.Reciprocal:
		return unaryLoop(reciprocalOf[T]), moderate
	}
	f := functionOf(op)
	if g := preciseOf(op); g != nil && unsafe.Sizeof(T(0)) == 8 {
		f = g
	}
	if f == nil {
		return nil, 0
	}
	return unaryLoop(wide1[T](f)), slow
}

// preciseOf returns the function for float64 results if it differs from that of float32, and nil otherwise.
func preciseOf(op backend.UnaryOp) func(float64) float64 {
	switch op {
	case backend.Sin:
		return sin
	case backend.Cos:
		return cos
	case backend.Tan:
		return tan
	}
	return nil
}

// functionOf returns an operation as a function of float64 numbers, or nil. Results for float32 are rounded from it.
func functionOf(op backend.UnaryOp) func(float64) float64 {
	switch op {
	case backend.Floor:
		return math.Floor
	case backend.Ceil:
		return math.Ceil
	case backend.Round:
		return math.RoundToEven
	case backend.Trunc:
		return math.Trunc
	case backend.Rsqrt:
		return func(x float64) float64 { return 1 / math.Sqrt(x) }
	case backend.Exp:
		return math.Exp
	case backend.Expm1:
		return math.Expm1
	case backend.Log:
		return backend.ExactLog
	case backend.Log1p:
		return math.Log1p
	case backend.Log2:
		return log2
	case backend.Log10:
		return log10
	case backend.Sin:
		return math.Sin
	case backend.Cos:
		return math.Cos
	case backend.Tan:
		return math.Tan
	case backend.Tanh:
		return math.Tanh
	case backend.Sigmoid:
		return func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	case backend.Gelu:
		// halve first, so that the largest x does not overflow
		return func(x float64) float64 { return x * (math.Erfc(-x*(1/math.Sqrt2)) / 2) }
	case backend.GeluTanh:
		return geluTanh
	case backend.Silu:
		return func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	case backend.Erf:
		return math.Erf
	}
	return nil
}

// geluTanh is x*(1+tanh(t))/2 with t = sqrt(2/pi)*(x + 0.044715*x^3), as x/(1+exp(-2t)): nothing cancels.
func geluTanh(x float64) float64 {
	t := math.Sqrt2 / math.SqrtPi * (x + 0.044715*x*x*x)
	return x / (1 + math.Exp(-2*t))
}
