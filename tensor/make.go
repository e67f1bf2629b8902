package tensor

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// Empty returns a tensor with undefined contents, owned by the caller or p's scope. It fails if the shape is not valid,
// or with an error that matches mem.ErrNoMemory.
func Empty(p *Place, d dtype.DType, shape ...int) (*Tensor, error) {
	p.mustBeOpen("Empty")
	size, err := sizeOf(d, shape)
	if err != nil {
		return nil, err
	}
	w, err := p.alloc(size)
	if err != nil {
		return nil, fmt.Errorf("tensor: %v%v at %v: %w", d, shape, p, err)
	}
	t := &w.tensor
	t.storage, t.place, t.dtype = &w.storage, p.strip(), d
	if n := len(shape); 2*n <= len(w.dims) {
		t.shape, t.strides = w.dims[:n:n], w.dims[n:2*n:2*n]
	} else {
		t.shape, t.strides = make([]int, n), make([]int, n)
	}
	copy(t.shape, shape)
	rowMajor(t.strides, shape)
	t.owned.Store(1)
	p.addToScope(t)
	return t, nil
}

// Zeros returns a tensor of zeros, owned by the caller or p's scope.
func Zeros(p *Place, d dtype.DType, shape ...int) (*Tensor, error) {
	t, err := Empty(p, d, shape...)
	if err != nil || t.Size() == 0 {
		return t, err
	}
	if err := t.zero(p.stream); err != nil {
		t.Release()
		return nil, fmt.Errorf("tensor: zeros at %v: %w", p, err)
	}
	return t, nil
}

// zero queues a fill of a new tensor's memory with zeros.
func (t *Tensor) zero(s driver.Stream) error {
	t.Pin()
	defer t.Unpin()
	if err := t.Use(s, true); err != nil {
		return err
	}
	return s.Fill(t.Array().Ptr, 0, t.Size())
}

// Full returns a tensor in which every element is v, a number of any Go type or a dtype.Scalar, converted to d. The
// caller or p's scope owns it.
func Full(p *Place, d dtype.DType, v any, shape ...int) (*Tensor, error) {
	return finish(Empty(p, d, shape...))(func(t *Tensor) error { return t.Fill(p, v) })
}

// finish runs the second step of making a tensor, and releases it if that fails.
func finish(t *Tensor, err error) func(func(*Tensor) error) (*Tensor, error) {
	return func(step func(*Tensor) error) (*Tensor, error) {
		if err == nil {
			if err = step(t); err != nil {
				t.Release()
				t = nil
			}
		}
		return t, err
	}
}

// Fill queues the assignment of v, a number of any Go type or a dtype.Scalar, to every element. A nil p means t's own
// place.
func (t *Tensor) Fill(p *Place, v any) error {
	p = p.orDefault(t.alive("Fill").place)
	value, ok := dtype.ToScalar(v)
	if !ok {
		return fmt.Errorf("tensor: Fill of %v with a %T, which is not a number", t.brief(), v)
	}
	if err := t.Writable("Fill", p); err != nil {
		return err
	}
	t.Pin()
	defer t.Unpin()
	if err := t.Use(p.stream, true); err != nil {
		return err
	}
	return p.state.backend.Fill(p.Queue(), t.Array(), value)
}

// FromSlice returns a copy of data with the given shape, in row-major order; without a shape the tensor has one axis.
// The slice may be reused at once. The caller or p's scope owns the tensor.
func FromSlice[T dtype.Element](p *Place, data []T, shape ...int) (*Tensor, error) {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	d := dtype.Of[T]()
	size, err := sizeOf(d, shape)
	if err != nil {
		return nil, err
	}
	if size != int64(len(data))*int64(d.Size()) {
		return nil, fmt.Errorf("tensor: FromSlice: %d elements do not fill %v%v, which has %d", len(data), d, shape,
			elements(shape))
	}
	return finish(Empty(p, d, shape...))(func(t *Tensor) error { return t.writeAll(bytesOf(data)) })
}

// FromScalar returns a tensor without axes that holds v, a number of any Go type or a dtype.Scalar, converted to d. The
// caller or p's scope owns it.
func FromScalar(p *Place, d dtype.DType, v any) (*Tensor, error) { return Full(p, d, v) }

