package compute

import (
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// Sort returns x sorted along axis, and the original indices (int64) of the elements. The sort is stable; NaN is the
// largest.
func Sort(p *tensor.Place, x *tensor.Tensor, axis int, descending bool) (values, indices *tensor.Tensor, err error) {
	n := 0
	if x.Defined() && axis >= -x.Rank() && axis < x.Rank() {
		n = x.Dim(axis)
	}
	return sortWith(p, "sort", x, axis, n, func(p *tensor.Place, q backend.Queue, v, i *backend.Array, axis int) error {
		return p.Backend().Sort(q, descending, v, i, x.Array(), axis)
	})
}

// TopK returns the k largest elements along axis, in descending order, and their indices (int64). Of equal elements the
// first come first. NaN is the largest.
func TopK(p *tensor.Place, x *tensor.Tensor, k, axis int) (values, indices *tensor.Tensor, err error) {
	return topK(p, x, k, axis, false)
}

// BottomK is TopK for the smallest elements, in ascending order.
func BottomK(p *tensor.Place, x *tensor.Tensor, k, axis int) (values, indices *tensor.Tensor, err error) {
	return topK(p, x, k, axis, true)
}

func topK(p *tensor.Place, x *tensor.Tensor, k, axis int, least bool) (values, indices *tensor.Tensor, err error) {
	const op = "topk"
	if x.Defined() && axis >= -x.Rank() && axis < x.Rank() && (k < 0 || k > x.Dim(axis)) {
		return nil, nil, newOpError(ErrShape, op, "%d elements along axis %d of %s", k, axis, x.Brief())
	}
	return sortWith(p, op, x, axis, k, func(p *tensor.Place, q backend.Queue, v, i *backend.Array, axis int) error {
		return p.Backend().TopK(q, least, v, i, x.Array(), axis)
	})
}

// sortWith makes the two results, of length n along axis, and queues f on them.
func sortWith(p *tensor.Place, op string, x *tensor.Tensor, axis, n int,
	f func(p *tensor.Place, q backend.Queue, values, indices *backend.Array, axis int) error,
) (values, indices *tensor.Tensor, err error) {
	if p, err = placeFor(op, p, x); err != nil {
		return nil, nil, err
	}
	if err = computable(op, x.DType()); err != nil {
		return nil, nil, err
	}
	if axis, err = axisOf(op, x, axis); err != nil {
		return nil, nil, err
	}
	shape := x.Shape()
	shape[axis] = n
	if values, err = tensor.Empty(p, x.DType(), shape...); err != nil {
		return nil, nil, err
	}
	if indices, err = tensor.Empty(p, dtype.Int64, shape...); err != nil {
		values.Release()
		return nil, nil, err
	}
	err = queue(op, p, values, []*tensor.Tensor{x, indices}, func(q backend.Queue) error {
		if err := indices.Use(q.Stream, true); err != nil { // after queue has pinned it, since a move counts as a write
			return err
		}
		v, i := values.Array(), indices.Array()
		return f(p, q, &v, &i, axis)
	})
	if err != nil {
		values.Release()
		indices.Release()
		return nil, nil, err
	}
	return values, indices, nil
}
