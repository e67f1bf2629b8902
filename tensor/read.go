package tensor

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// Read waits for the work that writes t and copies its elements to dst, in row-major order. len(dst) must be t.Size().
// The error is that of the copy, or that of other finished work on the device (see Place.Sync); in the second case dst
// is filled.
func (t *Tensor) Read(dst []byte) error {
	t.alive("Read")
	if int64(len(dst)) != t.Size() {
		return fmt.Errorf("tensor: Read of %v, %d bytes, to %d", t.brief(), t.Size(), len(dst))
	}
	if len(dst) == 0 {
		return nil
	}
	whole, err := t.Contiguous(t.place.Unscoped())
	if err != nil {
		return err
	}
	defer whole.Release()
	if err := whole.readRange(dst, 0); err != nil {
		return err
	}
	return t.place.state.backend.Failed()
}

// readRange waits for the work that writes t and copies len(dst) bytes to dst. They start the given distance, in bytes,
// after t's first element in the storage.
func (t *Tensor) readRange(dst []byte, distance int64) error {
	t.Pin()
	defer t.Unpin()
	s := t.place.stream
	if err := t.Use(s, false); err != nil {
		return err
	}
	ptr, bytes := t.storage.state.address()
	at := int64(t.offset)*int64(t.dtype.Size()) + distance
	if bytes == nil {
		return s.CopyOut(dst, ptr+driver.Pointer(at))
	}
	if err := s.Sync(context.Background()); err != nil {
		return err
	}
	copy(dst, bytes[at:])
	return nil
}

// writeAll copies src, of t.Size() bytes, to t, which is contiguous. The slice may be reused when it returns.
func (t *Tensor) writeAll(src []byte) error {
	if len(src) == 0 {
		return nil
	}
	t.Pin()
	defer t.Unpin()
	s := t.place.stream
	if err := t.Use(s, true); err != nil {
		return err
	}
	if ptr, _ := t.storage.state.address(); ptr != 0 {
		return s.CopyIn(t.first(ptr), src)
	}
	if err := s.Sync(context.Background()); err != nil {
		return err
	}
	copy(t.bytes(), src)
	return nil
}

// ToSlice waits for t and returns a copy of its elements, in row-major order. T must be the element type of t: Cast
// converts.
func ToSlice[T dtype.Element](t *Tensor) ([]T, error) {
	if err := typed[T]("ToSlice", t); err != nil {
		return nil, err
	}
	out := make([]T, t.Len())
	if err := t.Read(bytesOf(out)); err != nil {
		return nil, err
	}
	return out, nil
}

// Data waits for t and returns its memory as a slice, without a copy. The tensor must be contiguous and in the host's
// memory. The slice is valid until the memory is released; t must stay reachable until then. From the call on the
// memory never moves. A program that writes to the slice orders that with queued work.
func Data[T dtype.Element](t *Tensor) ([]T, error) {
	if err := typed[T]("Data", t); err != nil {
		return nil, err
	}
	t.storage.state.exposeAddress("Data")
	return data[T](t)
}

// data is Data for memory that does not move.
func data[T dtype.Element](t *Tensor) ([]T, error) {
	switch {
	case t.Len() == 0:
		return nil, nil
	case !t.storage.state.visible:
		return nil, fmt.Errorf("tensor: Data of %v on %v: its memory is not the host's; ToSlice copies it", t.brief(),
			t.place)
	case !t.IsContiguous():
		return nil, fmt.Errorf("tensor: Data of %v with strides %v, which is not contiguous; ToSlice copies it",
			t.brief(), t.strides)
	}
	if err := t.Use(t.place.stream, false); err != nil {
		return nil, err
	}
	if err := t.place.Sync(context.Background()); err != nil {
		return nil, err
	}
	out, ok := elementsOf[T](t.bytes())
	if !ok {
		return nil, fmt.Errorf("tensor: Data of %v: its memory is not aligned for its elements; ToSlice copies it",
			t.brief())
	}
	return out, nil
}

// typed returns an error unless T is the element type of t.
func typed[T dtype.Element](call string, t *Tensor) error {
	if d := dtype.Of[T](); t.alive(call).dtype != d {
		return fmt.Errorf("tensor: %s of %v as %v: Cast converts", call, t.brief(), d)
	}
	return nil
}

// At waits for t and returns the element at the given indices, one for each axis. Negative indices count from the end.
func (t *Tensor) At(indices ...int) (dtype.Scalar, error) {
	t.alive("At")
	if len(indices) != len(t.shape) {
		return dtype.Scalar{}, fmt.Errorf("tensor: At of %v: %d indices %v for %d axes", t.brief(), len(indices),
			indices, len(t.shape))
	}
	at := 0
	for i, index := range indices {
		n := t.shape[i]
		if index < -n || index >= n {
			return dtype.Scalar{}, fmt.Errorf("tensor: At of %v: index %d is out of range for axis %d of length %d",
				t.brief(), index, i, n)
		}
		if index < 0 {
			index += n
		}
		at += index * t.strides[i]
	}
	b := make([]byte, t.dtype.Size())
	if err := t.readRange(b, int64(at)*int64(len(b))); err != nil {
		return dtype.Scalar{}, err
	}
	return t.dtype.Load(b), t.place.state.backend.Failed()
}

// Item waits for t, which must have one element, and returns that element.
func (t *Tensor) Item() (dtype.Scalar, error) {
	if n := t.alive("Item").Len(); n != 1 {
		return dtype.Scalar{}, fmt.Errorf("tensor: Item of %v: it has %d elements, want one", t.brief(), n)
	}
	return t.At(make([]int, len(t.shape))...)
}
