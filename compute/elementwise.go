package compute

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// Unary returns op of each element of x. Floating-point functions convert integers and bools to float32; predicates
// (Not, IsNaN, IsInf) return bools.
func Unary(p *tensor.Place, op backend.UnaryOp, x *tensor.Tensor) (*tensor.Tensor, error) {
	p, err := placeFor(op.String(), p, x)
	if err != nil {
		return nil, err
	}
	if rounds(op) && x.DType().IsInteger() {
		return x.Clone(p)
	}
	in, out, err := unaryType(op, x.DType())
	if err != nil {
		return nil, err
	}
	dst, err := tensor.Empty(p, out, x.Shape()...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, unary(p, op, in, dst, x))
}

// UnaryInto sets dst to op of each element of x, broadcast to dst's shape. dst may be x itself, for an operation in
// place. The result is converted to dst's type as in BinaryInto.
func UnaryInto(p *tensor.Place, dst *tensor.Tensor, op backend.UnaryOp, x *tensor.Tensor) error {
	p, err := placeFor(op.String(), p, dst, x)
	if err != nil {
		return err
	}
	if rounds(op) && x.DType().IsInteger() {
		return into(p, op.String(), dst, x.DType(), []*tensor.Tensor{x}, func(dst *tensor.Tensor) error {
			return dst.CopyFrom(p, x)
		})
	}
	in, out, err := unaryType(op, x.DType())
	if err != nil {
		return err
	}
	return into(p, op.String(), dst, out, []*tensor.Tensor{x}, func(dst *tensor.Tensor) error {
		return unary(p, op, in, dst, x)
	})
}

// rounds reports whether op rounds to whole numbers and so leaves integers unchanged.
func rounds(op backend.UnaryOp) bool {
	return op == backend.Floor || op == backend.Ceil || op == backend.Round || op == backend.Trunc
}

// unaryType returns the type in which op is computed and the type of the result.
func unaryType(op backend.UnaryOp, d dtype.DType) (in, out dtype.DType, err error) {
	if err := computable(op.String(), d); err != nil {
		return 0, 0, err
	}
	switch op {
	case backend.Neg, backend.Abs, backend.Sign, backend.Square, backend.Relu:
		if d == dtype.Bool {
			return 0, 0, newOpError(ErrType, op.String(), "of bool: want a type of numbers")
		}
	case backend.Invert:
		if d.IsFloat() {
			return 0, 0, newOpError(ErrType, op.String(), "of %v: want an integer type or bool", d)
		}
	case backend.Not:
	default:
		if !d.IsFloat() {
			d = dtype.Float32
		}
	}
	if op.Predicate() {
		return d, dtype.Bool, nil
	}
	return d, d, nil
}

func unary(p *tensor.Place, op backend.UnaryOp, in dtype.DType, dst, x *tensor.Tensor) error {
	xs, release, err := tensors(op.String(), p, in, x)
	if err != nil {
		return err
	}
	defer release()
	return queue(op.String(), p, dst, xs, func(q backend.Queue) error {
		a := dst.Array()
		return p.Backend().Unary(q, op, a, broadcastTo(xs[0], a.Shape))
	})
}

// Binary returns op of the elements of x and y, broadcast to one shape and promoted to one type (see ResultType). At
// least one of them must be a tensor. Div and Atan2 convert integers and bools to float32; comparisons and logical
// functions return bools.
func Binary(p *tensor.Place, op backend.BinaryOp, x, y Operand) (*tensor.Tensor, error) {
	if a, ok := x.(*tensor.Tensor); ok && a.Defined() {
		if b, ok := y.(*tensor.Tensor); ok && b.Defined() && a.DType() == b.DType() {
			return binaryOfOneType(p, op, a, b)
		}
	}
	p, in, out, shape, err := binaryPlan(p, op, x, y)
	if err != nil {
		return nil, err
	}
	dst, err := tensor.Empty(p, out, shape...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, binary(p, op, in, dst, x, y))
}

// binaryOfOneType is the fast path of Binary for operands of one type, the most common case.
func binaryOfOneType(p *tensor.Place, op backend.BinaryOp, x, y *tensor.Tensor) (*tensor.Tensor, error) {
	name := op.String()
	p, err := placeFor(name, p, x, y)
	if err != nil {
		return nil, err
	}
	in, out, err := binaryType(op, x.DType())
	if err != nil {
		return nil, err
	}
	shape, err := broadcast(name, x, y)
	if err != nil {
		return nil, err
	}
	dst, err := tensor.Empty(p, out, shape...)
	if err != nil {
		return nil, err
	}
	if in != x.DType() {
		return releaseIfFailed(dst, binary(p, op, in, dst, x, y))
	}
	operands := [...]*tensor.Tensor{x, y}
	return releaseIfFailed(dst, queue(name, p, dst, operands[:], func(q backend.Queue) error {
		return p.Backend().Binary(q, op, dst.Array(), broadcastTo(x, shape), broadcastTo(y, shape))
	}))
}

// BinaryInto sets dst to op of the elements of x and y, broadcast to dst's shape. dst may be x or y, for an operation
// in place. The result is converted to dst's type, whose kind must not be lower, as in PyTorch: a floating-point result
// cannot be stored in an integer tensor.
func BinaryInto(p *tensor.Place, dst *tensor.Tensor, op backend.BinaryOp, x, y Operand) error {
	p, err := placeFor(op.String(), p, dst)
	if err != nil {
		return err
	}
	p, in, out, shape, err := binaryPlan(p, op, x, y)
	if err != nil {
		return err
	}
	if !fits(shape, dst.Array().Shape) {
		return newOpError(ErrShape, op.String(), "a result of shape %v into %s", shape, dst.Brief())
	}
	operands := onlyTensors([]Operand{x, y})
	return into(p, op.String(), dst, out, operands, func(dst *tensor.Tensor) error {
		return binary(p, op, in, dst, x, y)
	})
}

