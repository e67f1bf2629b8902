//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sharedState is the part of an event that processes share: a file of counters. A stream that waits for a record of
// another process has work that is not ready until the counters reach that record; a goroutine sleeps on the counters
// and wakes the machine. If that process dies first, the work is never ready: NVIDIA promises nothing else. Once a
// record is done, all earlier ones count as done, although the real driver may track each.
type sharedState struct {
	fd       int
	counters *counters
	own      bool // created by this process
	uses     int  // by the event, queued work and goroutines: the end of the last use unmaps the counters
}

type counters struct {
	recorded, done, destroyed atomic.Uint64
}

const (
	ipcEventMagic = 0x7665_6361_7366_6c61
	eventName     = "fakecuda event"
	countersSize  = int64(unsafe.Sizeof(counters{}))

	futexWait, futexWake = 0, 1
)

// newState returns a state with the counters in a file, and takes ownership of the file.
func newState(fd int, own bool) *sharedState {
	at, err := unix.MmapPtr(fd, 0, nil, uintptr(countersSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(err)
	return &sharedState{fd: fd, counters: (*counters)(at), own: own, uses: 1}
}

// release ends one use. The caller holds the machine's lock.
func (s *sharedState) release() {
	if s.uses--; s.uses == 0 {
		must(unix.MunmapPtr(unsafe.Pointer(s.counters), uintptr(countersSize)))
	}
}

// destroy destroys the event in this process. Queued work keeps the counters.
func (s *sharedState) destroy() {
	if s.own {
		s.counters.destroyed.Store(1)
	}
	must(unix.Close(s.fd))
	s.release()
}

// usable reports whether the process that created the event still has it.
func (c *call) usable(e *event) Result {
	if e.shared != nil && e.shared.counters.destroyed.Load() != 0 {
		return c.misuse(InvalidHandle, "an event that the process that made it has destroyed")
	}
	return Success
}

// recordShared queues the record of a shared event.
func (c *call) recordShared(s *stream, e *event) {
	state := e.shared
	n := state.counters.recorded.Add(1)
	state.uses++
	e.number = n
	e.last = c.enqueue(s, 0, func() Result {
		done := &state.counters.done
		for was := done.Load(); was < n && !done.CompareAndSwap(was, n); {
			was = done.Load()
		}
		futex(done, futexWake, 1<<30)
		state.release()
		return Success
	})
}

// pollShared is poll for a shared event.
func (c *call) pollShared(e *event) Result {
	if k := e.shared.counters; k.done.Load() >= k.recorded.Load() {
		return Success
	}
	if e.last != nil && !e.last.done {
		return c.poll(e.last)
	}
	return NotReady
}

// waitShared queues a wait for the last record.
func (c *call) waitShared(s *stream, e *event) {
	state := e.shared
	n := state.counters.recorded.Load()
	switch {
	case state.counters.done.Load() >= n:
		return
	case e.last != nil && e.number == n:
		c.enqueue(s, 0, nil, e.last)
		return
	}
	state.uses += 2
	c.push(&work{
		stream: s,
		ready:  func() bool { return state.counters.done.Load() >= n },
		run:    func() Result { state.release(); return Success },
	})
	go c.Machine.watch(state, n)
}

// watch wakes the machine once record n is done.
func (m *Machine) watch(state *sharedState, n uint64) {
	done := &state.counters.done
	for {
		m.mu.Lock()
		was := done.Load()
		if was >= n || m.closed {
			state.release()
			m.changed.Broadcast()
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		futex(done, futexWait, uint64(uint32(was)))
	}
}

// futex sleeps briefly on the low half of a counter if it equals value, or wakes the threads that sleep there.
func futex(counter *atomic.Uint64, op int, value uint64) {
	moment := unix.Timespec{Nsec: 50e6} // short, to notice that the machine was closed
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(counter)), uintptr(op), uintptr(value),
		uintptr(unsafe.Pointer(&moment)), 0, 0)
}

func (c *call) ipcGetEventHandle(h *ipcHandle, eventHandle uint64) Result {
	e, r := c.ownEvent(eventHandle)
	switch {
	case r != Success:
		return r
	case h == nil || e.shared == nil || !e.shared.own:
		return InvalidHandle
	}
	key, _, err := keyOf(e.shared.fd)
	must(err)
	*h = ipcHandle{}
	for i, v := range []uint64{ipcEventMagic, uint64(os.Getpid()), uint64(e.shared.fd), key.inode} {
		binary.LittleEndian.PutUint64(h[8*i:], v)
	}
	return Success
}

func (c *call) ipcOpenEventHandle(to *uint64, h *ipcHandle) Result {
	var words [4]uint64
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(h[8*i:])
	}
	pid, fd, inode := words[1], words[2], words[3]
	switch {
	case to == nil || words[0] != ipcEventMagic:
		return InvalidValue
	case pid == uint64(os.Getpid()):
		return InvalidContext
	}
	mine, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return InvalidHandle // the process that created the event has ended
	}
	if key, size, err := keyOf(mine); err != nil || key.inode != inode || size != countersSize {
		must(unix.Close(mine))
		return InvalidHandle
	}
	return out(to, c.newHandle(&event{
		ctx: c.ctx, flags: eventDisableTiming | eventInterprocess,
		shared: newState(mine, false),
	}))
}
