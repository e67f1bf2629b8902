package compute

import (
	"fmt"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// Gather returns x[..., index[..., i, ...], ...] along axis, with index's shape. index is int64 or int32, has as many
// axes as x, and is not longer than x along the other axes. An index out of range gives a zero and an error at the next
// wait.
func Gather(p *tensor.Place, x *tensor.Tensor, axis int, index *tensor.Tensor) (*tensor.Tensor, error) {
	const op = "gather"
	p, axis, err := indexed(op, p, x, axis, index)
	if err != nil {
		return nil, err
	}
	if err := within(op, index, x, axis); err != nil {
		return nil, err
	}
	dst, err := tensor.Empty(p, x.DType(), index.Shape()...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, []*tensor.Tensor{x, index}, func(q backend.Queue) error {
		return p.Backend().Gather(q, dst.Array(), x.Array(), index.Array(), axis)
	}))
}

// indexed checks the place, the axis and the type of the indices.
func indexed(
	op string, p0 *tensor.Place, x *tensor.Tensor, axis0 int, index *tensor.Tensor,
) (p *tensor.Place, axis int, err error) {
	if p, err = placeFor(op, p0, x, index); err != nil {
		return nil, 0, err
	}
	if axis, err = axisOf(op, x, axis0); err != nil {
		return nil, 0, err
	}
	if d := index.DType(); d != dtype.Int64 && d != dtype.Int32 {
		return nil, 0, newOpError(ErrType, op, "the indices are %s: want int64 or int32", index.Brief())
	}
	return p, axis, nil
}

// within fails unless index has as many axes as x and is not longer along the axes other than axis.
func within(op string, index, x *tensor.Tensor, axis int) error {
	is, xs := index.Array().Shape, x.Array().Shape
	if len(is) != len(xs) {
		return newOpError(ErrShape, op, "indices %s for %s: want as many axes", index.Brief(), x.Brief())
	}
	for i, n := range is {
		if i != axis && n > xs[i] {
			return newOpError(ErrShape, op, "indices %s for %s: axis %d is longer", index.Brief(), x.Brief(), i)
		}
	}
	return nil
}

// IndexSelect returns the slices of x along axis that index, a tensor of one axis, selects: x[..., index[i], ...].
// index is int64 or int32. An index out of range gives zeros and an error at the next wait.
func IndexSelect(p *tensor.Place, x *tensor.Tensor, axis int, index *tensor.Tensor) (*tensor.Tensor, error) {
	const op = "index_select"
	p, axis, err := indexed(op, p, x, axis, index)
	if err != nil {
		return nil, err
	}
	if index.Rank() != 1 {
		return nil, newOpError(ErrShape, op, "indices %s: want one axis", index.Brief())
	}
	shape := x.Shape()
	shape[axis] = index.Len()
	dst, err := tensor.Empty(p, x.DType(), shape...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, []*tensor.Tensor{x, index}, func(q backend.Queue) error {
		return p.Backend().IndexSelect(q, dst.Array(), x.Array(), index.Array(), axis)
	}))
}

