//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Copies between host memory and the device. This file selects the method of a copy and has all methods except that of
// long copies (pieces.go). Page-locked memory is copied in place; other memory is copied through slots and areas, see
// staging.go. A copy that has to wait is refused while the stream captures, even if the memory is page-locked:
// Pinned.CopyInAsync and CopyOutAsync can be captured.

// CopyIn returns when src is in page-locked areas; the device may still be copying from them. If src itself is
// page-locked, it returns when the copy is done. A copy of more than 512 KiB has several pieces; work that other
// goroutines queue on the stream during the copy may run between them.
func (s *stream) CopyIn(dst driver.Pointer, src []byte) error {
	const call = "Stream.CopyIn"
	if err := s.beginHostCopy(call, dst, len(src)); err != nil {
		return err
	}
	defer s.d.leave()
	switch {
	case len(src) == 0:
		s.mu.Unlock()
		return nil
	case s.d.pinned.has(src):
		return s.copyInPlace(call, dst, src)
	case len(src) <= slotBytes:
		return s.copyInShort(call, dst, src)
	}
	s.mu.Unlock()
	return s.copyInLong(call, dst, src)
}

// CopyOut waits for the copy.
func (s *stream) CopyOut(dst []byte, src driver.Pointer) error {
	const call = "Stream.CopyOut"
	if err := s.beginHostCopy(call, src, len(dst)); err != nil {
		return err
	}
	defer s.d.leave()
	if len(dst) == 0 || s.d.pinned.has(dst) {
		return s.copyOutPlace(call, dst, src)
	}
	s.mu.Unlock()
	if len(dst) <= slotBytes {
		return s.copyOutShort(call, dst, src)
	}
	return s.copyOutLong(call, dst, src)
}

// beginHostCopy is begin for a copy of n bytes at p that has to wait, or may have to.
func (s *stream) beginHostCopy(call string, p driver.Pointer, n int) error {
	if err := s.begin(call); err != nil {
		return err
	}
	err := s.refuseCapture(call)
	if err == nil {
		err = s.d.reachable(call, p, int64(n))
	}
	if err != nil {
		s.end()
	}
	return err
}

// copyInPlace makes the driver read src itself and waits for it. This has full speed if src is page-locked; otherwise
// the driver uses its own buffers. s.mu is held at the call and unlocked at the return.
func (s *stream) copyInPlace(call string, dst driver.Pointer, src []byte) error {
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(src))
	defer pin.Unpin()
	return s.queueAndAwait(call, len(src), func() cu.Result {
		return s.d.lib.MemcpyHtoDAsync(uint64(dst), hostAddress(src), int64(len(src)), s.handle)
	})
}

// copyOutPlace is copyInPlace in the other direction. A copy of 0 bytes also waits.
func (s *stream) copyOutPlace(call string, dst []byte, src driver.Pointer) error {
	var pin runtime.Pinner
	if len(dst) > 0 {
		pin.Pin(unsafe.SliceData(dst))
	}
	defer pin.Unpin()
	return s.queueAndAwait(call, len(dst), func() cu.Result {
		if len(dst) == 0 {
			return cu.Success
		}
		return s.d.lib.MemcpyDtoHAsync(hostAddress(dst), uint64(src), int64(len(dst)), s.handle)
	})
}

// queueAndAwait queues a copy of n bytes and waits until it is done. s.mu is held at the call and unlocked at the
// return.
func (s *stream) queueAndAwait(call string, n int, queue func() cu.Result) error {
	if r := queue(); r != cu.Success {
		s.mu.Unlock()
		return s.d.fail(call, r, "%d bytes", n)
	}
	if n > 0 {
		s.queued()
	}
	m, err := s.mark(call)
	if err != nil {
		// Without an event it is unknown when the device is done with the memory: wait for all work.
		_ = s.waitForAll()
		return err
	}
	s.mu.Unlock()
	return s.await(call, m.Tick)
}

