package tensor

import (
	"fmt"
	"iter"
	"runtime"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
)

// pieceBytes is the number of bytes that a loop copies at once if the elements cannot be read in place.
const pieceBytes = 1 << 20

// Values returns an iterator over the elements of t, in row-major order, and a function that returns the error that
// ended the last loop early:
//
//	values, failed := tensor.Values[float32](t)
//	for v := range values {
//		sum += v
//	}
//	if err := failed(); err != nil {
//
// A loop waits for the work that writes t. It reads contiguous elements in the host's memory in place, and copies
// others 1 MiB at a time, so a device error may end it in the middle. T must be the element type of t: Cast converts.
// During a loop t must not be written or released. The errors are those of ToSlice.
func Values[T dtype.Element](t *Tensor) (values iter.Seq[T], failed func() error) {
	err := typed[T]("Values", t)
	wrong := err != nil
	return func(yield func(T) bool) {
		if wrong {
			return
		}
		_, err = pieces(t, func(piece []T) bool {
			for _, v := range piece {
				if !yield(v) {
					return false
				}
			}
			return true
		})
	}, func() error { return err }
}

// All is Values with the indices of each element. The slice of indices is reused: clone it to keep it.
func All[T dtype.Element](t *Tensor) (elements iter.Seq2[[]int, T], failed func() error) {
	values, failed := Values[T](t)
	return func(yield func([]int, T) bool) {
		index := make([]int, len(t.shape))
		for v := range values {
			if !yield(index, v) {
				return
			}
			for i := len(index) - 1; i >= 0; i-- {
				if index[i]++; index[i] < t.shape[i] {
					break
				}
				index[i] = 0
			}
		}
	}, failed
}

// pieces yields the elements of t, in row-major order, a slice at a time. The slice is valid until yield returns. It
// stops when yield returns false or at an error, and then returns more == false.
func pieces[T dtype.Element](t *Tensor, yield func([]T) bool) (more bool, err error) {
	defer runtime.KeepAlive(t) // a loop in place uses the memory, which does not keep t reachable
	if t.storage.state.visible && t.IsContiguous() {
		t.Pin()
		defer t.Unpin()
		if whole, err := data[T](t); err == nil {
			return yield(whole), nil
		}
	}
	n := t.Len()
	if n == 0 {
		return true, nil
	}
	most := pieceBytes / t.dtype.Size()
	return readPieces(t, most, make([]T, min(n, most)), yield)
}

// readPieces is pieces for at most most elements at a time. It reads them into room.
func readPieces[T dtype.Element](t *Tensor, most int, room []T, yield func([]T) bool) (more bool, err error) {
	n := t.Len()
	if n <= most {
		if err := t.Read(bytesOf(room[:n])); err != nil {
			return false, err
		}
		return yield(room[:n]), nil
	}
	axis := slices.IndexFunc(t.shape, func(length int) bool { return length > 1 })
	length := t.shape[axis]
	rows := max(most/(n/length), 1)
	for start := 0; start < length; start += rows {
		part := t.narrowed(axis, start, min(rows, length-start))
		if more, err := readPieces(part, most, room, yield); !more {
			return false, err
		}
	}
	return true, nil
}

// Along returns an iterator over the views of t along an axis, with their indices. The views do not have the axis: for
// a matrix they are the rows for axis 0 and the columns for axis 1.
func (t *Tensor) Along(axis int) (iter.Seq2[int, *Tensor], error) {
	t.alive("Along")
	a, err := t.axis(func() string { return fmt.Sprintf("Along(%d)", axis) }, axis)
	if err != nil {
		return nil, err
	}
	return func(yield func(int, *Tensor) bool) {
		for i := range t.shape[a] {
			if !yield(i, t.selected(a, i)) {
				return
			}
		}
	}, nil
}