// ScatterAdd adds src[..., i, ...] to dst[..., index[..., i, ...], ...] along axis, in place. index is int64 or int32
// and has src's shape. Both have as many axes as dst and are not longer along the other axes. src has dst's type.
// Floats are added in an unspecified order. An index out of range is skipped and gives an error at the next wait.
func ScatterAdd(p *tensor.Place, dst *tensor.Tensor, axis int, index, src *tensor.Tensor) error {
	const op = "scatter_add"
	p, axis, err := indexed(op, p, dst, axis, index)
	if err != nil {
		return err
	}
	if _, err := placeFor(op, p, src); err != nil {
		return err
	}
	switch {
	case src.DType() != dst.DType():
		return newOpError(ErrType, op, "%s to %s: want one type", src.Brief(), dst.Brief())
	case !slices.Equal(src.Array().Shape, index.Array().Shape):
		return newOpError(ErrShape, op, "%s by indices %s: want one shape", src.Brief(), index.Brief())
	case dst.DType() == dtype.Bool:
		return newOpError(ErrType, op, "to %s: want a type of numbers", dst.Brief())
	}
	if err := computable(op, dst.DType()); err != nil {
		return err
	}
	if err := within(op, index, dst, axis); err != nil {
		return err
	}
	if err := dst.Writable(op, p); err != nil {
		return err
	}
	operands := []*tensor.Tensor{index, src}
	for i, o := range operands {
		if dst.Overlaps(o) {
			apart, err := o.Clone(temporary(p))
			if err != nil {
				return err
			}
			defer apart.Release()
			operands[i] = apart
		}
	}
	return queue(op, p, dst, operands, func(q backend.Queue) error {
		return p.Backend().ScatterAdd(q, dst.Array(), operands[0].Array(), operands[1].Array(), axis)
	})
}

// Concat joins tensors along an axis. Their other lengths must be equal, and their types are promoted to one.
func Concat(p *tensor.Place, axis int, xs ...*tensor.Tensor) (*tensor.Tensor, error) {
	const op = "concat"
	if len(xs) == 0 {
		return nil, newOpError(ErrShape, op, "of no tensors")
	}
	p, err := placeFor(op, p, xs...)
	if err != nil {
		return nil, err
	}
	if axis, err = axisOf(op, xs[0], axis); err != nil {
		return nil, err
	}
	d := xs[0].DType()
	shape := xs[0].Shape()
	for _, x := range xs[1:] {
		other := x.Shape()
		if len(other) == len(shape) {
			if shape[axis] > math.MaxInt-other[axis] {
				return nil, newOpError(ErrShape, op, "%s and %s along axis %d: larger than any memory", xs[0].Brief(),
					x.Brief(), axis)
			}
			shape[axis] += other[axis]
			other[axis] = shape[axis]
		}
		if !slices.Equal(other, shape) {
			return nil, newOpError(ErrShape, op, "%s and %s along axis %d: want equal lengths along the other axes",
				xs[0].Brief(), x.Brief(), axis)
		}
		if d, err = dtype.Promote(d, x.DType()); err != nil {
			return nil, newOpError(ErrType, op, "%s and %s: %v", xs[0].Brief(), x.Brief(), err)
		}
	}
	dst, err := tensor.Empty(p, d, shape...)
	if err != nil {
		return nil, err
	}
	from := 0
	for _, x := range xs {
		n := x.Dim(axis)
		part, err := dst.Narrow(axis, from, n)
		if err == nil {
			err = part.CopyFrom(p, x)
		}
		if err != nil {
			return releaseIfFailed(dst, fmt.Errorf("compute: %s: %w", op, err))
		}
		from += n
	}
	return dst, nil
}

// Stack joins tensors of one shape along a new axis, which is inserted before the given axis.
func Stack(p *tensor.Place, axis int, xs ...*tensor.Tensor) (*tensor.Tensor, error) {
	const op = "stack"
	if len(xs) == 0 {
		return nil, newOpError(ErrShape, op, "of no tensors")
	}
	views := make([]*tensor.Tensor, len(xs))
	for i, x := range xs {
		if !x.Defined() {
			return nil, newOpError(ErrType, op, "operand %d is the undefined tensor", i+1)
		}
		if !slices.Equal(x.Array().Shape, xs[0].Array().Shape) {
			return nil, newOpError(ErrShape, op, "%s and %s: want one shape", xs[0].Brief(), x.Brief())
		}
		v, err := x.Unsqueeze(axis)
		if err != nil {
			return nil, newOpError(ErrShape, op, "axis %d for %s: %v", axis, x.Brief(), err)
		}
		views[i] = v
	}
	if axis < 0 {
		axis += xs[0].Rank() + 1
	}
	return Concat(p, axis, views...)
}
