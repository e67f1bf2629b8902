package fault

import "github.com/ashlar-go/ashlar/driver"

// pinned wraps the inner device's.
type pinned struct {
	d     *Device
	inner driver.Pinned
}

func (p pinned) AllocHost(size int64) ([]byte, error) {
	if err := p.d.call(AllocHost); err != nil {
		return nil, err
	}
	return p.inner.AllocHost(size)
}

func (p pinned) FreeHost(b []byte) error {
	if err := p.d.call(FreeHost); err != nil {
		return err
	}
	return p.inner.FreeHost(b)
}

func (p pinned) Register(b []byte) error {
	if err := p.d.call(Register); err != nil {
		return err
	}
	return p.inner.Register(b)
}

func (p pinned) Unregister(b []byte) error {
	if err := p.d.call(Unregister); err != nil {
		return err
	}
	return p.inner.Unregister(b)
}

// IsPinned is the inner device's, uncounted: it cannot fail.
func (p pinned) IsPinned(b []byte) bool { return p.inner.IsPinned(b) }

func (p pinned) CopyInAsync(s driver.Stream, dst driver.Pointer, src []byte) error {
	if err := p.d.call(CopyInAsync); err != nil {
		return err
	}
	return p.inner.CopyInAsync(p.d.inside(s), dst, src)
}

func (p pinned) CopyOutAsync(s driver.Stream, dst []byte, src driver.Pointer) error {
	if err := p.d.call(CopyOutAsync); err != nil {
		return err
	}
	return p.inner.CopyOutAsync(p.d.inside(s), dst, src)
}