// binaryPlan returns the place, the types and the shape of an operation.
func binaryPlan(
	at0 *tensor.Place, op backend.BinaryOp, x, y Operand,
) (p *tensor.Place, in, out dtype.DType, shape []int, err error) {
	ts := onlyTensors([]Operand{x, y})
	if len(ts) == 0 {
		return nil, 0, 0, nil, newOpError(ErrType, op.String(), "of %T and %T: want at least one tensor", x, y)
	}
	if p, err = placeFor(op.String(), at0, ts...); err != nil {
		return nil, 0, 0, nil, err
	}
	if in, err = resultType(op.String(), x, y); err != nil {
		return nil, 0, 0, nil, err
	}
	if in, out, err = binaryType(op, in); err != nil {
		return nil, 0, 0, nil, err
	}
	shape, err = broadcast(op.String(), ts...)
	return p, in, out, shape, err
}

// binaryType returns the type in which op is computed and the type of the result, for operands that promote to d.
func binaryType(op backend.BinaryOp, d dtype.DType) (in, out dtype.DType, err error) {
	if err := computable(op.String(), d); err != nil {
		return 0, 0, err
	}
	switch op {
	case backend.Div, backend.Atan2:
		if !d.IsFloat() {
			d = dtype.Float32
		}
	case backend.Sub, backend.FloorDiv, backend.Mod, backend.Pow:
		if d == dtype.Bool {
			return 0, 0, newOpError(ErrType, op.String(), "of bool and bool")
		}
	case backend.And, backend.Or, backend.Xor:
		if d.IsFloat() {
			return 0, 0, newOpError(ErrType, op.String(), "in %v: want integer types or bool", d)
		}
	case backend.ShiftLeft, backend.ShiftRight:
		if !d.IsInteger() {
			return 0, 0, newOpError(ErrType, op.String(), "in %v: want integer types", d)
		}
	}
	if op.Predicate() {
		return d, dtype.Bool, nil
	}
	return d, d, nil
}

func binary(p *tensor.Place, op backend.BinaryOp, in dtype.DType, dst *tensor.Tensor, x, y Operand) error {
	xs, release, err := tensors(op.String(), p, in, x, y)
	if err != nil {
		return err
	}
	defer release()
	return queue(op.String(), p, dst, xs, func(q backend.Queue) error {
		a := dst.Array()
		return p.Backend().Binary(q, op, a, broadcastTo(xs[0], a.Shape), broadcastTo(xs[1], a.Shape))
	})
}

// into queues f on dst. If dst has another type than the result, or overlaps an operand in part, f works on a temporary
// tensor that is then copied to dst.
func into(
	p *tensor.Place, op string, dst *tensor.Tensor, out dtype.DType, operands []*tensor.Tensor,
	f func(dst *tensor.Tensor) error,
) error {
	if err := dst.Writable(op, p); err != nil {
		return err
	}
	if out.Kind() > dst.DType().Kind() && !(out.IsInteger() && dst.DType().IsInteger()) {
		return newOpError(ErrType, op, "a result of type %v into %s", out, dst.Brief())
	}
	direct := out == dst.DType()
	for _, x := range operands {
		if !fits(x.Array().Shape, dst.Array().Shape) {
			return newOpError(ErrShape, op, "%s into %s", x.Brief(), dst.Brief())
		}
		direct = direct && (!dst.Overlaps(x) || dst.SameElements(x))
	}
	if direct {
		return f(dst)
	}
	result, err := tensor.Empty(temporary(p), out, dst.Shape()...)
	if err != nil {
		return err
	}
	defer result.Release()
	if err := f(result); err != nil {
		return err
	}
	return dst.CopyFrom(p, result)
}

// fits reports whether a shape can be broadcast to another.
func fits(shape, to []int) bool {
	front := len(to) - len(shape)
	if front < 0 {
		return false
	}
	for i, n := range shape {
		if n != 1 && n != to[front+i] {
			return false
		}
	}
	return true
}

// Where returns the elements of x where cond, of type bool, is true, and those of y elsewhere. All are broadcast to one
// shape; x and y are promoted to one type.
func Where(p *tensor.Place, cond *tensor.Tensor, x, y Operand) (*tensor.Tensor, error) {
	const op = "where"
	ts := append([]*tensor.Tensor{cond}, onlyTensors([]Operand{x, y})...)
	p, err := placeFor(op, p, ts...)
	if err != nil {
		return nil, err
	}
	if cond.DType() != dtype.Bool {
		return nil, newOpError(ErrType, op, "the condition is %s: want bool", cond.Brief())
	}
	d, err := resultType(op, x, y)
	if err != nil {
		return nil, err
	}
	if d.IsComplex() {
		return nil, newOpError(ErrType, op, "of %v", d)
	}
	shape, err := broadcast(op, ts...)
	if err != nil {
		return nil, err
	}
	xs, release, err := tensors(op, p, d, x, y)
	if err != nil {
		return nil, err
	}
	defer release()
	dst, err := tensor.Empty(p, d, shape...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, append(xs, cond), func(q backend.Queue) error {
		return p.Backend().Where(q, dst.Array(), broadcastTo(cond, shape), broadcastTo(xs[0], shape),
			broadcastTo(xs[1], shape))
	}))
}
