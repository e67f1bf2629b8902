package intercept

import "github.com/ashlar-go/ashlar/driver"

// virtualMemory wraps the inner device's.
type virtualMemory struct {
	d     *Device
	inner driver.VirtualMemory
}

func (v virtualMemory) Reserve(size int64) (p driver.Pointer, err error) {
	err = v.d.call(Reserve, func() (err error) { p, err = v.inner.Reserve(size); return err })
	return p, err
}

func (v virtualMemory) Release(p driver.Pointer, size int64) error {
	return v.d.call(Release, func() error { return v.inner.Release(p, size) })
}

func (v virtualMemory) Create(size int64) (page driver.Page, err error) {
	err = v.d.call(Create, func() (err error) { page, err = v.inner.Create(size); return err })
	return page, err
}

func (v virtualMemory) Drop(page driver.Page) error {
	return v.d.call(Drop, func() error { return v.inner.Drop(page) })
}

func (v virtualMemory) Map(p driver.Pointer, pages ...driver.Page) error {
	return v.d.call(Map, func() error { return v.inner.Map(p, pages...) })
}

func (v virtualMemory) Unmap(p driver.Pointer, size int64) error {
	return v.d.call(Unmap, func() error { return v.inner.Unmap(p, size) })
}
