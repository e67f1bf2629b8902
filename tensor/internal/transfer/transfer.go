// Package transfer moves the elements of tensors between files and devices, for the packages of file formats.
//
// Stream.CopyIn copies bytes to a device directly from host memory, such as a mapped file. Copies to the host are made
// in pieces. On the host a tensor may use the mapping in place. Errors are those of the device; callers add the
// context. All functions are safe for concurrent use with different tensors.
package transfer

import (
	"context"
	"io"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
)

// Piece is the number of bytes to move at once: enough to keep disk and link busy, and small enough to hold several.
const Piece = 4 << 20

// New returns a tensor over new memory of size bytes, which its elements fill with the given strides (nil: row-major).
// The caller or p's scope owns it.
func New(p *tensor.Place, d dtype.DType, size int64, shape, strides []int) (*tensor.Tensor, error) {
	s, err := p.Alloc(size)
	if err != nil {
		return nil, err
	}
	defer s.Release() // the tensor is an owner too
	return tensor.FromStorage(p, s, d, 0, shape, strides)
}

// In copies b to the memory of t, which New made, beginning at byte at. The slice may be reused when In returns.
func In(t *tensor.Tensor, at int64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	t.Pin()
	defer t.Unpin()
	s := t.Place().Stream()
	if err := t.Use(s, true); err != nil {
		return err
	}
	return s.CopyIn(t.Array().Ptr+driver.Pointer(at), b)
}

// Prepare makes a later In of n bytes at byte at faster, if the memory is new and on the host. It does not change the
// contents.
func Prepare(t *tensor.Tensor, at, n int64) {
	t.Pin()
	defer t.Unpin()
	if b := t.Array().Bytes; b != nil {
		mapped.Prepare(b[at : at+n])
	}
}

// CanShare reports whether a tensor at p can use b in place: p is on the host, and b is aligned for the elements.
func CanShare(p *tensor.Place, d dtype.DType, b []byte) bool {
	align := uintptr(min(d.Size(), 8)) // sufficient for complex numbers too
	return p.Device().Visible() != nil && len(b) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%align == 0
}

// Share returns a tensor over b, part of f. The tensor is one more owner of f, until the streams that used it are done.
// CanShare must be true. The caller or p's scope owns the tensor.
func Share(p *tensor.Place, f *mapped.File, b []byte, d dtype.DType, shape, strides []int) (*tensor.Tensor, error) {
	s, err := tensor.FromBytes(p, b, func(used ...driver.Stream) {
		for _, stream := range used {
			_ = stream.Sync(context.Background()) // a stream that failed or was closed has no work left
		}
		_ = f.Release()
	})
	if err != nil {
		return nil, err
	}
	f.Retain()
	defer s.Release()
	return tensor.FromStorage(p, s, d, 0, shape, strides)
}

// Out waits for the work that writes t and writes its elements to w, in row-major order, a piece at a time.
func Out(w io.Writer, t *tensor.Tensor) error {
	if t.Size() == 0 {
		return nil
	}
	p := t.Place().Unscoped()
	whole, err := t.Contiguous(p)
	if err != nil {
		return err
	}
	defer whole.Release()
	whole.Pin()
	defer whole.Unpin()
	s := p.Stream()
	if err := whole.Use(s, false); err != nil {
		return err
	}
	size, array := whole.Size(), whole.Array()
	start := int64(whole.Offset()) * int64(whole.DType().Size())
	memory := array.Bytes
	if memory != nil {
		if err := p.Sync(context.Background()); err != nil {
			return err
		}
		memory = memory[start:][:size]
	}
	var room []byte
	if memory == nil {
		room = make([]byte, min(size, Piece))
	}
	for at := int64(0); at < size; at += Piece {
		n := min(Piece, size-at)
		piece := room
		if memory != nil {
			piece = memory[at : at+n]
		} else if err := s.CopyOut(room[:n], array.Ptr+driver.Pointer(start+at)); err != nil {
			return err
		}
		if _, err := w.Write(piece[:n]); err != nil {
			return err
		}
	}
	return p.Backend().Failed()
}
