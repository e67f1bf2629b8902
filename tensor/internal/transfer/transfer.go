// Package transfer moves the elements of tensors between files and devices, for the packages of file formats.
//
// Bytes go to a device by Stream.CopyIn straight from where they lie (a mapped file, say) and come back in pieces; on the
// host a tensor may look into the mapping itself. Errors are the device's, as they are: the callers say what they were
// about. Everything here is safe for concurrent use on tensors that are not shared.
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

// Piece is how many bytes are moved at once: enough to keep disk and link busy, little enough to be held twice.
const Piece = 8 << 20

// New returns a tensor over fresh memory of that many bytes, which its elements with those strides (nil: row by row) fill.
// The caller (or p's scope) owns it.
func New(p *tensor.Place, d dtype.DType, size int64, shape, strides []int) (*tensor.Tensor, error) {
	s, err := p.Alloc(size)
	if err != nil {
		return nil, err
	}
	defer s.Release() // the tensor holds it beside
	return tensor.FromStorage(p, s, d, 0, shape, strides)
}

// In copies b to the memory of t, which New made, from byte at on. The slice may be reused when it returns.
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

// Prepare makes a later In of n bytes from byte at on faster, where the memory is the host's and fresh. It changes nothing,
// and may be called at any time before.
func Prepare(t *tensor.Tensor, at, n int64) {
	t.Pin()
	defer t.Unpin()
	if b := t.Array().Bytes; b != nil {
		mapped.Prepare(b[at : at+n])
	}
}

// CanShare reports whether a tensor of p can look at b in place: p is on the host, and b lies where such elements may.
func CanShare(p *tensor.Place, d dtype.DType, b []byte) bool {
	align := uintptr(min(d.Size(), 8)) // of complex numbers too more than enough
	return p.Device().Visible() != nil && len(b) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%align == 0
}

// Share returns a tensor that looks at b, part of f, and owns f beside others until the streams that used it are done. Ask
// CanShare first. The caller (or p's scope) owns the tensor.
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

// Out writes the elements of t to w, row by row, a piece at a time, after the work that writes them.
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
