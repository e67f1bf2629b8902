package cuda

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
)

// The numbers of operations in kernels/binary.cu are those of backend.BinaryOp, and of unsigned integers, where they
// differ, so much more.
const ofUnsigned = 64

// Binary computes op(x, y).
func (b *Backend) Binary(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) error {
	d := x.DType
	if !binaryKnows(op, d) {
		return unsupported("Binary", "%v of %v", op, d)
	}
	switch op {
	case backend.Greater:
		op, x, y = backend.Less, y, x
	case backend.GreaterEqual:
		op, x, y = backend.LessEqual, y, x
	}
	p, k := operands{op: uint32(op)}, binaryKind
	if op.Predicate() {
		k = compareKind
	}
	if d == dtype.Bool {
		switch op {
		case backend.Add, backend.Maximum:
			p.op = uint32(backend.Or)
		case backend.Mul, backend.Minimum:
			p.op = uint32(backend.And)
		}
	}
	if d.Kind() == dtype.KindUnsigned {
		switch op {
		case backend.FloorDiv, backend.Mod, backend.Pow, backend.Maximum, backend.Minimum, backend.ShiftRight,
			backend.Less,
			backend.LessEqual:
			p.op += ofUnsigned
		}
	}
	return b.run(q, k, signed(d), &p, &dst, &x, &y)
}

// binaryKnows reports whether op is there for d.
func binaryKnows(op backend.BinaryOp, d dtype.DType) bool {
	switch op {
	case backend.Div, backend.Atan2:
		return isFloat(d)
	case backend.Sub, backend.FloorDiv, backend.Mod, backend.Pow:
		return isNumber(d)
	case backend.And, backend.Or, backend.Xor:
		return d.IsInteger() || d == dtype.Bool
	case backend.ShiftLeft, backend.ShiftRight:
		return d.IsInteger()
	}
	return op <= backend.LastBinaryOp && (isNumber(d) || d == dtype.Bool)
}

// Where takes x where cond is true, and y elsewhere.
func (b *Backend) Where(q backend.Queue, dst, cond, x, y backend.Array) error {
	if x.DType.IsComplex() {
		return unsupported("Where", "of %v", x.DType)
	}
	return b.run(q, whereKind, sized(x.DType.Size()), &operands{}, &dst, &cond, &x, &y)
}
