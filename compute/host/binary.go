package host

import (
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// slow is the cost of functions that take several nanoseconds per element, and moderate that of operations that take
// about one: see elementwise.
const (
	slow     = 32
	moderate = 4
)

// Binary computes op(x, y).
func (b *Backend) Binary(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) error {
	run, cost := binaryOf(op, x.DType, sizeOf(dst))
	if run == nil {
		return unsupported(op, x.DType)
	}
	return b.elementwise(q, op.String(), run, cost, dst, x, y)
}

// sizeOf returns the bytes of all elements of a.
func sizeOf(a backend.Array) int {
	n := a.DType.Size()
	for _, l := range a.Shape {
		n *= l
	}
	return n
}

// binaryOf returns the loop of an operation on elements of type d, or nil, and its cost. total is the size of the
// result in bytes.
func binaryOf(op backend.BinaryOp, d dtype.DType, total int) (run loop, cost int) {
	switch d {
	case dtype.Bool:
		return binaryBool(op), 0
	case dtype.Int8:
		return binaryInteger[int8](op)
	case dtype.Int16:
		return binaryInteger[int16](op)
	case dtype.Int32:
		return binaryInteger[int32](op)
	case dtype.Int64:
		return binaryInteger[int64](op)
	case dtype.Uint8:
		return binaryInteger[uint8](op)
	case dtype.Uint16:
		return binaryInteger[uint16](op)
	case dtype.Uint32:
		return binaryInteger[uint32](op)
	case dtype.Uint64:
		return binaryInteger[uint64](op)
	case dtype.Float16, dtype.BFloat16:
		return binaryFloat[float32](op, 0) // results pass through a piece in the cache, so streaming stores do not help
	case dtype.Float32:
		return binaryFloat[float32](op, total)
	case dtype.Float64:
		return binaryFloat[float64](op, total)
	}
	return nil, 0
}

// An integer is a Go type of the integer types.
type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func binaryBool(op backend.BinaryOp) loop {
	switch op {
	case backend.Add, backend.Maximum, backend.Or, backend.LogicalOr:
		return binaryLoop(orOf[uint8])
	case backend.Mul, backend.Minimum, backend.And, backend.LogicalAnd:
		return binaryLoop(andOf[uint8])
	case backend.Xor, backend.LogicalXor:
		return binaryLoop(xorOf[uint8])
	}
	return compareOf[uint8](op)
}

func binaryInteger[T integer](op backend.BinaryOp) (run loop, cost int) {
	switch op {
	case backend.Add:
		return binaryLoop(addOf[T]), 0
	case backend.Sub:
		return binaryLoop(subOf[T]), 0
	case backend.Mul:
		return binaryLoop(mulOf[T]), 0
	case backend.FloorDiv:
		return binaryLoop(each2(floorDiv[T])), slow
	case backend.Mod:
		return binaryLoop(each2(floorMod[T])), slow
	case backend.Pow:
		return binaryLoop(each2(power[T])), slow
	case backend.Maximum:
		return binaryLoop(maxOf[T]), 0
	case backend.Minimum:
		return binaryLoop(minOf[T]), 0
	case backend.And:
		return binaryLoop(andOf[T]), 0
	case backend.Or:
		return binaryLoop(orOf[T]), 0
	case backend.Xor:
		return binaryLoop(xorOf[T]), 0
	case backend.ShiftLeft:
		return binaryLoop(each2(shiftLeft[T])), moderate
	case backend.ShiftRight:
		return binaryLoop(each2(shiftRight[T])), moderate
	}
	return compareOf[T](op), 0
}

func binaryFloat[T float](op backend.BinaryOp, total int) (run loop, cost int) {
	switch op {
	case backend.Add, backend.Sub, backend.Mul, backend.Div, backend.Maximum, backend.Minimum:
		return binaryLoop(func(dst, x, y []T) { vecBinary(op, dst, x, y, total) }), 0
	case backend.FloorDiv:
		return binaryLoop(each2(wide2[T](floorDivFloat))), slow
	case backend.Mod:
		return binaryLoop(each2(wide2[T](floorModFloat))), slow
	case backend.Pow:
		return binaryLoop(each2(wide2[T](pow))), slow
	case backend.Atan2:
		return binaryLoop(each2(wide2[T](atan2))), slow
	}
	return compareOf[T](op), 0
}

// A float is a type that float types are computed in.
type float interface{ float32 | float64 }

// compareOf returns the loop of an operation whose result is Bool, or nil.
func compareOf[T number](op backend.BinaryOp) loop {
	switch op {
	case backend.LogicalAnd:
		return binaryLoop(each2(func(x, y T) bool { return x != 0 && y != 0 }))
	case backend.LogicalOr:
		return binaryLoop(each2(func(x, y T) bool { return x != 0 || y != 0 }))
	case backend.LogicalXor:
		return binaryLoop(each2(func(x, y T) bool { return (x != 0) != (y != 0) }))
	case backend.Equal:
		return binaryLoop(equalOf[T])
	case backend.NotEqual:
		return binaryLoop(notEqualOf[T])
	case backend.Less:
		return binaryLoop(lessOf[T])
	case backend.LessEqual:
		return binaryLoop(lessEqualOf[T])
	case backend.Greater:
		return binaryLoop(func(dst []bool, x, y []T) { lessOf(dst, y, x) })
	case backend.GreaterEqual:
		return binaryLoop(func(dst []bool, x, y []T) { lessEqualOf(dst, y, x) })
	}
	return nil
}

// floorDiv rounds the quotient down. The least number by -1 wraps, as in Go; by 0 it is 0.
func floorDiv[T integer](x, y T) T {
	if y == 0 {
		return 0
	}
	q := x / y
	if q*y != x && (x < 0) != (y < 0) {
		q--
	}
	return q
}

// floorMod is what floorDiv leaves: it has the sign of y.
func floorMod[T integer](x, y T) T {
	if y == 0 {
		return 0
	}
	r := x % y
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

// power multiplies by squares of x.
func power[T integer](x, y T) T {
	if y < 0 {
		switch {
		case x == 1:
			return 1
		case x+1 == 0: // -1
			return 1 - 2*(y&1)
		}
		return 0
	}
	r := T(1)
	for ; y > 0; y >>= 1 {
		if y&1 != 0 {
			r *= x
		}
		x *= x
	}
	return r
}

func width[T integer]() uint64 { return uint64(unsafe.Sizeof(T(0)) * 8) }

// shiftLeft and shiftRight shift by a negative number as by more than the width.
func shiftLeft[T integer](x, y T) T {
	if y < 0 || uint64(y) >= width[T]() {
		return 0
	}
	return x << uint64(y)
}

func shiftRight[T integer](x, y T) T {
	by := uint64(y)
	if y < 0 {
		by = 64
	}
	return x >> by
}

// floorDivFloat is Python's x // y: the quotient of what Mod leaves off, which is a whole number, rounded to the
// nearest in case it is not one.
func floorDivFloat(x, y float64) float64 {
	if y == 0 || math.IsInf(x, 0) || math.IsNaN(x) || math.IsNaN(y) {
		q := x / y
		if y != 0 {
			return math.NaN()
		}
		return q
	}
	r := math.Mod(x, y)
	q := (x - r) / y
	if r != 0 && (r < 0) != (y < 0) {
		q--
	}
	if q == 0 {
		return math.Copysign(0, x/y)
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f
}

// floorModFloat is Python's x % y, which has the sign of y.
func floorModFloat(x, y float64) float64 {
	r := math.Mod(x, y)
	if r == 0 {
		return math.Copysign(0, y)
	}
	if (r < 0) != (y < 0) {
		r += y
	}
	return r
}

// atan2 is math.Atan2, which loses y's sign where y/x underflows.
func atan2(y, x float64) float64 { return math.Copysign(math.Atan2(y, x), y) }
