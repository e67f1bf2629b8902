package intercept

import "github.com/ashlar-go/ashlar/driver"

// pinned wraps the inner device's.
type pinned struct {
	d     *Device
	inner driver.Pinned
}

func (p pinned) AllocHost(size int64) (b []byte, err error) {
	err = p.d.call(AllocHost, func() (err error) { b, err = p.inner.AllocHost(size); return err })
	return b, err
}

func (p pinned) FreeHost(b []byte) error {
	return p.d.call(FreeHost, func() error { return p.inner.FreeHost(b) })
}

func (p pinned) Register(b []byte) error {
	return p.d.call(Register, func() error { return p.inner.Register(b) })
}

func (p pinned) Unregister(b []byte) error {
	return p.d.call(Unregister, func() error { return p.inner.Unregister(b) })
}

func (p pinned) IsPinned(b []byte) bool { return p.inner.IsPinned(b) }

func (p pinned) CopyInAsync(s driver.Stream, dst driver.Pointer, src []byte) error {
	return p.d.on(s, CopyInAsync, func(s driver.Stream) error { return p.inner.CopyInAsync(s, dst, src) })
}

func (p pinned) CopyOutAsync(s driver.Stream, dst []byte, src driver.Pointer) error {
	return p.d.on(s, CopyOutAsync, func(s driver.Stream) error { return p.inner.CopyOutAsync(s, dst, src) })
}

// peers wraps the inner device's.
type peers struct {
	d     *Device
	inner driver.Peers
}

func (p peers) CanAccess(other driver.Device) (yes bool, err error) {
	err = p.d.call(CanAccess, func() (err error) { yes, err = p.inner.CanAccess(innerDevice(other)); return err })
	return yes, err
}

func (p peers) Enable(other driver.Device) error {
	return p.d.call(Enable, func() error { return p.inner.Enable(innerDevice(other)) })
}

func (p peers) Disable(other driver.Device) error {
	return p.d.call(Disable, func() error { return p.inner.Disable(innerDevice(other)) })
}

func (p peers) CopyPeer(
	s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64,
) error {
	return p.d.on(s, CopyPeer, func(s driver.Stream) error {
		return p.inner.CopyPeer(s, dst, innerDevice(to), src, innerDevice(from), n)
	})
}

func (p peers) Share(at driver.Pointer, size int64, others ...driver.Device) error {
	inner := make([]driver.Device, len(others))
	for i, other := range others {
		inner[i] = innerDevice(other)
	}
	return p.d.call(Share, func() error { return p.inner.Share(at, size, inner...) })
}
