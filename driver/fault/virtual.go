package fault

import "github.com/ashlar-go/ashlar/driver"

// virtualMemory wraps the inner device's.
type virtualMemory struct {
	d     *Device
	inner driver.VirtualMemory
}

func (v virtualMemory) Reserve(size int64) (driver.Pointer, error) {
	if err := v.d.call(Reserve); err != nil {
		return 0, err
	}
	return v.inner.Reserve(size)
}

func (v virtualMemory) Release(p driver.Pointer, size int64) error {
	if err := v.d.call(Release); err != nil {
		return err
	}
	return v.inner.Release(p, size)
}

func (v virtualMemory) Create(size int64) (driver.Page, error) {
	if err := v.d.call(Create); err != nil {
		return driver.Page{}, err
	}
	return v.inner.Create(size)
}

func (v virtualMemory) Drop(p driver.Page) error {
	if err := v.d.call(Drop); err != nil {
		return err
	}
	return v.inner.Drop(p)
}

func (v virtualMemory) Map(p driver.Pointer, pages ...driver.Page) error {
	if err := v.d.call(Map); err != nil {
		return err
	}
	return v.inner.Map(p, pages...)
}

func (v virtualMemory) Unmap(p driver.Pointer, size int64) error {
	if err := v.d.call(Unmap); err != nil {
		return err
	}
	return v.inner.Unmap(p, size)
}
