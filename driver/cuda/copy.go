//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Copy returns an error at once if an address is not known to the device.
func (s *stream) Copy(dst, src driver.Pointer, n int64) error {
	const call = "Stream.Copy"
	checkSize(call, n)
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.end()
	if err := s.d.reachable(call, dst, n); err != nil {
		return err
	}
	if err := s.d.reachable(call, src, n); err != nil {
		return err
	}
	if err := checkOverlap(call, dst, src, n); err != nil || n == 0 {
		return err
	}
	if r := s.d.lib.MemcpyDtoDAsync(uint64(dst), uint64(src), n, s.handle); r != cu.Success {
		return s.d.fail(call, r, "%d bytes from %#x to %#x", n, src, dst)
	}
	s.queued()
	return nil
}

// Fill returns an error at once if an address is not known to the device.
func (s *stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	const call = "Stream.Fill"
	checkSize(call, n)
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.end()
	if err := s.d.reachable(call, p, n); err != nil || n == 0 {
		return err
	}
	if r := s.d.lib.MemsetD8Async(uint64(p), pattern, n, s.handle); r != cu.Success {
		return s.d.fail(call, r, "%d bytes at %#x", n, p)
	}
	s.queued()
	return nil
}

// checkSize panics if n is negative.
func checkSize(call string, n int64) {
	if n < 0 {
		panic(fmt.Sprintf("driver/cuda: %s of %d bytes", call, n))
	}
}

// checkOverlap returns an error if the ranges of n bytes at dst and src overlap. All devices share one address space.
func checkOverlap(call string, dst, src driver.Pointer, n int64) error {
	if (driver.Range{Ptr: dst, Size: n}).Overlaps(driver.Range{Ptr: src, Size: n}) {
		return invalidError(call, "the ranges %#x+%d and %#x+%d overlap", dst, n, src, n)
	}
	return nil
}
