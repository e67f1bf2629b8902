package compute

import (
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// Over selects the axes that a reduction combines: Axes, which count from the end if negative, or all if there are
// none. With Keep the result has these axes with length 1.
type Over struct {
	Axes []int
	Keep bool
}

// Reduce combines the elements of x over axes. Sums and products of integers and bools are int64. Mean and Norm2 need a
// floating-point type; Any and AllTrue return bools. Max and Min need at least one element.
func Reduce(p *tensor.Place, op backend.ReduceOp, x *tensor.Tensor, over Over) (*tensor.Tensor, error) {
	p, err := placeFor(op.String(), p, x)
	if err != nil {
		return nil, err
	}
	out, err := reduceType(op, x.DType())
	if err != nil {
		return nil, err
	}
	shape := x.Shape()
	ones, left, err := reduced(op.String(), x, over)
	if err != nil {
		return nil, err
	}
	if op == backend.Max || op == backend.Min {
		for i, n := range shape {
			if n == 0 && ones[i] == 1 {
				return nil, newOpError(ErrShape, op.String(), "of %s over axis %d, which has no elements", x.Brief(), i)
			}
		}
	}
	dst, err := tensor.Empty(p, out, left...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op.String(), p, dst, []*tensor.Tensor{x}, func(q backend.Queue) error {
		return p.Backend().Reduce(q, op, withKeptAxes(dst, ones), x.Array())
	}))
}

// reduced returns the shape of the result with the combined axes as ones, and the shape that the caller requested.
func reduced(op string, x *tensor.Tensor, over Over) (ones, shape []int, err error) {
	ones = x.Shape()
	gone := make([]bool, len(ones))
	for _, axis := range over.Axes {
		i, err := axisOf(op, x, axis)
		if err != nil {
			return nil, nil, err
		}
		if gone[i] {
			return nil, nil, newOpError(ErrShape, op, "axis %d of %s is given twice in %v", i, x.Brief(), over.Axes)
		}
		gone[i] = true
	}
	for i, n := range ones {
		if gone[i] || len(over.Axes) == 0 {
			ones[i] = 1
			if !over.Keep {
				continue
			}
			n = 1
		}
		shape = append(shape, n)
	}
	return ones, shape, nil
}

// withKeptAxes returns dst, a new contiguous tensor, as an operand of a shape with as many elements.
func withKeptAxes(dst *tensor.Tensor, shape []int) backend.Array {
	a := dst.Array()
	strides := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= max(shape[i], 1)
	}
	a.Shape, a.Strides = shape, strides
	return a
}

func reduceType(op backend.ReduceOp, d dtype.DType) (dtype.DType, error) {
	if err := computable(op.String(), d); err != nil {
		return 0, err
	}
	switch op {
	case backend.Any, backend.AllTrue:
		return dtype.Bool, nil
	case backend.Sum, backend.Prod:
		if !d.IsFloat() {
			return dtype.Int64, nil
		}
	case backend.Mean, backend.Norm2:
		if !d.IsFloat() {
			return 0, newOpError(ErrType, op.String(), "of %v: cast it to a floating-point type", d)
		}
	}
	return d, nil
}

// Sum returns the sums over the axes, all if none is given.
func Sum(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Sum, x, Over{Axes: axes})
}

// Mean returns the means over the axes, all if none is given.
func Mean(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Mean, x, Over{Axes: axes})
}

// Max returns the largest elements over the axes, all if none is given. The result is NaN if any element is.
func Max(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Max, x, Over{Axes: axes})
}

// Min returns the smallest elements over the axes, all if none is given. The result is NaN if any element is.
func Min(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Min, x, Over{Axes: axes})
}

// Prod returns the products over the axes, all if none is given.
func Prod(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Prod, x, Over{Axes: axes})
}

// Any returns whether any element over the axes, all if none is given, is nonzero.
func Any(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.Any, x, Over{Axes: axes})
}

// All returns whether all elements over the axes, all if none is given, are nonzero.
func All(p *tensor.Place, x *tensor.Tensor, axes ...int) (*tensor.Tensor, error) {
	return Reduce(p, backend.AllTrue, x, Over{Axes: axes})
}

// ArgMax returns the indices (int64) of the largest elements along an axis, which the result does not have. Of equal
// elements the first counts; NaN is larger than every number.
func ArgMax(p *tensor.Place, x *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	return argReduce(p, "argmax", false, x, axis)
}

// ArgMin returns the indices (int64) of the smallest elements along an axis, as ArgMax. A NaN counts as the smallest.
func ArgMin(p *tensor.Place, x *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	return argReduce(p, "argmin", true, x, axis)
}

func argReduce(p *tensor.Place, op string, least bool, x *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	p, err := placeFor(op, p, x)
	if err != nil {
		return nil, err
	}
	if err := computable(op, x.DType()); err != nil {
		return nil, err
	}
	if axis, err = axisOf(op, x, axis); err != nil {
		return nil, err
	}
	ones := x.Shape()
	if ones[axis] == 0 {
		return nil, newOpError(ErrShape, op, "of %s along axis %d, which has no elements", x.Brief(), axis)
	}
	ones[axis] = 1
	dst, err := tensor.Empty(p, dtype.Int64, slices.Delete(x.Shape(), axis, axis+1)...)
	if err != nil {
		return nil, err
	}
	return releaseIfFailed(dst, queue(op, p, dst, []*tensor.Tensor{x}, func(q backend.Queue) error {
		return p.Backend().ArgReduce(q, least, withKeptAxes(dst, ones), x.Array(), axis)
	}))
}
