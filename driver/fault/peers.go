package fault

import "github.com/ashlar-go/ashlar/driver"

// peers wraps the inner device's.
type peers struct {
	d     *Device
	inner driver.Peers
}

// bare returns the device behind a wrapper of this package, of whatever rules, or other itself.
func bare(other driver.Device) driver.Device {
	if wrapper, ok := other.(*Device); ok && wrapper != nil {
		return wrapper.inner
	}
	return other
}

func (p peers) CanAccess(other driver.Device) (bool, error) {
	if err := p.d.call(CanAccess); err != nil {
		return false, err
	}
	return p.inner.CanAccess(bare(other))
}

func (p peers) Enable(other driver.Device) error {
	if err := p.d.call(Enable); err != nil {
		return err
	}
	return p.inner.Enable(bare(other))
}

func (p peers) Disable(other driver.Device) error {
	if err := p.d.call(Disable); err != nil {
		return err
	}
	return p.inner.Disable(bare(other))
}

func (p peers) CopyPeer(
	s driver.Stream, dst driver.Pointer, to driver.Device, src driver.Pointer, from driver.Device, n int64,
) error {
	if err := p.d.call(CopyPeer); err != nil {
		return err
	}
	return p.inner.CopyPeer(p.d.inside(s), dst, bare(to), src, bare(from), n)
}

func (p peers) Share(at driver.Pointer, size int64, others ...driver.Device) error {
	if err := p.d.call(Share); err != nil {
		return err
	}
	inside := make([]driver.Device, len(others))
	for i, other := range others {
		inside[i] = bare(other)
	}
	return p.inner.Share(at, size, inside...)
}
