package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// A view is a tensor over the storage of another. Making one copies nothing and queues nothing. Every view is a
// borrower (see Ownership), at the place of its source. Axes count from 0; negative axes count from the end, so -1 is
// the last. An operation that the shape does not permit returns an error that names the shape; the use of a released
// tensor panics.

// ErrNeedsCopy is matched by the error of a Reshape that no strides can express. Contiguous followed by Reshape does
// the same with a copy.
var ErrNeedsCopy = errors.New("the view needs a copy: call Contiguous first")

// viewError returns the error of a view that t does not have: the call, t, and the reason.
func (t *Tensor) viewError(asked func() string, why string, args ...any) error {
	return fmt.Errorf("tensor: %s of %v: %w", asked(), t.brief(), fmt.Errorf(why, args...))
}

// axis returns an axis counted from 0.
func (t *Tensor) axis(asked func() string, axis int) (int, error) {
	n := len(t.shape)
	if axis < -n || axis >= n {
		return 0, t.viewError(asked, "there is no axis %d", axis)
	}
	if axis < 0 {
		axis += n
	}
	return axis, nil
}

// axes returns distinct axes counted from 0.
func (t *Tensor) axes(asked func() string, axes []int) ([]int, error) {
	out := make([]int, len(axes))
	for i, axis := range axes {
		a, err := t.axis(asked, axis)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out[:i], a) {
			return nil, t.viewError(asked, "axis %d is named twice", a)
		}
		out[i] = a
	}
	return out, nil
}

// copyView returns a view equal to t whose shape and strides may be changed.
func (t *Tensor) copyView() *Tensor {
	n := len(t.shape)
	both := append(append(make([]int, 0, 2*n), t.shape...), t.strides...)
	return t.view(both[:n:n], both[n:], t.offset)
}

// resetEmptyOffset gives a view without elements t's offset, so that its offset never leaves the storage.
func (t *Tensor) resetEmptyOffset(v *Tensor) *Tensor {
	if slices.Contains(v.shape, 0) {
		v.offset = t.offset
	}
	return v
}

// Transpose returns a view with two axes exchanged.
func (t *Tensor) Transpose(a, b int) (*Tensor, error) {
	t.alive("Transpose")
	asked := func() string { return fmt.Sprintf("Transpose(%d, %d)", a, b) }
	i, err := t.axis(asked, a)
	if err != nil {
		return nil, err
	}
	j, err := t.axis(asked, b)
	if err != nil {
		return nil, err
	}
	return t.transposed(i, j), nil
}

// transposed is Transpose for valid axes.
func (t *Tensor) transposed(a, b int) *Tensor {
	v := t.copyView()
	v.shape[a], v.shape[b] = v.shape[b], v.shape[a]
	v.strides[a], v.strides[b] = v.strides[b], v.strides[a]
	return v
}

// T returns a view with the axes in reverse order. For a matrix that is its transpose.
func (t *Tensor) T() *Tensor {
	v := t.alive("T").copyView()
	slices.Reverse(v.shape)
	slices.Reverse(v.strides)
	return v
}

// MT returns a view with the last two axes exchanged: the transpose of each matrix of a batch.
func (t *Tensor) MT() (*Tensor, error) {
	n := len(t.alive("MT").shape)
	if n < 2 {
		return nil, t.viewError(func() string { return "MT" }, "a matrix has two axes")
	}
	return t.transposed(n-2, n-1), nil
}

// Permute returns a view whose axis i is t's axis axes[i]. Each axis must occur once.
func (t *Tensor) Permute(axes ...int) (*Tensor, error) {
	t.alive("Permute")
	asked := func() string { return fmt.Sprintf("Permute(%v)", axes) }
	if len(axes) != len(t.shape) {
		return nil, t.viewError(asked, "%d axes are named, of %d", len(axes), len(t.shape))
	}
	from, err := t.axes(asked, axes)
	if err != nil {
		return nil, err
	}
	v := t.copyView()
	for i, a := range from {
		v.shape[i], v.strides[i] = t.shape[a], t.strides[a]
	}
	return v, nil
}

// Squeeze returns a view without the given axes, each of which must have length 1, or without all axes of length 1 if
// none is given. As in NumPy, another length is an error; PyTorch keeps such an axis.
func (t *Tensor) Squeeze(axes ...int) (*Tensor, error) {
	t.alive("Squeeze")
	asked := func() string { return fmt.Sprintf("Squeeze(%v)", axes) }
	gone, err := t.axes(asked, axes)
	if err != nil {
		return nil, err
	}
	for _, a := range gone {
		if t.shape[a] != 1 {
			return nil, t.viewError(asked, "axis %d has length %d, not 1", a, t.shape[a])
		}
	}
	v := t.view(make([]int, 0, len(t.shape)), make([]int, 0, len(t.shape)), t.offset)
	for i, n := range t.shape {
		if n == 1 && (len(axes) == 0 || slices.Contains(gone, i)) {
			continue
		}
		v.shape, v.strides = append(v.shape, n), append(v.strides, t.strides[i])
	}
	return v, nil
}

// Unsqueeze returns a view with a new axis of length 1 before t's axis, or at the end. axis is between -Rank-1 and
// Rank.
func (t *Tensor) Unsqueeze(axis int) (*Tensor, error) {
	t.alive("Unsqueeze")
	asked := func() string { return fmt.Sprintf("Unsqueeze(%d)", axis) }
	n, at := len(t.shape), axis
	if at < -n-1 || at > n {
		return nil, t.viewError(asked, "the new axis may be from %d to %d", -n-1, n)
	}
	if at < 0 {
		at += n + 1
	}
	v := t.copyView()
	v.insert(at)
	return t.checkView(asked, v)
}

// checkView returns v, a view of t, or an error if v has too many axes or elements.
func (t *Tensor) checkView(asked func() string, v *Tensor) (*Tensor, error) {
	if _, err := sizeOf(v.dtype, v.shape); err != nil {
		return nil, t.viewError(asked, "%w", err)
	}
	return t.resetEmptyOffset(v), nil
}

// insert adds an axis of length 1 to a new view. Its stride is that of a contiguous tensor.
func (t *Tensor) insert(axis int) {
	stride := 1
	if axis < len(t.shape) {
		stride = t.shape[axis] * t.strides[axis]
	}
	t.shape, t.strides = slices.Insert(t.shape, axis, 1), slices.Insert(t.strides, axis, stride)
}
