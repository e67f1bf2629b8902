package tensor

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
)

// ViewAs returns a view of the same bytes as elements of another type. If the types differ in size, the last axis, whose
// elements must be neighbours, becomes longer or shorter by the factor, and what is left of every stride and of the offset
// must be whole elements. The rules are PyTorch's view(dtype), but that nothing but Bool is viewed as Bool: other bytes may
// be neither 0 nor 1.
//
// Pairs of real numbers are complex ones so: t.Unsqueeze(-1) of a complex tensor, viewed as its real type, has the real
// and the imaginary parts along a last axis of length 2; and the other way round.
func (t *Tensor) ViewAs(d dtype.DType) (*Tensor, error) {
	t.alive("ViewAs")
	asked := func() string { return fmt.Sprintf("ViewAs(%v)", d) }
	switch {
	case !d.Valid():
		return nil, t.viewError(asked, "that is no element type")
	case d == dtype.Bool && t.dtype != d:
		return nil, t.viewError(asked, "bytes that are not 0 or 1 are no bool")
	}
	v := t.copyView()
	v.dtype = d
	from, to, last := t.dtype.Size(), d.Size(), len(t.shape)-1
	if from == to {
		return v, nil
	}
	if last < 0 {
		return nil, t.viewError(asked, "it has no axis that could hold more or fewer of another size")
	}
	if from > to {
		v.shape[last] *= from / to
	} else {
		if v.shape[last]%(to/from) != 0 {
			return nil, t.viewError(asked, "%d elements along the last axis are no multiple of %d", v.shape[last], to/from)
		}
		v.shape[last] /= to / from
	}
	if slices.Contains(v.shape, 0) {
		v.strides, v.offset = contiguous(v.shape), 0
		return v, nil
	}
	if t.shape[last] > 1 && t.strides[last] != 1 {
		return nil, t.viewError(asked, "the last axis has stride %d, and only neighbours can become elements of another size", t.strides[last])
	}
	// From here on in bytes, and back.
	if v.offset*from%to != 0 {
		return nil, t.viewError(asked, "its offset of %d elements is no multiple of %d", t.offset, to/from)
	}
	v.offset = v.offset * from / to
	for i, stride := range v.strides[:last] {
		if t.shape[i] > 1 && stride*from%to != 0 {
			return nil, t.viewError(asked, "axis %d has stride %d, which is no multiple of %d", i, stride, to/from)
		}
		v.strides[i] = stride * from / to
	}
	v.strides[last] = 1
	return v, nil
}

// Real returns a view of the real parts of complex numbers; of other types, of all of t.
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

// component returns one number of each complex one.
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
