package tensor

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
)

// ViewAs returns a view of the same bytes as elements of another type, by the rules of PyTorch's view(dtype). If the
// types differ in size, the elements of the last axis must be consecutive and its length changes by the factor; the
// offset and the other strides must be multiples of the new size. Unlike in PyTorch no other type can be viewed as
// Bool, since its bytes may be neither 0 nor 1.
//
// Complex numbers are pairs of real ones: t.Unsqueeze(-1) of a complex tensor, viewed as its real type, has the real
// and the imaginary parts along a last axis of length 2. The inverse is valid too.
func (t *Tensor) ViewAs(d dtype.DType) (*Tensor, error) {
	t.alive("ViewAs")
	asked := func() string { return fmt.Sprintf("ViewAs(%v)", d) }
	switch {
	case !d.Valid():
		return nil, t.viewError(asked, "not an element type")
	case d == dtype.Bool && t.dtype != d:
		return nil, t.viewError(asked, "its bytes may be neither 0 nor 1")
	}
	v := t.copyView()
	v.dtype = d
	from, to, last := t.dtype.Size(), d.Size(), len(t.shape)-1
	if from == to {
		return v, nil
	}
	if last < 0 {
		return nil, t.viewError(asked, "a tensor without axes cannot change the size of its elements")
	}
	if from > to {
		v.shape[last] *= from / to
	} else {
		if v.shape[last]%(to/from) != 0 {
			return nil, t.viewError(asked, "%d elements along the last axis are not a multiple of %d", v.shape[last],
				to/from)
		}
		v.shape[last] /= to / from
	}
	if slices.Contains(v.shape, 0) {
		v.strides, v.offset = contiguous(v.shape), 0
		return v, nil
	}
	if t.shape[last] > 1 && t.strides[last] != 1 {
		return nil, t.viewError(asked, "the last axis has stride %d, only consecutive elements can change their size",
			t.strides[last])
	}
	// Convert the offset and the strides to bytes and then to the new size.
	if v.offset*from%to != 0 {
		return nil, t.viewError(asked, "its offset of %d elements is not a multiple of %d", t.offset, to/from)
	}
	v.offset = v.offset * from / to
	for i, stride := range v.strides[:last] {
		if t.shape[i] > 1 && stride*from%to != 0 {
			return nil, t.viewError(asked, "axis %d has stride %d, which is not a multiple of %d", i, stride, to/from)
		}
		v.strides[i] = stride * from / to
	}
	v.strides[last] = 1
	return v, nil
}

// Real returns a view of the real parts of complex numbers, and a view of t for other types.
func (t *Tensor) Real() *Tensor {
	if !t.alive("Real").dtype.IsComplex() {
		return t.copyView()
	}
	return t.component(0)
}

// Imag returns a view of the imaginary parts of complex numbers.
func (t *Tensor) Imag() (*Tensor, error) {
	if !t.alive("Imag").dtype.IsComplex() {
		return nil, t.viewError(func() string { return "Imag" }, "its numbers have no imaginary parts")
	}
	return t.component(1), nil
}

// component returns a view of the real (0) or the imaginary (1) parts.
func (t *Tensor) component(which int) *Tensor {
	v := t.copyView()
	v.dtype = dtype.Float32
	if t.dtype == dtype.Complex128 {
		v.dtype = dtype.Float64
	}
	for i := range v.strides {
		v.strides[i] *= 2
	}
	v.offset = 2*v.offset + which
	return t.resetEmptyOffset(v)
}
