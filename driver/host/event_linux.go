package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

// A sharedEvent is a sealed file with two counters that processes share. Every record, in any process, takes the next
// number and locks the byte of that number in the file until the recording stream has reached it. (Most of these bytes
// are beyond the end of the file, where locks are permitted.) The newest number is published once its byte is locked,
// so:
//
//   - The last record is reached if no process holds its byte. This can be tested without a wait.
//   - To wait for it, the stream's own goroutine takes a shared lock of its byte, and releases it at once. The kernel
//     wakes the goroutine when the record is reached, and also when the recorder dies, since it then releases the
//     recorder's locks. No clock is needed.
//
// Locks belong to an open file description, so a sharedEvent does not conflict with its own locks: it records in
// pending which records its own streams have not reached. A waiting goroutine occupies a thread of the operating
// system.
type sharedEvent struct {
	d      *device
	handle []byte
	memory *memfd
	at     driver.Pointer
	next   *atomic.Uint64 // the number that was taken last
	last   *atomic.Uint64 // the number of the last record; 0: none

	mu      sync.Mutex // held while work is queued, not while it runs
	closed  bool
	users   int              // the owner, and queued work: the last one closes the file
	pending map[uint64]point // records of this sharedEvent that are not reached, by number
}

// A point is a tick of a stream.
type point struct {
	on   *stream
	tick uint64
}

const eventSize = 16 // two counters

// NewEvent makes an event that holds a descriptor until it is closed.
func (s sharing) NewEvent() (driver.SharedEvent, error) {
	const call = "Sharing.NewEvent"
	f, err := newSealed(eventName, eventSize, placement{})
	if err != nil {
		return nil, systemError(call, "an event", err)
	}
	handle, err := newHandle(eventMagic, f)
	if err != nil {
		_ = f.close()
		return nil, systemError(call, "an event", err)
	}
	return s.adoptEvent(call, f, handle)
}

// OpenEvent fails with ErrInvalid in the process that made the event, as on CUDA.
func (s sharing) OpenEvent(handle []byte) (driver.SharedEvent, error) {
	const call = "Sharing.OpenEvent"
	h, err := parseHandle(eventMagic, handle)
	if err != nil {
		return nil, invalidError(call, "%v", err)
	}
	if h.Size != eventSize {
		return nil, invalidError(call, "an event of %d bytes, want %d", h.Size, eventSize)
	}
	f, err := h.open()
	if err != nil {
		return nil, invalidError(call, "%v", err)
	}
	return s.adoptEvent(call, f, slices.Clone(handle))
}

// adoptEvent makes an event of its file, which it owns from now on.
func (s sharing) adoptEvent(call string, f *memfd, handle []byte) (driver.SharedEvent, error) {
	raw, err := unix.MmapPtr(f.fd, 0, nil, eventSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = f.close()
		return nil, systemError(call, "an event", err)
	}
	at := driver.Pointer(uintptr(raw))
	counts := counters(at, 2)
	e := &sharedEvent{
		d: s.d, handle: handle, memory: f, at: at, next: &counts[0], last: &counts[1], users: 1,
		pending: map[uint64]point{},
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.closed {
		_ = e.release()
		return nil, closedError(call)
	}
	if s.d.events == nil {
		s.d.events = map[driver.SharedEvent]struct{}{}
	}
	s.d.events[e] = struct{}{}
	return e, nil
}

// lockOpen locks the event, or fails if it is closed.
func (e *sharedEvent) lockOpen(call string) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the event"}
	}
	return nil
}

func (e *sharedEvent) Handle() ([]byte, error) {
	if err := e.lockOpen("SharedEvent.Handle"); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	return slices.Clone(e.handle), nil
}

// Record takes a tick of s.
func (e *sharedEvent) Record(s driver.Stream) error {
	const call = "SharedEvent.Record"
	own := e.d.stream(call, s)
	if err := e.lockOpen(call); err != nil {
		return err
	}
	defer e.mu.Unlock()
	n := e.next.Add(1)
	if err := e.lock(call, unix.F_OFD_SETLK, unix.F_WRLCK, n); err != nil {
		return err
	}
	tick, err := own.addNow(call, func() error { return e.pass(n) })
	if err != nil {
		_ = e.lock(call, unix.F_OFD_SETLK, unix.F_UNLCK, n)
		return err
	}
	e.pending[n] = point{own, tick}
	e.users++
	for last := e.last.Load(); last < n && !e.last.CompareAndSwap(last, n); {
		last = e.last.Load()
	}
	return nil
}

// pass notes that a stream has reached record n.
func (e *sharedEvent) pass(n uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, n)
	return cmp.Or(e.lock("SharedEvent.Record", unix.F_OFD_SETLK, unix.F_UNLCK, n), e.release())
}

// Wait takes a tick of s.
func (e *sharedEvent) Wait(s driver.Stream) error {
	const call = "SharedEvent.Wait"
	own := e.d.stream(call, s)
	if err := e.lockOpen(call); err != nil {
		return err
	}
	defer e.mu.Unlock()
	n := e.last.Load()
	if p, ok := e.pending[n]; ok {
		_, err := own.addNow(call, func() error { p.on.wait(p.tick); return nil })
		return err
	}
	_, err := own.addNow(call, func() error { return e.await(n) })
	if err == nil {
		e.users++
	}
	return err
}

// await blocks until record n, of another process, is reached or its recorder is gone.
func (e *sharedEvent) await(n uint64) error {
	const call = "SharedEvent.Wait"
	var err error
	if n > 0 {
		if err = e.lock(call, unix.F_OFD_SETLKW, unix.F_RDLCK, n); err == nil {
			err = e.lock(call, unix.F_OFD_SETLK, unix.F_UNLCK, n)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return cmp.Or(err, e.release())
}

func (e *sharedEvent) Reached() (bool, error) {
	const call = "SharedEvent.Reached"
	if err := e.lockOpen(call); err != nil {
		return false, err
	}
	defer e.mu.Unlock()
	n := e.last.Load()
	if n == 0 {
		return true, nil
	}
	if _, ok := e.pending[n]; ok {
		return false, nil
	}
	held := unix.Flock_t{Type: unix.F_RDLCK, Start: int64(n), Len: 1}
	if err := unix.FcntlFlock(uintptr(e.memory.fd), unix.F_OFD_GETLK, &held); err != nil {
		return false, recordError(call, n, err)
	}
	return held.Type == unix.F_UNLCK, nil
}

// lock locks or unlocks the byte of record n.
func (e *sharedEvent) lock(call string, how int, kind int16, n uint64) error {
	for {
		err := unix.FcntlFlock(uintptr(e.memory.fd), how, &unix.Flock_t{Type: kind, Start: int64(n), Len: 1})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return recordError(call, n, err)
		}
	}
}

// recordError returns the error for a lock that failed, for example because another process wrote invalid counters.
func recordError(call string, n uint64, err error) error {
	return &driver.Error{
		Call: call, Code: driver.ErrInvalid, Detail: fmt.Sprintf("record %d: the operating system says: %v", n, err),
	}
}

// release ends one use of the file. e.mu is held, unless the event is not shared yet.
func (e *sharedEvent) release() error {
	if e.users--; e.users > 0 {
		return nil
	}
	return errors.Join(unmapMemory(e.at, eventSize), e.memory.close())
}

func (e *sharedEvent) Close() error {
	e.d.mu.Lock()
	delete(e.d.events, driver.SharedEvent(e))
	e.d.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if err := e.release(); err != nil {
		return systemError("SharedEvent.Close", "an event", err)
	}
	return nil
}
