package compute

import (
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// MatMul returns the matrix product of x and y, which must have the same type, by the rules of torch.matmul: the last
// two axes are matrices, and the axes before them are broadcast. A tensor with one axis is a row on the left and a
// column on the right, and the result does not have that axis. Transposed views are as fast as plain ones.
func MatMul(p *tensor.Place, x, y *tensor.Tensor) (*tensor.Tensor, error) {
	const op = "matmul"
	p, err := placeFor(op, p, x, y)
	if err != nil {
		return nil, err
	}
	if x.DType() != y.DType() {
		return nil, newOpError(ErrType, op, "%s and %s: want one type", x.Brief(), y.Brief())
	}
	if err := computable(op, x.DType()); err != nil {
		return nil, err
	}
	if x.DType() == dtype.Bool {
		return nil, newOpError(ErrType, op, "%s and %s: want a type of numbers", x.Brief(), y.Brief())
	}
	a, b := x.Array(), y.Array()
	if len(a.Shape) == 0 || len(b.Shape) == 0 {
		return nil, newOpError(ErrShape, op, "%s and %s: want at least one axis of each", x.Brief(), y.Brief())
	}
	row, column := len(a.Shape) == 1, len(b.Shape) == 1
	if row {
		a.Shape, a.Strides = []int{1, a.Shape[0]}, []int{0, a.Strides[0]}
	}
	if column {
		b.Shape, b.Strides = []int{b.Shape[0], 1}, []int{b.Strides[0], 0}
	}
	ra, rb := len(a.Shape)-2, len(b.Shape)-2
	m, k, n := a.Shape[ra], a.Shape[ra+1], b.Shape[rb+1]
	if k != b.Shape[rb] {
		return nil, newOpError(ErrShape, op, "%s and %s: rows of %d elements by columns of %d", x.Brief(), y.Brief(), k,
			b.Shape[rb])
	}
	batch, err := tensor.BroadcastShapes(a.Shape[:ra], b.Shape[:rb])
	if err != nil {
		return nil, newOpError(ErrShape, op, "%s and %s: the axes before the last two cannot be broadcast", x.Brief(),
			y.Brief())
	}
	shape := slices.Clone(batch)
	if !row {
		shape = append(shape, m)
	}
	if !column {
		shape = append(shape, n)
	}
	dst, err := tensor.Empty(p, x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, []*tensor.Tensor{x, y}, func(q backend.Queue) error {
		a.Ptr, a.Bytes = where(x)
		b.Ptr, b.Bytes = where(y)
		return p.Backend().MatMul(q, withKeptAxes(dst, append(slices.Clone(batch), m, n)), repeat(a, batch),
			repeat(b, batch))
	}))
}

// repeat returns matrices broadcast to the given batch axes.
func repeat(a backend.Array, batch []int) backend.Array {
	own := len(a.Shape) - 2
	shape := append(slices.Clone(batch), a.Shape[own:]...)
	strides := make([]int, len(shape))
	front := len(batch) - own
	for i, n := range a.Shape {
		if i >= own || n == batch[front+i] {
			strides[front+i] = a.Strides[i]
		}
	}
	a.Shape, a.Strides = shape, strides
	return a
}

// where returns the current address of x. The caller has pinned x.
func where(x *tensor.Tensor) (driver.Pointer, []byte) {
	a := x.Array()
	return a.Ptr, a.Bytes
}
