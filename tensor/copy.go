package tensor

import (
	"context"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// Clone returns a contiguous copy of t at p, which may be on another device; a nil p means t's own place. The caller or
// p's scope owns it. Between devices it waits for the work that writes t.
func (t *Tensor) Clone(p *Place) (*Tensor, error) {
	return t.clone("Clone", p.orDefault(t.alive("Clone").place), t.dtype)
}

// Contiguous returns a tensor that shares t's memory if t is contiguous and on p's device, and otherwise a copy at p.
// In both cases the caller or p's scope owns the result. A nil p means t's own place.
func (t *Tensor) Contiguous(p *Place) (*Tensor, error) {
	p = p.orDefault(t.alive("Contiguous").place)
	if p.SameDevice(t.place) && t.IsContiguous() {
		return t.share(p), nil
	}
	return t.clone("Contiguous", p, t.dtype)
}

// To returns a tensor that shares t's memory if t is on p's device, and otherwise a copy at p. In both cases the caller
// or p's scope owns the result.
func (t *Tensor) To(p *Place) (*Tensor, error) {
	if t.alive("To"); p == nil {
		panic("tensor: To no place")
	}
	if p.SameDevice(t.place) {
		return t.share(p), nil
	}
	return t.clone("To", p, t.dtype)
}

// Cast returns a tensor that shares t's memory if t has type d and is on p's device, and otherwise a converted copy at
// p; dtype.Convert defines the rounding. In both cases the caller or p's scope owns the result. A nil p means t's own
// place.
func (t *Tensor) Cast(p *Place, d dtype.DType) (*Tensor, error) {
	p = p.orDefault(t.alive("Cast").place)
	if p.SameDevice(t.place) && t.dtype == d {
		return t.share(p), nil
	}
	return t.clone("Cast", p, d)
}

// clone returns a new contiguous tensor at p with t's elements converted to d.
func (t *Tensor) clone(call string, p *Place, d dtype.DType) (*Tensor, error) {
	if p.SameDevice(t.place) {
		return finish(Empty(p, d, t.shape...))(func(c *Tensor) error { return c.convert(p, t) })
	}
	moved, err := t.move(call, p)
	if err != nil || d == t.dtype {
		return moved, err
	}
	defer moved.Release()
	return moved.clone(call, p, d)
}

// move returns a copy on another device.
func (t *Tensor) move(call string, p *Place) (*Tensor, error) {
	whole, err := t.Contiguous(t.place.Unscoped())
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	return finish(Empty(p, t.dtype, t.shape...))(func(c *Tensor) error {
		if err := c.transfer(p, whole); err != nil {
			return fmt.Errorf("tensor: %s of %v from %v to %v: %w", call, t.brief(), t.place, p, err)
		}
		return nil
	})
}

// CopyFrom queues a copy of src's elements to t, converted to t's type and broadcast to its shape. The two may be on
// different devices. They may overlap, in one storage or in several over the same memory: t gets the elements that src
// had before. A nil p means t's own place; p must be on t's device.
func (t *Tensor) CopyFrom(p *Place, src *Tensor) error {
	p = p.orDefault(t.alive("CopyFrom").place)
	src.alive("CopyFrom")
	if err := t.Writable("CopyFrom", p); err != nil {
		return err
	}
	wide, err := src.Expand(t.shape...)
	if err != nil {
		return fmt.Errorf("tensor: CopyFrom: %v cannot be broadcast to %v", src.brief(), t.brief())
	}
	switch {
	case !t.Overlaps(src):
		return t.copyFrom(p, src)
	case t.SameElements(wide):
		return nil
	}
	at := p
	if !src.place.SameDevice(p) {
		at = src.place
	}
	apart, err := src.Clone(at.Unscoped())
	if err != nil {
		return err
	}
	defer apart.Release()
	return t.copyFrom(p, apart)
}

// copyFrom is CopyFrom for a src that can be broadcast to t and shares no memory with it.
func (t *Tensor) copyFrom(p *Place, src *Tensor) error {
	if src.place.SameDevice(p) {
		wide, err := src.Expand(t.shape...)
		if err != nil {
			return err
		}
		return t.convert(p, wide)
	}
	if t.dtype == src.dtype && t.IsContiguous() && slices.Equal(t.shape, src.shape) {
		whole, err := src.Contiguous(src.place.Unscoped())
		if err != nil {
			return err
		}
		defer whole.Release()
		return t.transfer(p, whole)
	}
	near, err := src.Clone(p.Unscoped())
	if err != nil {
		return err
	}
	defer near.Release()
	return t.copyFrom(p, near)
}

// convert queues a copy of src, which has t's shape and device and shares no memory with t.
func (t *Tensor) convert(p *Place, src *Tensor) error {
	src.Pin()
	defer src.Unpin()
	t.Pin()
	defer t.Unpin()
	if err := src.Use(p.stream, false); err != nil {
		return err
	}
	if err := t.Use(p.stream, true); err != nil {
		return err
	}
	return p.state.backend.Copy(p.Queue(), t.Array(), src.Array())
}

// Writable returns an error, with the name of the call, if work at p cannot write t: t is on another device or is a
// broadcast view.
func (t *Tensor) Writable(call string, p *Place) error {
	if !p.SameDevice(t.place) {
		return fmt.Errorf("tensor: %s: %v is on %v, the place given on %v", call, t.brief(), t.place, p)
	}
	for i, n := range t.shape {
		if n > 1 && t.strides[i] == 0 {
			return fmt.Errorf("tensor: %s to %v, a broadcast view: its axis %d has one element for %d indices", call,
				t.brief(), i, n)
		}
	}
	return nil
}

// transfer copies src, of the same type and shape and on another device, to t. Both are contiguous.
func (t *Tensor) transfer(p *Place, src *Tensor) error {
	size := t.Size()
	if size == 0 {
		return nil
	}
	src.Pin()
	defer src.Unpin()
	t.Pin()
	defer t.Unpin()
	from := src.place
	if err := src.Use(from.stream, false); err != nil {
		return err
	}
	if err := t.Use(p.stream, true); err != nil {
		return err
	}
	to, at := t.storage.state.visible, t.first(t.Array().Ptr)
	near, start := src.storage.state.visible, src.first(src.Array().Ptr)
	switch peers := p.state.device.Peers(); {
	case near && to: // both in the host's memory
		for _, s := range []driver.Stream{from.stream, p.stream} {
			if err := s.Sync(context.Background()); err != nil {
				return err
			}
		}
		copy(t.bytes(), src.bytes())
		return nil
	case near: // host to device
		if err := from.stream.Sync(context.Background()); err != nil {
			return err
		}
		return p.stream.CopyIn(at, src.bytes())
	case to: // device to host
		if err := p.stream.Sync(context.Background()); err != nil {
			return err
		}
		return from.stream.CopyOut(t.bytes(), start)
	case peers != nil && p.state.device.Info().Driver == from.state.device.Info().Driver:
		for _, s := range []driver.Stream{from.stream, p.stream} { // a stream cannot wait for a mark of another device
			if err := s.Sync(context.Background()); err != nil {
				return err
			}
		}
		if err := peers.CopyPeer(p.stream, at, p.state.device, start, from.state.device, size); err != nil {
			return err
		}
		return p.stream.Sync(context.Background()) // until then src must live, which its own streams do not ensure
	}
	piece := make([]byte, min(size, 16<<20))
	for done := int64(0); done < size; done += int64(len(piece)) {
		part := piece[:min(int64(len(piece)), size-done)]
		if err := from.stream.CopyOut(part, start+driver.Pointer(done)); err != nil {
			return err
		}
		if err := p.stream.CopyIn(at+driver.Pointer(done), part); err != nil {
			return err
		}
	}
	return nil
}

// bytes returns the memory of a contiguous tensor that Go code can access. The caller has pinned it.
func (t *Tensor) bytes() []byte {
	from := int64(t.offset) * int64(t.dtype.Size())
	_, bytes := t.storage.state.address()
	return bytes[from : from+t.Size()]
}
