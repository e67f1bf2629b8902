//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// A sharedEvent is a CUevent that processes share. libcuda stores its last record; this package counts nothing. The
// programs must ensure that the process that made an event outlives its uses, and must handle a wait for a process that
// dies: NVIDIA documents neither case.
type sharedEvent struct {
	d      *device
	handle cu.Event
	name   []byte // the argument of OpenEvent

	mu     sync.RWMutex // read-locked to use the handle, locked by Close; taken after a stream's mu
	closed bool
}

// NewEvent calls cuEventCreate and cuIpcGetEventHandle.
func (s sharing) NewEvent() (driver.SharedEvent, error) {
	const call = "Sharing.NewEvent"
	if err := s.d.enter(call); err != nil {
		return nil, err
	}
	defer s.d.leave()
	h, err := s.newHandle(call, 0)
	if err != nil {
		return nil, err
	}
	e, r := s.d.lib.EventCreate(cu.EventInterprocess | cu.EventDisableTiming)
	if r != cu.Success {
		return nil, s.d.fail(call, r, "an event for other processes")
	}
	if h.Driver, r = s.d.lib.IPCGetEventHandle(e); r != cu.Success {
		_ = s.d.lib.EventDestroy(e)
		return nil, s.d.fail(call, r, "the handle of an event")
	}
	return s.adoptEvent(e, h.bytes(eventMagic)), nil
}

func (s sharing) OpenEvent(b []byte) (driver.SharedEvent, error) {
	const call = "Sharing.OpenEvent"
	if err := s.d.enter(call); err != nil {
		return nil, err
	}
	defer s.d.leave()
	h, err := parseHandle(eventMagic, b)
	if err != nil {
		return nil, invalidError(call, "%v", err)
	}
	if err := s.foreign(call, h); err != nil {
		return nil, err
	}
	e, r := s.d.lib.IPCOpenEventHandle(h.Driver)
	if r != cu.Success {
		return nil, s.refused(call, r, "an event of process %d, if that still has it", h.Process)
	}
	return s.adoptEvent(e, slices.Clone(b)), nil
}

// adoptEvent makes a sharedEvent, which then owns the event.
func (s sharing) adoptEvent(handle cu.Event, name []byte) *sharedEvent {
	e := &sharedEvent{d: s.d, handle: handle, name: name}
	s.d.shares.add(e)
	return e
}

// use prevents Close until e.mu.RUnlock. It returns an error if the event is closed. Between enter and leave.
func (e *sharedEvent) use(call string) error {
	e.mu.RLock()
	if e.closed {
		e.mu.RUnlock()
		return closedError(call, "the event")
	}
	return nil
}

func (e *sharedEvent) Handle() ([]byte, error) {
	const call = "SharedEvent.Handle"
	if err := e.d.enter(call); err != nil {
		return nil, err
	}
	defer e.d.leave()
	if err := e.use(call); err != nil {
		return nil, err
	}
	defer e.mu.RUnlock()
	return slices.Clone(e.name), nil
}

func (e *sharedEvent) Record(s driver.Stream) error {
	return e.queue("SharedEvent.Record", s, func(o *stream) cu.Result {
		return e.d.lib.EventRecord(e.handle, o.handle)
	})
}

func (e *sharedEvent) Wait(s driver.Stream) error {
	return e.queue("SharedEvent.Wait", s, func(o *stream) cu.Result {
		return e.d.lib.StreamWaitEvent(o.handle, e.handle)
	})
}

// queue queues an operation with the event on a stream. It returns an error if the stream captures, because libcuda has
// no such graph nodes.
func (e *sharedEvent) queue(call string, s driver.Stream, do func(*stream) cu.Result) error {
	o := e.d.ownStream(call, s)
	if err := o.begin(call); err != nil {
		return err
	}
	defer o.end()
	if err := e.use(call); err != nil {
		return err
	}
	defer e.mu.RUnlock()
	if c, err := o.captured(call); err != nil || c != nil {
		if err == nil {
			err = &driver.Error{Call: call, Code: driver.ErrCapturing, Detail: "an event of several processes cannot " +
				"be captured"}
		}
		return err
	}
	if r := do(o); r != cu.Success {
		return e.d.fail(call, r, "stream %d", o.id)
	}
	o.queued()
	return nil
}

func (e *sharedEvent) Reached() (bool, error) {
	const call = "SharedEvent.Reached"
	if err := e.d.enter(call); err != nil {
		return false, err
	}
	defer e.d.leave()
	if err := e.use(call); err != nil {
		return false, err
	}
	defer e.mu.RUnlock()
	r := e.d.lib.EventQuery(e.handle)
	if r == cu.NotReady {
		return false, nil
	}
	return r == cu.Success, e.d.fail(call, r, "an event of several processes")
}

// Close calls cuEventDestroy. libcuda keeps the event for queued work.
func (e *sharedEvent) Close() error {
	const call = "SharedEvent.Close"
	if err := e.d.enter(call); err != nil {
		return ignoreClosed(err)
	}
	defer e.d.leave()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if r := e.d.lib.EventDestroy(e.handle); r != cu.Success {
		return e.d.fail(call, r, "an event of several processes")
	}
	e.closed = true
	e.d.shares.remove(e)
	return nil
}
