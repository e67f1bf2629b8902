package tensor

import (
	"fmt"

	"github.com/ashlar-go/ashlar/dtype"
)

// View returns a tensor over a Go slice, without a copy: a write to one is visible in the other. The place must be on
// the host; FromSlice copies to any device. Without a shape the tensor has one axis; a shape must have as many elements
// as the slice. The caller or p's scope owns the tensor, which keeps the slice reachable until the last owner's
// release. A program that uses the slice in that time orders this with queued work (see Place.Sync).
func View[T dtype.Element](p *Place, data []T, shape ...int) (*Tensor, error) {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	size, err := sizeOf(dtype.Of[T](), shape)
	if err != nil {
		return nil, err
	}
	if size != int64(len(bytesOf(data))) {
		return nil, fmt.Errorf("tensor: View: %d elements do not fill %v%v, which has %d", len(data), dtype.Of[T](),
			shape, elements(shape))
	}
	return ViewStrided(p, data, 0, shape, nil)
}

// ViewStrided is View of part of a slice: an offset, a shape, and strides in elements (nil: row-major), which may be 0
// or negative. Every element must lie in data.
func ViewStrided[T dtype.Element](p *Place, data []T, offset int, shape, strides []int) (*Tensor, error) {
	s, err := FromBytes(p, bytesOf(data), nil)
	if err != nil {
		return nil, err
	}
	defer s.Release() // the tensor is an owner too
	return FromStorage(p, s, dtype.Of[T](), offset, shape, strides)
}