// copyInShort copies through the stream's open slot. s.mu is held at the call and unlocked at the return.
func (s *stream) copyInShort(call string, dst driver.Pointer, src []byte) error {
	if s.slot == nil || s.slot.used+len(src) > slotBytes {
		if r := s.openSlot(); r != cu.Success {
			s.mu.Unlock()
			return s.d.fail(call, r, "wait for page-locked memory")
		}
		if s.slot == nil {
			return s.copyInPlace(call, dst, src)
		}
	}
	defer s.mu.Unlock()
	a := s.slot
	copy(a.memory[a.used:], src)
	r := s.d.lib.MemcpyHtoDAsync(uint64(dst), a.address(a.used), int64(len(src)), s.handle)
	if r != cu.Success {
		return s.d.fail(call, r, "%d bytes", len(src))
	}
	a.used += (len(src) + slotAlign - 1) &^ (slotAlign - 1)
	s.queued()
	return nil
}

// slotAlign is the alignment of copies in a slot.
const slotAlign = 64

// openSlot returns the stream's slot to the pool and takes another; s.slot is nil if there is none. s.mu is held.
func (s *stream) openSlot() cu.Result {
	s.closeSlot()
	a, r := s.d.staged().slots.take(s.handle)
	if a == nil {
		return r
	}
	if r := s.d.staged().slots.await(a); r != cu.Success {
		s.d.staged().slots.give(a)
		return r
	}
	s.slot = a
	return cu.Success
}

// closeSlot returns the stream's slot to the pool. s.mu is held.
func (s *stream) closeSlot() {
	if a := s.slot; a != nil {
		s.slot = nil
		_ = s.d.staged().slots.mark(a, s.handle) // if this fails, the slot is lost, but not the copies
		s.d.staged().slots.give(a)
	}
}

// copyInOne copies through one area, a, with one event for all pieces. No other work runs between them.
func (s *stream) copyInOne(call string, dst driver.Pointer, src []byte, a *area) error {
	g := s.d.staged()
	defer g.areas.give(a)
	if r := g.areas.await(a); r != cu.Success {
		return s.d.fail(call, r, "wait for page-locked memory")
	}
	var c pieces
	c.init(len(src), 1)
	if err := s.relock(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for start, end, ok := c.next(); ok; start, end, ok = c.next() {
		copy(a.memory[start:], src[start:end])
		r := g.areas.lib.MemcpyHtoDAsync(uint64(dst)+uint64(start), a.address(start), int64(end-start), s.handle)
		if r != cu.Success {
			_ = g.areas.mark(a, s.handle) // for the earlier pieces; if this fails, the area is lost
			return s.d.fail(call, r, "a piece of %d bytes", end-start)
		}
		s.queued()
	}
	return s.d.fail(call, g.areas.mark(a, s.handle), "mark the end of %d bytes", len(src))
}

// copyOutShort copies through a slot.
func (s *stream) copyOutShort(call string, dst []byte, src driver.Pointer) error {
	p := &s.d.staged().slots
	a, r := p.take(s.handle)
	if a == nil {
		return s.copyOutUnstaged(call, dst, src, r)
	}
	defer p.give(a)
	err := s.queuePiece(call, p, a, func() cu.Result {
		return p.lib.MemcpyDtoHAsync(a.address(0), uint64(src), int64(len(dst)), s.handle)
	})
	if err != nil {
		return err
	}
	if r := p.await(a); r != cu.Success {
		return s.d.fail(call, r, "wait for %d bytes", len(dst))
	}
	copy(dst, a.memory)
	return nil
}

// copyOutUnstaged copies in place because there is no page-locked memory, unless there was an error.
func (s *stream) copyOutUnstaged(call string, dst []byte, src driver.Pointer, r cu.Result) error {
	if r != cu.Success {
		return s.d.fail(call, r, "wait for page-locked memory")
	}
	if err := s.relock(call); err != nil {
		return err
	}
	return s.copyOutPlace(call, dst, src)
}

// queuePiece queues a copy from or to a and makes a pending.
func (s *stream) queuePiece(call string, p *pool, a *area, queue func() cu.Result) error {
	if err := s.relock(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if r := queue(); r != cu.Success {
		return s.d.fail(call, r, "a piece of %d bytes", a.end-a.start)
	}
	s.queued()
	return s.d.fail(call, p.mark(a, s.handle), "mark the end of a piece")
}

// relock is begin in the middle of a copy: it locks s.mu.
func (s *stream) relock(call string) error {
	s.mu.Lock()
	var err error
	if s.closing {
		err = s.closedError(call)
	} else {
		err = s.refuseCapture(call)
	}
	if err != nil {
		s.mu.Unlock()
	}
	return err
}
