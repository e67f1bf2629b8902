package intercept

import (
	"os"

	"github.com/ashlar-go/ashlar/driver"
)

// sharing wraps the inner device's.
type sharing struct {
	d     *Device
	inner driver.Sharing
}

func (s sharing) Export(p driver.Pointer) (handle []byte, err error) {
	err = s.d.call(Export, func() (err error) { handle, err = s.inner.Export(p); return err })
	return handle, err
}

func (s sharing) Import(handle []byte) (p driver.Pointer, size int64, err error) {
	err = s.d.call(Import, func() (err error) { p, size, err = s.inner.Import(handle); return err })
	return p, size, err
}

func (s sharing) Forget(p driver.Pointer) error {
	return s.d.call(Forget, func() error { return s.inner.Forget(p) })
}

func (s sharing) CreateShared(size int64) (page driver.Page, err error) {
	err = s.d.call(CreateShared, func() (err error) { page, err = s.inner.CreateShared(size); return err })
	return page, err
}

func (s sharing) ExportPage(page driver.Page) (f *os.File, err error) {
	err = s.d.call(ExportPage, func() (err error) { f, err = s.inner.ExportPage(page); return err })
	return f, err
}

func (s sharing) ImportPage(f *os.File, size int64) (page driver.Page, err error) {
	err = s.d.call(ImportPage, func() (err error) { page, err = s.inner.ImportPage(f, size); return err })
	return page, err
}

func (s sharing) NewEvent() (driver.SharedEvent, error) {
	return wrapped(s.d, Call{Kind: NewEvent}, s.inner.NewEvent, s.wrap)
}

func (s sharing) OpenEvent(handle []byte) (driver.SharedEvent, error) {
	return wrapped(s.d, Call{Kind: OpenEvent}, func() (driver.SharedEvent, error) { return s.inner.OpenEvent(handle) },
		s.wrap)
}

func (s sharing) wrap(e driver.SharedEvent) driver.SharedEvent { return sharedEvent{s.d, e} }

// sharedEvent wraps one of the inner device.
type sharedEvent struct {
	d     *Device
	inner driver.SharedEvent
}

func (e sharedEvent) Handle() (handle []byte, err error) {
	err = e.d.call(EventHandle, func() (err error) { handle, err = e.inner.Handle(); return err })
	return handle, err
}

func (e sharedEvent) Record(s driver.Stream) error { return e.d.on(s, RecordEvent, e.inner.Record) }

func (e sharedEvent) Wait(s driver.Stream) error { return e.d.on(s, WaitEvent, e.inner.Wait) }

func (e sharedEvent) Reached() (done bool, err error) {
	err = e.d.call(EventReached, func() (err error) { done, err = e.inner.Reached(); return err })
	return done, err
}

func (e sharedEvent) Close() error { return e.d.call(CloseEvent, e.inner.Close) }
