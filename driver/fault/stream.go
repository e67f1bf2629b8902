package fault

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
)

// A stream wraps one of the inner device's.
type stream struct {
	d     *Device
	inner driver.Stream
}

// inside returns the inner device's stream behind s, or s itself if it is not of this wrapper.
func (d *Device) inside(s driver.Stream) driver.Stream {
	if own, ok := s.(*stream); ok && own != nil && own.d == d {
		return own.inner
	}
	return s
}

func (s *stream) ID() driver.StreamID { return s.inner.ID() }

func (s *stream) Copy(dst, src driver.Pointer, n int64) error {
	if err := s.d.call(Copy); err != nil {
		return err
	}
	return s.inner.Copy(dst, src, n)
}

func (s *stream) CopyIn(dst driver.Pointer, src []byte) error {
	if err := s.d.call(CopyIn); err != nil {
		return err
	}
	return s.inner.CopyIn(dst, src)
}

func (s *stream) CopyOut(dst []byte, src driver.Pointer) error {
	if err := s.d.call(CopyOut); err != nil {
		return err
	}
	return s.inner.CopyOut(dst, src)
}

func (s *stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	if err := s.d.call(Fill); err != nil {
		return err
	}
	return s.inner.Fill(p, pattern, n)
}

func (s *stream) Mark() (driver.Mark, error) {
	if err := s.d.call(Mark); err != nil {
		return driver.Mark{}, err
	}
	return s.inner.Mark()
}

func (s *stream) Reached(m driver.Mark) (bool, error) {
	if err := s.d.call(Reached); err != nil {
		return false, err
	}
	return s.inner.Reached(m)
}

func (s *stream) WaitFor(other driver.Stream, m driver.Mark) error {
	if err := s.d.call(WaitFor); err != nil {
		return err
	}
	return s.inner.WaitFor(s.d.inside(other), m)
}

func (s *stream) Sync(ctx context.Context) error {
	if err := s.d.call(Sync); err != nil {
		return err
	}
	return s.inner.Sync(ctx)
}

// Close that fails leaves the stream open.
func (s *stream) Close() error {
	if err := s.d.call(CloseStream); err != nil {
		return err
	}
	return s.inner.Close()
}
