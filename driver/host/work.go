package host

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// stagedBytes is the size up to which CopyIn copies the caller's slice and returns, rather than wait for its turn.
const stagedBytes = 64 << 10

// Copy is refused at once if an address is not the device's.
func (s *stream) Copy(dst, src driver.Pointer, n int64) error {
	const call = "Stream.Copy"
	if err := s.d.lookUp(call, dst, n); err != nil {
		return err
	}
	if err := s.d.lookUp(call, src, n); err != nil {
		return err
	}
	if dst < src+driver.Pointer(n) && src < dst+driver.Pointer(n) {
		panic(fmt.Sprintf("driver/host: Stream.Copy: the ranges %#x+%d and %#x+%d overlap", dst, n, src, n))
	}
	_, err := s.add(call, func() error { copy(view(dst, n), view(src, n)); return nil })
	return err
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
		_, err := s.add(call, func() error { copy(view(dst, n), staged); return nil })
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

// await queues work, waits until it is done, and returns what went wrong with it.
func (s *stream) await(call string, do func()) error {
	var failed error
	tick, err := s.add(call, func() error {
		defer func() {
			if v := recover(); v != nil {
				failed = failure(call, v)
			}
		}()
		do()
		return nil
	})
	if err != nil {
		return err
	}
	s.wait(tick)
	return failed
}

// Fill is refused at once if an address is not the device's.
func (s *stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	const call = "Stream.Fill"
	if err := s.d.lookUp(call, p, n); err != nil {
		return err
	}
	_, err := s.add(call, func() error { fill(view(p, n), pattern); return nil })
	return err
}

// fill sets every byte of b, by copying what is set already: memory's own speed.
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
