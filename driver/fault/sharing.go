package fault

import (
	"os"

	"github.com/ashlar-go/ashlar/driver"
)

// sharing wraps the inner device's.
type sharing struct {
	d     *Device
	inner driver.Sharing
}

func (s sharing) Export(p driver.Pointer) ([]byte, error) {
	if err := s.d.call(Export); err != nil {
		return nil, err
	}
	return s.inner.Export(p)
}

func (s sharing) Import(handle []byte) (driver.Pointer, int64, error) {
	if err := s.d.call(Import); err != nil {
		return 0, 0, err
	}
	return s.inner.Import(handle)
}

func (s sharing) Forget(p driver.Pointer) error {
	if err := s.d.call(Forget); err != nil {
		return err
	}
	return s.inner.Forget(p)
}

func (s sharing) CreateShared(size int64) (driver.Page, error) {
	if err := s.d.call(CreateShared); err != nil {
		return driver.Page{}, err
	}
	return s.inner.CreateShared(size)
}

func (s sharing) ExportPage(page driver.Page) (*os.File, error) {
	if err := s.d.call(ExportPage); err != nil {
		return nil, err
	}
	return s.inner.ExportPage(page)
}

func (s sharing) ImportPage(f *os.File, size int64) (driver.Page, error) {
	if err := s.d.call(ImportPage); err != nil {
		return driver.Page{}, err
	}
	return s.inner.ImportPage(f, size)
}

func (s sharing) NewEvent() (driver.SharedEvent, error) {
	if err := s.d.call(NewEvent); err != nil {
		return nil, err
	}
	return s.wrap(s.inner.NewEvent())
}

func (s sharing) OpenEvent(handle []byte) (driver.SharedEvent, error) {
	if err := s.d.call(OpenEvent); err != nil {
		return nil, err
	}
	return s.wrap(s.inner.OpenEvent(handle))
}

func (s sharing) wrap(e driver.SharedEvent, err error) (driver.SharedEvent, error) {
	if err != nil {
		return nil, err
	}
	return sharedEvent{s.d, e}, nil
}

// sharedEvent wraps one of the inner device.
type sharedEvent struct {
	d     *Device
	inner driver.SharedEvent
}

func (e sharedEvent) Handle() ([]byte, error) {
	if err := e.d.call(EventHandle); err != nil {
		return nil, err
	}
	return e.inner.Handle()
}

func (e sharedEvent) Record(s driver.Stream) error {
	if err := e.d.call(RecordEvent); err != nil {
		return err
	}
	return e.inner.Record(e.d.inside(s))
}

func (e sharedEvent) Wait(s driver.Stream) error {
	if err := e.d.call(WaitEvent); err != nil {
		return err
	}
	return e.inner.Wait(e.d.inside(s))
}

func (e sharedEvent) Reached() (bool, error) {
	if err := e.d.call(EventReached); err != nil {
		return false, err
	}
	return e.inner.Reached()
}

// Close that fails leaves the event open.
func (e sharedEvent) Close() error {
	if err := e.d.call(CloseEvent); err != nil {
		return err
	}
	return e.inner.Close()
}
