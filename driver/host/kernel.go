package host

import "github.com/ashlar-go/ashlar/driver"

// kernels runs Go functions on the streams' goroutines. Declared accesses are ignored.
type kernels struct{ d *device }

func (k kernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	if kernel.Func == nil && kernel.Call != nil {
		return &driver.Error{
			Call: "Kernels.Launch", Code: driver.ErrUnsupported,
			Detail: "kernel " + kernel.Name + " is a call of another library; streams of this device have no handles",
		}
	}
	_, err := k.d.stream("Kernels.Launch", s).add("kernel "+kernel.Name, func() error {
		if kernel.Func == nil {
			return nil
		}
		if err := kernel.Func(memory(k)); err != nil {
			return &driver.Error{Call: "kernel " + kernel.Name, Code: err}
		}
		return nil
	})
	return err
}

// Load returns an error: kernels are Go functions.
func (k kernels) Load([]byte) (driver.Module, error) {
	return nil, &driver.Error{
		Call: "Kernels.Load", Code: driver.ErrUnsupported, Detail: "kernels of this device are Go functions",
	}
}

// visible implements driver.Visible.
type visible struct{ d *device }

func (d *device) Visible() driver.Visible { return visible{d} }

func (v visible) Bytes(p driver.Pointer, size int64) ([]byte, error) {
	if err := v.d.lookUp("Visible.Bytes", p, size); err != nil || size == 0 {
		return nil, err
	}
	return view(p, size), nil
}

// memory implements driver.Memory, for kernels.
type memory struct{ d *device }

func (m memory) Load(dst []byte, p driver.Pointer) error {
	n := int64(len(dst))
	if err := m.d.lookUp("Memory.Load", p, n); err != nil {
		return err
	}
	copy(dst, view(p, n))
	return nil
}

func (m memory) Store(p driver.Pointer, src []byte) error {
	n := int64(len(src))
	if err := m.d.lookUp("Memory.Store", p, n); err != nil {
		return err
	}
	copy(view(p, n), src)
	return nil
}
