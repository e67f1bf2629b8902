//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// All page-locked host memory is portable, so that other devices of the process also copy from and to it at full speed.
// IsPinned reports memory of this device only. The driver maps the memory at the same address for host and device.

// A pinnedTable holds the page-locked ranges of a device.
type pinnedTable struct {
	mu     sync.RWMutex      // a leaf: libcuda is not called with it held
	ranges spans.Table[bool] // true for memory of AllocHost, false for memory of Register
}

// has reports whether b lies in one range.
func (p *pinnedTable) has(b []byte) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	at := driver.Pointer(hostAddress(b))
	i := p.ranges.Find(at)
	return i >= 0 && driver.Pointer(len(b)) <= p.ranges[i].End()-at
}

// add adds a range, unless it overlaps another.
func (p *pinnedTable) add(b []byte, allocated bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, size := driver.Pointer(hostAddress(b)), int64(len(b))
	if !p.ranges.Free(at, size) {
		return false
	}
	p.ranges.Insert(spans.Entry[bool]{At: at, Size: size, Value: allocated})
	return true
}

// remove removes the range that is exactly b, if it is of the given origin.
func (p *pinnedTable) remove(b []byte, allocated bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.ranges.Starting(driver.Pointer(hostAddress(b)))
	if i < 0 || p.ranges[i].Size != int64(len(b)) || p.ranges[i].Value != allocated {
		return false
	}
	p.ranges.Remove(i, i+1)
	return true
}

type pinned struct{ d *device }

func (d *device) Pinned() driver.Pinned { return pinned{d} }

func (p pinned) AllocHost(size int64) ([]byte, error) {
	const call = "Pinned.AllocHost"
	if size <= 0 {
		panic(fmt.Sprintf("driver/cuda: %s of %d bytes: want a positive size", call, size))
	}
	if err := p.d.enter(call); err != nil {
		return nil, err
	}
	defer p.d.leave()
	address, r := p.d.lib.MemHostAlloc(size, cu.HostPortable)
	if r != cu.Success {
		return nil, p.d.fail(call, r, "%d bytes", size)
	}
	b := hostBytes(address, size)
	p.d.pinned.add(b, true)
	return b, nil
}

// FreeHost waits for queued work, which may use b, because libcuda does not guarantee to wait.
func (p pinned) FreeHost(b []byte) error {
	const call = "Pinned.FreeHost"
	return p.remove(call, b, true, p.d.lib.MemFreeHost)
}

// Register returns ErrInvalid if b overlaps page-locked memory.
func (p pinned) Register(b []byte) error {
	const call = "Pinned.Register"
	if err := p.d.enter(call); err != nil {
		return err
	}
	defer p.d.leave()
	if len(b) == 0 {
		return invalidError(call, "no bytes")
	}
	if !p.d.pinned.add(b, false) {
		return invalidError(call, "the %d bytes at %#x overlap page-locked memory", len(b), hostAddress(b))
	}
	r := p.d.lib.MemHostRegister(hostAddress(b), int64(len(b)), cu.HostPortable)
	if r != cu.Success {
		p.d.pinned.remove(b, false)
	}
	return p.d.fail(call, r, "%d bytes at %#x", len(b), hostAddress(b))
}

// Unregister waits like FreeHost.
func (p pinned) Unregister(b []byte) error {
	const call = "Pinned.Unregister"
	return p.remove(call, b, false, p.d.lib.MemHostUnregister)
}

// remove waits for queued work and frees b. If that fails, b stays in the table.
func (p pinned) remove(call string, b []byte, allocated bool, giveBack func(uintptr) cu.Result) error {
	if err := p.d.enter(call); err != nil {
		return err
	}
	defer p.d.leave()
	if !p.d.pinned.remove(b, allocated) {
		return invalidError(call, "the %d bytes at %#x are not what this device page-locked so", len(b), hostAddress(b))
	}
	err := p.d.drain(call)
	if err == nil {
		err = p.d.fail(call, giveBack(hostAddress(b)), "%d bytes at %#x", len(b), hostAddress(b))
	}
	if err != nil {
		p.d.pinned.add(b, allocated)
	}
	return err
}

// IsPinned does not call libcuda.
func (p pinned) IsPinned(b []byte) bool { return p.d.pinned.has(b) }

func (p pinned) CopyInAsync(s driver.Stream, dst driver.Pointer, src []byte) error {
	const call = "Pinned.CopyInAsync"
	return p.copyAsync(call, p.d.ownStream(call, s), dst, src, func(s *stream) cu.Result {
		return p.d.lib.MemcpyHtoDAsync(uint64(dst), hostAddress(src), int64(len(src)), s.handle)
	})
}

func (p pinned) CopyOutAsync(s driver.Stream, dst []byte, src driver.Pointer) error {
	const call = "Pinned.CopyOutAsync"
	return p.copyAsync(call, p.d.ownStream(call, s), src, dst, func(s *stream) cu.Result {
		return p.d.lib.MemcpyDtoHAsync(hostAddress(dst), uint64(src), int64(len(dst)), s.handle)
	})
}

// copyAsync queues a copy between p on the device and b.
func (p pinned) copyAsync(call string, s *stream, at driver.Pointer, b []byte, queue func(*stream) cu.Result) error {
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.end()
	if len(b) == 0 {
		return nil
	}
	if !p.d.pinned.has(b) {
		return invalidError(call, "the %d bytes at %#x are not page-locked memory of this device", len(b),
			hostAddress(b))
	}
	if err := p.d.reachable(call, at, int64(len(b))); err != nil {
		return err
	}
	if r := queue(s); r != cu.Success {
		return p.d.fail(call, r, "%d bytes", len(b))
	}
	s.queued()
	return nil
}

// closePinned frees the memory that callers did not free. The device's work is done.
func (d *device) closePinned() cu.Result {
	d.pinned.mu.Lock()
	ranges := d.pinned.ranges
	d.pinned.ranges = nil
	d.pinned.mu.Unlock()
	first := cu.Success
	for _, e := range ranges {
		giveBack := d.lib.MemHostUnregister
		if e.Value {
			giveBack = d.lib.MemFreeHost
		}
		if r := giveBack(uintptr(e.At)); first == cu.Success {
			first = r
		}
	}
	return first
}

// hostAddress returns the address of b.
func hostAddress(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// hostBytes returns memory that libcuda allocated. It is outside of Go's heap. It is computed as an offset from a nil
// pointer, which the checks of -race and -d=checkptr accept.
func hostBytes(address uintptr, size int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), address)), size)
}