// FromStorage returns a tensor over s, with an offset in elements, a shape, and strides in elements (nil: row-major).
// Every element must lie in s. The tensor is one more owner of s; the caller's count stays.
func FromStorage(p *Place, s *Storage, d dtype.DType, offset int, shape, strides []int) (*Tensor, error) {
	p.mustBeOpen("FromStorage")
	if _, err := sizeOf(d, shape); err != nil {
		return nil, err
	}
	if strides == nil {
		strides = contiguous(shape)
	}
	if len(strides) != len(shape) {
		return nil, fmt.Errorf("tensor: FromStorage: %d strides %v for a shape of %d axes %v", len(strides), strides,
			len(shape), shape)
	}
	if p.state.root != s.state.device.root {
		return nil, fmt.Errorf("tensor: FromStorage: the storage is not on the device of the place %v", p)
	}
	if err := checkBounds(d, offset, shape, strides, s.state.size); err != nil {
		return nil, fmt.Errorf("tensor: FromStorage: %w", err)
	}
	t := &Tensor{
		storage: s, place: p.strip(), dtype: d, offset: offset,
		shape: slices.Clone(shape), strides: slices.Clone(strides),
	}
	s.Retain()
	t.owned.Store(1)
	p.addToScope(t)
	return t, nil
}

// checkBounds returns an error unless every element lies in size bytes.
func checkBounds(d dtype.DType, offset int, shape, strides []int, size int64) error {
	lowest, highest, ok := span(offset, shape, strides)
	if highest < lowest {
		return nil // no element
	}
	if !ok || lowest < 0 || int64(highest) >= size/int64(d.Size()) {
		return fmt.Errorf("%v%v with strides %v from element %d does not lie in %d bytes", d, shape, strides, offset,
			size)
	}
	return nil
}

// span returns the lowest and the highest element that a tensor covers; highest is less than lowest if it has no
// element. It is not ok if the numbers overflow.
func span(offset int, shape, strides []int) (lowest, highest int, ok bool) {
	if slices.Contains(shape, 0) {
		return 0, -1, true
	}
	lowest, highest = offset, offset
	for i, n := range shape {
		if n > 1 && (strides[i] > math.MaxInt/(n-1) || strides[i] < -(math.MaxInt/(n-1))) {
			return lowest, highest, false
		}
		reach := (n - 1) * strides[i]
		end := &highest
		if reach < 0 {
			end = &lowest
		}
		if (reach > 0 && *end > math.MaxInt-reach) || (reach < 0 && *end < math.MinInt-reach) {
			return lowest, highest, false
		}
		*end += reach
	}
	return lowest, highest, true
}

// sizeOf returns the size of a contiguous tensor in bytes, or an error if the shape or the type is not valid.
func sizeOf(d dtype.DType, shape []int) (int64, error) {
	if !d.Valid() {
		return 0, fmt.Errorf("tensor: %d is not an element type", uint8(d))
	}
	if len(shape) > backend.MaxRank {
		return 0, fmt.Errorf("tensor: %d axes, at most %d: shape %v", len(shape), backend.MaxRank, shape)
	}
	size := int64(d.Size())
	none := false
	for _, n := range shape {
		if n < 0 {
			return 0, fmt.Errorf("tensor: shape %v has a negative length", shape)
		}
		none = none || n == 0
		if n > 0 && size > math.MaxInt64/int64(n) {
			return 0, fmt.Errorf("tensor: %v%v is larger than any memory", d, shape)
		}
		size *= int64(max(n, 1))
	}
	if none {
		return 0, nil
	}
	return size, nil
}

// contiguous returns the strides of a row-major tensor.
func contiguous(shape []int) []int {
	strides := make([]int, len(shape))
	rowMajor(strides, shape)
	return strides
}

// rowMajor sets strides to those of a row-major tensor.
func rowMajor(strides, shape []int) {
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= max(shape[i], 1)
	}
}

// bytesOf returns the memory of a slice. The elements have no pointers, and every machine on which Go code and a device
// share memory is little-endian.
func bytesOf[T dtype.Element](data []T) []byte {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(data[0])))
}

// elementsOf returns b as a slice of elements, or false if b is not aligned for them.
func elementsOf[T dtype.Element](b []byte) ([]T, bool) {
	if len(b) == 0 {
		return nil, true
	}
	var zero T
	at := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(at)%unsafe.Alignof(zero) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(at), len(b)/int(unsafe.Sizeof(zero))), true
}

// Must returns t, or panics with err if it is not nil. Use it in programs and tests in which an error is a bug.
func Must(t *Tensor, err error) *Tensor {
	if err != nil {
		panic(err)
	}
	return t
}
