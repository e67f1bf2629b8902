package intercept

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
)

// A stream wraps one of the inner device's.
type stream struct {
	d     *Device
	inner driver.Stream
}

func (s *stream) call(k Kind, next func() error) error {
	return s.d.hook(Call{Kind: k, Stream: s.inner}, next)
}

func (s *stream) ID() driver.StreamID { return s.inner.ID() }

func (s *stream) Copy(dst, src driver.Pointer, n int64) error {
	return s.call(Copy, func() error { return s.inner.Copy(dst, src, n) })
}

func (s *stream) CopyIn(dst driver.Pointer, src []byte) error {
	return s.call(CopyIn, func() error { return s.inner.CopyIn(dst, src) })
}

func (s *stream) CopyOut(dst []byte, src driver.Pointer) error {
	return s.call(CopyOut, func() error { return s.inner.CopyOut(dst, src) })
}

func (s *stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	return s.call(Fill, func() error { return s.inner.Fill(p, pattern, n) })
}

func (s *stream) Mark() (m driver.Mark, err error) {
	err = s.call(Mark, func() (err error) { m, err = s.inner.Mark(); return err })
	return m, err
}

func (s *stream) Reached(m driver.Mark) (done bool, err error) {
	err = s.call(Reached, func() (err error) { done, err = s.inner.Reached(m); return err })
	return done, err
}

func (s *stream) WaitFor(other driver.Stream, m driver.Mark) error {
	return s.call(WaitFor, func() error { return s.inner.WaitFor(s.d.UnwrapStream(other), m) })
}

func (s *stream) Sync(ctx context.Context) error {
	return s.call(Sync, func() error { return s.inner.Sync(ctx) })
}

func (s *stream) Close() error { return s.call(CloseStream, s.inner.Close) }
