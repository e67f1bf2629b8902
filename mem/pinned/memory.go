package pinned

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A MemAllocator is a mem.Allocator of page-locked memory. Blocks have the host's addresses; Bytes returns them as
// slices, which the device's asynchronous copies accept. It implements driver.Visible. It is safe for concurrent use.
//
// A new block is idle: Go code may write to it at once. So each block counts as used by its own stream (see
// Allocator.RecordStream): Alloc asks the device whether that stream captures, and Free takes a mark on it and on the
// used streams. A block that a capture used is kept until Allocator.ReleaseCaptured of the block that Find returns.
type MemAllocator struct {
	a      *Allocator
	closes bool // Close closes a, too
}

// Mem returns a mem.Allocator of a's memory.
func Mem(a *Allocator) *MemAllocator { return &MemAllocator{a: a} }

// mem.AllocatorFor uses this allocator for memory that is OnHost and GPUCompatible. Its settings are those of
// ParseConfig.
func init() {
	mem.RegisterFor(mem.OnHost|mem.GPUCompatible, "pinned", "", 20,
		func(dev driver.Device, settings string) (mem.Allocator, error) {
			return openMem(dev, settings, nil)
		})
}

// Alloc implements mem.Allocator. The error is that of Allocator.Alloc, or of asking whether s captures.
func (m *MemAllocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return m.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry it does not wait for frees, and does not free cached blocks.
func (m *MemAllocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("pinned: Alloc", s)
	b, err := m.a.AllocOn(s, size, o)
	if err != nil || b.Tag == 0 {
		return mem.Block{}, err
	}
	if err := m.a.RecordStream(b, s); err != nil {
		m.a.Free(b)
		return mem.Block{}, err
	}
	return b, nil
}

// Free implements mem.Allocator. Allocator.Err returns the device's errors.
func (m *MemAllocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	for _, s := range used {
		if err := m.a.RecordStream(b, s); !errors.Is(err, ErrNotLive) { // then Free panics
			m.a.recordError(err) // s is recorded in spite of the error
		}
	}
	m.a.Free(b)
}

// Bytes implements driver.Visible: the bytes must lie in one live block. The error matches driver.ErrInvalid.
func (m *MemAllocator) Bytes(p driver.Pointer, size int64) ([]byte, error) {
	m.a.mu.Lock()
	defer m.a.mu.Unlock()
	if r := m.a.find(uintptr(p), 1); r != nil {
		if from := int64(uintptr(p) - address(r.mem)); size >= 0 && size <= r.size()-from {
			return r.mem[from : from+size : from+size], nil
		}
	}
	return nil, &driver.Error{
		Call: "pinned.Bytes", Code: driver.ErrInvalid, Detail: fmt.Sprintf("%d bytes at %#x are not in one live block",
			size, uint64(p)),
	}
}

// Pinned returns the underlying Allocator, for its Err, ReleaseCaptured and Stats, if mem.Open or mem.AllocatorFor made
// it.
func (m *MemAllocator) Pinned() *Allocator { return m.a }

// EmptyCache implements mem.Trimmer.
func (m *MemAllocator) EmptyCache() error { return m.a.EmptyCache() }

// FrameworkStats implements mem.FrameworkReporter. Blocks with a pending free are in use.
func (m *MemAllocator) FrameworkStats() mem.FrameworkStats {
	s := m.a.Stats()
	u := mem.Usage{Bytes: s.ActiveBytes, Blocks: s.ActiveRequests, Largest: s.LargestAlloc}
	return u.FrameworkStats(s.AllocatedBytes)
}

// Close implements io.Closer. It closes the underlying Allocator if mem.Open or mem.AllocatorFor made it; otherwise it
// is a no-op.
func (m *MemAllocator) Close() error {
	if !m.closes {
		return nil
	}
	return m.a.Close()
}
