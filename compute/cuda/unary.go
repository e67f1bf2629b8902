package cuda

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// The numbers of operations in kernels/unary.cu are those of backend.UnaryOp, and one more.
const signOfUnsigned = 3

// Unary computes op(x).
func (b *Backend) Unary(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) error {
	d := x.DType
	if !unaryKnows(op, d) {
		return unsupported("Unary", "%v of %v", op, d)
	}
	p, k := operands{op: uint32(op)}, unaryKind
	switch {
	case op.Predicate():
		k = predicateKind
	case d == dtype.Bool: // Invert
		p.op, k = uint32(backend.Not), predicateKind
	case d.Kind() != dtype.KindUnsigned:
	case op == backend.Abs || op == backend.Relu:
		return b.run(q, moveKind, sized(d.Size()), &p, &dst, &x)
	case op == backend.Sign:
		p.op = signOfUnsigned
	}
	return b.run(q, k, signed(d), &p, &dst, &x)
}

// unaryKnows reports whether op is there for d.
func unaryKnows(op backend.UnaryOp, d dtype.DType) bool {
	switch op {
	case backend.Neg, backend.Abs, backend.Sign, backend.Square, backend.Relu:
		return isNumber(d)
	case backend.Not:
		return isNumber(d) || d == dtype.Bool
	case backend.Invert:
		return d.IsInteger() || d == dtype.Bool
	}
	return op <= backend.LastUnaryOp && isFloat(d)
}
