package host

import (
	"github.com/ashlar-go/ashlar/driver"
)

// stagedBytes is the size up to which CopyIn copies the caller's slice and returns, rather than wait for the stream.
const stagedBytes = 64 << 10

// A span is memory that work touches: memory of a device or, if host is set, page-locked memory of the device.
type span struct {
	d    *device
	at   driver.Pointer
	size int64
	host bool
}

// checkAccess fails unless the work may touch all the spans now.
func checkAccess(call string, spans ...span) error {
	for _, u := range spans {
		var err error
		if u.host {
			err = u.d.pins.lookUp(call, u.at, u.size)
		} else {
			err = u.d.lookUp(call, u.at, u.size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copySpan queues a copy between spans of one size. It fails if they overlap.
func (s *stream) copySpan(call string, dst, src span) error {
	if err := checkAccess(call, dst, src); err != nil {
		return err
	}
	n := src.size
	if (driver.Range{Ptr: dst.at, Size: n}).Overlaps(driver.Range{Ptr: src.at, Size: n}) {
		return invalidError(call, "the ranges %#x+%d and %#x+%d overlap", dst.at, n, src.at, n)
	}
	_, err := s.add(call, func() error { copy(view(dst.at, n), view(src.at, n)); return nil }, dst, src)
	return err
}

// Copy fails at once if an address is not the device's.
func (s *stream) Copy(dst, src driver.Pointer, n int64) error {
	return s.copySpan("Stream.Copy", span{d: s.d, at: dst, size: n}, span{d: s.d, at: src, size: n})
}

// CopyIn of up to 64 KiB does not wait.
func (s *stream) CopyIn(dst driver.Pointer, src []byte) error {
	const call = "Stream.CopyIn"
	n := int64(len(src))
	if err := s.d.lookUp(call, dst, n); err != nil {
		return err
	}
	if n <= stagedBytes {
		staged := append([]byte(nil), src...)
		_, err := s.addNow(call, func() error { copy(view(dst, n), staged); return nil })
		return err
	}
	return s.await(call, func() { copy(view(dst, n), src) })
}

// CopyOut also returns the error that the stream's next Sync will, since the bytes may be wrong.
func (s *stream) CopyOut(dst []byte, src driver.Pointer) error {
	const call = "Stream.CopyOut"
	n := int64(len(dst))
	if err := s.d.lookUp(call, src, n); err != nil {
		return err
	}
	if err := s.await(call, func() { copy(dst, view(src, n)) }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// await queues work, waits until it is done, and returns its error.
func (s *stream) await(call string, do func()) error {
	var failed error
	tick, err := s.addNow(call, func() error {
		failed = attempt(call, func() error { do(); return nil })
		return nil
	})
	if err != nil {
		return err
	}
	s.wait(tick)
	return failed
}

// Fill fails at once if an address is not the device's.
func (s *stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	const call = "Stream.Fill"
	use := span{d: s.d, at: p, size: n}
	if err := checkAccess(call, use); err != nil {
		return err
	}
	_, err := s.add(call, func() error { fill(view(p, n), pattern); return nil }, use)
	return err
}

// fill sets every byte of b. It copies the bytes that are already set, which is as fast as the memory permits.
func fill(b []byte, pattern byte) {
	if pattern == 0 {
		clear(b)
		return
	}
	if len(b) == 0 {
		return
	}
	b[0] = pattern
	for n := 1; n < len(b); {
		n += copy(b[n:], b[:min(n, 64<<10)])
	}
}
