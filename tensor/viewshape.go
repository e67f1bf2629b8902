package tensor

import (
	"fmt"
	"slices"
)

// Reshape returns a view with another shape: the same elements in the same row-major order. One length may be -1 and is
// computed from the others. The error matches ErrNeedsCopy if no strides reach the elements in that order. A contiguous
// tensor can always be reshaped, others in the cases in which PyTorch's view succeeds.
func (t *Tensor) Reshape(shape ...int) (*Tensor, error) {
	t.alive("Reshape")
	asked := func() string { return fmt.Sprintf("Reshape(%v)", shape) }
	full := slices.Clone(shape)
	open := slices.Index(full, -1)
	if open >= 0 {
		full[open] = 1
	}
	size, err := sizeOf(t.dtype, full)
	if err != nil {
		return nil, t.viewError(asked, "%w", err)
	}
	want := t.Size()
	if open >= 0 {
		if size == 0 {
			return nil, t.viewError(asked, "beside a length of 0, -1 may stand for any")
		}
		if want%size == 0 {
			full[open] = int(want / size)
			size = want
		}
	}
	if size != want {
		return nil, t.viewError(asked, "it has %d elements", t.Len())
	}
	strides, ok := restride(t.shape, t.strides, full)
	if !ok {
		return nil, t.viewError(asked, "with strides %v, %w", t.strides, ErrNeedsCopy)
	}
	return t.view(full, strides, t.offset), nil
}

// restride returns strides for the new shape full that keep the order of the elements, or false if there are none. The
// shapes have the same number of elements.
//
// Axes of length 1 do not matter. Neighbouring axes of the old shape form one run if the end of the inner one leads to
// the next index of the outer one: all elements of the run are then one stride apart. The new axes, from the last on,
// must fill each run exactly. They may split a run, but an axis across two runs would need two strides. PyTorch's
// computeStride has the same result.
func restride(shape, strides, full []int) ([]int, bool) {
	out := contiguous(full)
	if slices.Contains(full, 0) {
		return out, true
	}
	old := len(shape) - 1
	next := len(full) - 1
	for {
		for old >= 0 && shape[old] == 1 {
			old--
		}
		if old < 0 {
			return out, true // the remaining axes of both shapes have length 1
		}
		step, left := strides[old], shape[old] // of the run
		for old--; old >= 0 && (shape[old] == 1 || strides[old] == left*step); old-- {
			left *= shape[old]
		}
		for left > 1 {
			n := full[next]
			if left%n != 0 {
				return nil, false
			}
			if n > 1 {
				out[next] = step
			}
			step, left = step*n, left/n
			next--
		}
	}
}

// Flatten returns a view in which the axes from first to last are merged: t.Flatten(0, -1) has a single axis. A tensor
// without axes becomes one with a single element. The error matches ErrNeedsCopy if that needs a copy.
func (t *Tensor) Flatten(first, last int) (*Tensor, error) {
	t.alive("Flatten")
	asked := func() string { return fmt.Sprintf("Flatten(%d, %d)", first, last) }
	if len(t.shape) == 0 && (first == 0 || first == -1) && (last == 0 || last == -1) {
		return t.Reshape(1)
	}
	from, err := t.axis(asked, first)
	if err != nil {
		return nil, err
	}
	to, err := t.axis(asked, last)
	if err != nil {
		return nil, err
	}
	if from > to {
		return nil, t.viewError(asked, "axis %d is not before axis %d", from, to)
	}
	part := t.shape[from : to+1]
	full := slices.Concat(t.shape[:from], []int{elements(part)}, t.shape[to+1:])
	strides, ok := restride(t.shape, t.strides, full)
	if !ok {
		return nil, t.viewError(asked, "with strides %v, %w", t.strides, ErrNeedsCopy)
	}
	return t.checkView(asked, t.view(full, strides, t.offset))
}

// Expand returns a view of a larger shape that repeats elements with strides of 0. Axes of length 1 may get any length,
// and new axes may be added in front; -1 keeps the length of an axis. Work cannot write to a view that repeats
// elements.
func (t *Tensor) Expand(shape ...int) (*Tensor, error) {
	t.alive("Expand")
	asked := func() string { return fmt.Sprintf("Expand(%v)", shape) }
	front := len(shape) - len(t.shape)
	if front < 0 {
		return nil, t.viewError(asked, "it has %d axes", len(t.shape))
	}
	v := t.view(slices.Clone(shape), make([]int, len(shape)), t.offset)
	for i, n := range t.shape {
		length := &v.shape[front+i]
		switch {
		case *length == -1 || *length == n:
			*length, v.strides[front+i] = n, t.strides[i]
		case n != 1:
			return nil, t.viewError(asked, "axis %d has length %d: only 1 can become %d", i, n, *length)
		}
	}
	return t.checkView(asked, v)
}

// BroadcastShapes returns the shape to which all given shapes can be expanded, by NumPy's rules: axes are matched from
// the last on, and their lengths must be equal, 1, or missing. The error names two shapes that do not fit.
func BroadcastShapes(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for back := 1; back <= rank; back++ {
		length, by := 1, []int(nil) // by: the shape with that length
		for _, s := range shapes {
			if back > len(s) {
				continue
			}
			switch n := s[len(s)-back]; {
			case n < 0:
				return nil, fmt.Errorf("tensor: shape %v has a negative length", s)
			case n == 1 || n == length && by != nil:
			case by != nil:
				return nil, fmt.Errorf("tensor: shapes %v and %v cannot be broadcast: lengths %d and %d at axis %d", by,
					s, length, n, -back)
			default:
				length, by = n, s
			}
		}
		out[rank-back] = length
	}
	return out, nil
}
