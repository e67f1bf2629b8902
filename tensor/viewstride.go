package tensor

import (
	"fmt"
	"slices"
)

// AsStrided returns a view of t's storage with the given shape and strides. The offset is that of the first element
// from the start of the storage. All are in elements. Every element must lie in the storage; several indices may refer
// to one element.
func (t *Tensor) AsStrided(shape, strides []int, offset int) (*Tensor, error) {
	t.alive("AsStrided")
	asked := func() string { return fmt.Sprintf("AsStrided(%v, %v, %d)", shape, strides, offset) }
	if len(shape) != len(strides) {
		return nil, t.viewError(asked, "there are %d strides for %d axes", len(strides), len(shape))
	}
	v, err := t.checkView(asked, t.view(slices.Clone(shape), slices.Clone(strides), offset))
	if err != nil {
		return nil, err
	}
	if err := checkBounds(t.dtype, v.offset, shape, strides, t.storage.state.size); err != nil {
		return nil, t.viewError(asked, "%w", err)
	}
	return v, nil
}

// Unfold returns a view of the windows of size indices along an axis, one every step indices. The axis counts the
// windows, and a new last axis has the elements of each. Overlapping windows share elements.
func (t *Tensor) Unfold(axis, size, step int) (*Tensor, error) {
	t.alive("Unfold")
	asked := func() string { return fmt.Sprintf("Unfold(%d, %d, %d)", axis, size, step) }
	a, err := t.axis(asked, axis)
	if err != nil {
		return nil, err
	}
	n := t.shape[a]
	if size < 0 || size > n {
		return nil, t.viewError(asked, "axis %d has length %d", a, n)
	}
	if step < 1 {
		return nil, t.viewError(asked, "the step must be positive")
	}
	v := t.view(append(slices.Clone(t.shape), size), append(slices.Clone(t.strides), t.strides[a]), t.offset)
	v.shape[a] = (n-size)/step + 1
	if v.shape[a] > 1 { // otherwise the product may overflow and is not needed
		v.strides[a] *= step
	}
	return t.checkView(asked, v)
}

// Diagonal returns a view of the elements whose index along axis2 is the index along axis1 plus offset. The view has
// neither axis; its last axis is the diagonal.
func (t *Tensor) Diagonal(offset, axis1, axis2 int) (*Tensor, error) {
	t.alive("Diagonal")
	asked := func() string { return fmt.Sprintf("Diagonal(%d, %d, %d)", offset, axis1, axis2) }
	axes, err := t.axes(asked, []int{axis1, axis2})
	if err != nil {
		return nil, err
	}
	a, b := axes[0], axes[1]
	v := t.view(make([]int, 0, len(t.shape)), make([]int, 0, len(t.shape)), t.offset)
	for i, n := range t.shape {
		if i != a && i != b {
			v.shape, v.strides = append(v.shape, n), append(v.strides, t.strides[i])
		}
	}
	var length int
	if offset >= 0 {
		length = max(min(t.shape[a], t.shape[b]-offset), 0)
	} else {
		length = max(min(t.shape[a]+offset, t.shape[b]), 0)
	}
	if length > 0 {
		v.offset += max(offset, 0)*t.strides[b] - min(offset, 0)*t.strides[a]
	}
	v.shape, v.strides = append(v.shape, length), append(v.strides, t.strides[a]+t.strides[b])
	return t.resetEmptyOffset(v), nil
}
