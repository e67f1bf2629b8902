package fault

import "github.com/ashlar-go/ashlar/driver"

// kernels wraps the inner device's.
type kernels struct {
	d     *Device
	inner driver.Kernels
}

func (k kernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	if err := k.d.call(Launch); err != nil {
		return err
	}
	return k.inner.Launch(k.d.inside(s), kernel)
}

func (k kernels) Load(code []byte) (driver.Module, error) {
	if err := k.d.call(Load); err != nil {
		return nil, err
	}
	m, err := k.inner.Load(code)
	if err != nil {
		return nil, err
	}
	return module{k.d, m}, nil
}

// module wraps one of the inner device. Its functions are the inner ones: they cannot fail.
type module struct {
	d     *Device
	inner driver.Module
}

func (m module) Function(name string) (driver.Function, error) {
	if err := m.d.call(Function); err != nil {
		return nil, err
	}
	return m.inner.Function(name)
}

// Close that fails leaves the module as it is.
func (m module) Close() error {
	if err := m.d.call(CloseModule); err != nil {
		return err
	}
	return m.inner.Close()
}
