package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// pinned implements driver.Pinned. Its memory is whole pages of the operating system. They are locked if the system's
// limit for locked memory allows it: the host device needs no locked memory, and only behaves like a device that does.
// The memory does not count towards the device's total.
type pinned struct{ d *device }

func (d *device) Pinned() driver.Pinned { return pinned{d} }

// pins are the page-locked ranges of a device. Their lock is a leaf, and nothing slow is done with it held.
type pins struct {
	mu     sync.RWMutex
	closed bool
	table  spans.Table[pin]
}

type pin struct {
	allocated bool // by AllocHost, or registered
	leaving   bool // while FreeHost or Unregister waits for queued work
}

// covers reports whether the n bytes at p are page-locked.
func (ps *pins) covers(p driver.Pointer, n int64) bool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	_, _, ok := ps.table.Run(p, n)
	return ok
}

// lookUp fails unless the n bytes at p are page-locked.
func (ps *pins) lookUp(call string, p driver.Pointer, n int64) error {
	if n > 0 && !ps.covers(p, n) {
		return invalidError(call, "the %d bytes at %#x are not page-locked memory of this device", n, p)
	}
	return nil
}

// add records a range, which must not overlap another.
func (ps *pins) add(call string, p driver.Pointer, size int64, allocated bool) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return closedError(call)
	}
	if !ps.table.Free(p, size) {
		return invalidError(call, "part of the %d bytes at %#x is page-locked already", size, p)
	}
	ps.table.Insert(spans.Entry[pin]{At: p, Size: size, Value: pin{allocated: allocated}})
	return nil
}

// markRemoved marks the range b as being removed, and reports whether there is such a range.
func (ps *pins) markRemoved(b []byte, allocated bool) bool {
	if len(b) == 0 {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i := ps.table.Starting(pointer(b))
	if i < 0 || ps.table[i].Size != int64(len(b)) {
		return false
	}
	found := &ps.table[i].Value
	if found.allocated != allocated || found.leaving {
		return false
	}
	found.leaving = true
	return true
}

// remove removes a range, and reports whether it was still there.
func (ps *pins) remove(p driver.Pointer) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i := ps.table.Starting(p)
	if i >= 0 {
		ps.table.Remove(i, i+1)
	}
	return i >= 0
}

// AllocHost returns zero bytes.
func (p pinned) AllocHost(size int64) ([]byte, error) {
	const call = "Pinned.AllocHost"
	if size <= 0 {
		panic(fmt.Sprintf("driver/host: %s of %d bytes: want a positive size", call, size))
	}
	at, err := p.d.place.mapMemory(wholePages(size))
	if err != nil {
		return nil, systemError(call, bytesize.Format(size), err)
	}
	b := view(at, size)
	if err := p.d.pins.add(call, at, size, true); err != nil {
		return nil, errors.Join(err, unmapMemory(at, wholePages(size)))
	}
	_ = lockMemory(b) // if the system permits it
	return b, nil
}

func (p pinned) FreeHost(b []byte) error {
	const call = "Pinned.FreeHost"
	if err := p.awaitRemoval(call, b, true); err != nil {
		return err
	}
	if !p.d.pins.remove(pointer(b)) {
		return nil // Close came first, and gave it back
	}
	if err := unmapMemory(pointer(b), wholePages(int64(len(b)))); err != nil {
		return &driver.Error{Call: call, Code: driver.ErrLost, Detail: fmt.Sprintf("unmap %#x: %v", pointer(b), err)}
	}
	return nil
}

// Register fails if part of b is page-locked memory of this device already.
func (p pinned) Register(b []byte) error {
	const call = "Pinned.Register"
	if len(b) == 0 {
		return invalidError(call, "no bytes")
	}
	if err := p.d.pins.add(call, pointer(b), int64(len(b)), false); err != nil {
		return err
	}
	_ = lockMemory(b) // if the system permits it
	return nil
}

// Unregister waits for all work queued on the device. It unlocks whole pages of the system, also those whose other part
// is registered too.
func (p pinned) Unregister(b []byte) error {
	if err := p.awaitRemoval("Pinned.Unregister", b, false); err != nil {
		return err
	}
	if p.d.pins.remove(pointer(b)) {
		unlockMemory(b)
	}
	return nil
}

// awaitRemoval marks the range b as being removed, and waits for queued work. If the device is closed it only waits:
// while Close does, work may still use b, and a caller that gets ErrClosed may reuse b.
func (p pinned) awaitRemoval(call string, b []byte, allocated bool) error {
	p.d.mu.RLock()
	closed, streams := p.d.closed, slices.Clone(p.d.streams)
	p.d.mu.RUnlock()
	if !closed && !p.d.pins.markRemoved(b, allocated) {
		how := "Register"
		if allocated {
			how = "AllocHost"
		}
		return invalidError(call, "the %d bytes are not a slice of %s", len(b), how)
	}
	for _, s := range streams {
		s.drain()
	}
	if closed {
		return closedError(call)
	}
	return nil
}

// IsPinned returns false for an empty slice.
func (p pinned) IsPinned(b []byte) bool {
	return len(b) > 0 && p.d.pins.covers(pointer(b), int64(len(b)))
}

func (p pinned) CopyInAsync(s driver.Stream, dst driver.Pointer, src []byte) error {
	const call = "Pinned.CopyInAsync"
	n := int64(len(src))
	return p.d.stream(call, s).copySpan(call,
		span{d: p.d, at: dst, size: n}, span{d: p.d, at: pointer(src), size: n, host: true})
}

func (p pinned) CopyOutAsync(s driver.Stream, dst []byte, src driver.Pointer) error {
	const call = "Pinned.CopyOutAsync"
	n := int64(len(dst))
	return p.d.stream(call, s).copySpan(call,
		span{d: p.d, at: pointer(dst), size: n, host: true}, span{d: p.d, at: src, size: n})
}

// freeAll frees the memory of AllocHost and forgets registered memory. All work is done.
func (ps *pins) freeAll() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var errs []error
	for _, e := range ps.table {
		if e.Value.allocated {
			errs = append(errs, unmapMemory(e.At, wholePages(e.Size)))
		} else {
			unlockMemory(view(e.At, e.Size))
		}
	}
	ps.closed, ps.table = true, nil
	return errors.Join(errs...)
}
