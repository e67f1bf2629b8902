//go:build linux && (amd64 || arm64) && !nocuda

package cu

import "math"

// StreamNonBlocking prevents a stream and the legacy default stream from waiting for each other.
const StreamNonBlocking uint32 = 1

// Flags of EventCreate.
const (
	EventBlockingSync  uint32 = 1 // EventSynchronize sleeps rather than spins
	EventDisableTiming uint32 = 2
	EventInterprocess  uint32 = 4 // with EventDisableTiming only
)

// StreamCreate makes a stream. A priority outside of StreamPriorityRange is changed to the nearest valid one.
func (l *Lib) StreamCreate(flags uint32, priority int) (Stream, Result) {
	s, r := l.get(symStreamCreate, uintptr(flags), uintptr(uint32(int32(priority))))
	return Stream(s), r
}

// StreamDestroy returns at once. Queued work is still done.
func (l *Lib) StreamDestroy(s Stream) Result { return l.call(symStreamDestroy, uintptr(s)) }

// StreamSynchronize waits for all work of s.
func (l *Lib) StreamSynchronize(s Stream) Result { return l.call(symStreamSynchronize, uintptr(s)) }

// StreamWaitEvent makes later work on s start after the last record of e. e may be recorded again or destroyed
// afterwards.
func (l *Lib) StreamWaitEvent(s Stream, e Event) Result {
	return l.call(symStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// StreamContext returns the context of s.
func (l *Lib) StreamContext(s Stream) (Context, Result) {
	c, r := l.getAfter(symStreamGetCtx, uintptr(s))
	return Context(c), r
}

// StreamPriority returns the priority of s.
func (l *Lib) StreamPriority(s Stream) (int, Result) {
	p, r := l.getAfter(symStreamGetPriority, uintptr(s))
	return int(int32(p)), r
}

// A CaptureStatus is the capture state of a stream (cuda.h: CUstreamCaptureStatus).
type CaptureStatus int32

// The states of a capture.
const (
	CaptureNone   CaptureStatus = 0
	CaptureActive CaptureStatus = 1
	CaptureBroken CaptureStatus = 2 // invalidated: it can only be ended
)

// StreamIsCapturing returns the capture state of s.
func (l *Lib) StreamIsCapturing(s Stream) (CaptureStatus, Result) {
	c, r := l.getAfter(symStreamIsCapturing, uintptr(s))
	return CaptureStatus(int32(c)), r
}

// A CaptureMode determines the calls that are forbidden while a stream captures (cuda.h: CUstreamCaptureMode).
type CaptureMode int32

// The modes. CaptureRelaxed forbids nothing to other threads, and lets any thread end the capture, as goroutines need.
const (
	CaptureGlobal      CaptureMode = 0
	CaptureThreadLocal CaptureMode = 1
	CaptureRelaxed     CaptureMode = 2
)

// ExchangeCaptureMode sets which calls the calling thread must not make while streams capture, and returns what it was.
// CaptureRelaxed allows all but those that conflict with a capture in any case.
func (l *Lib) ExchangeCaptureMode(mode CaptureMode) (CaptureMode, Result) {
	f := frames.Get().(*frame)
	f.cells[0] = uint64(uint32(mode))
	f.args[0] = f.cell(0)
	r := l.invoke(symThreadExchangeCaptureMode, f, 1)
	before := CaptureMode(int32(f.cells[0]))
	frames.Put(f)
	return before, r
}

// StreamBeginCapture makes s record work instead of doing it.
func (l *Lib) StreamBeginCapture(s Stream, mode CaptureMode) Result {
	return l.call(symStreamBeginCapture, uintptr(s), uintptr(mode))
}

// StreamEndCapture returns what was recorded since StreamBeginCapture on the same stream.
func (l *Lib) StreamEndCapture(s Stream) (Graph, Result) {
	g, r := l.getAfter(symStreamEndCapture, uintptr(s))
	return Graph(g), r
}

// StreamCaptureInfo returns the state of the stream's capture and the capture's number.
func (l *Lib) StreamCaptureInfo(s Stream) (status CaptureStatus, id uint64, r Result) {
	f := frames.Get().(*frame)
	f.cells = [2]uint64{}
	// The third version has one more result that may be null, so this fits the second too.
	f.args = [16]uintptr{uintptr(s), f.cell(0), f.cell(1)}
	r = l.invoke(symStreamGetCaptureInfo, f, 7)
	status, id = CaptureStatus(int32(f.cells[0])), f.cells[1]
	frames.Put(f)
	return status, id, r
}

// EventCreate makes an event.
func (l *Lib) EventCreate(flags uint32) (Event, Result) {
	e, r := l.get(symEventCreate, uintptr(flags))
	return Event(e), r
}

// EventRecord puts e after all work queued on s so far.
func (l *Lib) EventRecord(e Event, s Stream) Result {
	return l.call(symEventRecord, uintptr(e), uintptr(s))
}

// EventQuery returns Success if the last recorded work is done, and otherwise NotReady.
func (l *Lib) EventQuery(e Event) Result { return l.call(symEventQuery, uintptr(e)) }

// EventSynchronize waits for the last recorded work of e.
func (l *Lib) EventSynchronize(e Event) Result { return l.call(symEventSynchronize, uintptr(e)) }

// EventDestroy destroys an event, reached or not.
func (l *Lib) EventDestroy(e Event) Result { return l.call(symEventDestroy, uintptr(e)) }

// EventElapsed returns the milliseconds between two events with timing.
func (l *Lib) EventElapsed(from, to Event) (float32, Result) {
	bits, r := l.get(symEventElapsedTime, uintptr(from), uintptr(to))
	return math.Float32frombits(uint32(bits)), r
}

// MemcpyHtoDAsync copies from src, which must lie outside Go's heap or be pinned until the copy is done.
func (l *Lib) MemcpyHtoDAsync(dst uint64, src uintptr, n int64, s Stream) Result {
	return l.call(symMemcpyHtoDAsync, uintptr(dst), src, uintptr(n), uintptr(s))
}

// MemcpyDtoHAsync copies to dst, which must lie outside Go's heap or be pinned until the copy is done.
func (l *Lib) MemcpyDtoHAsync(dst uintptr, src uint64, n int64, s Stream) Result {
	return l.call(symMemcpyDtoHAsync, dst, uintptr(src), uintptr(n), uintptr(s))
}

// MemcpyDtoDAsync copies within the device, or between devices that reach each other.
func (l *Lib) MemcpyDtoDAsync(dst, src uint64, n int64, s Stream) Result {
	return l.call(symMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// MemcpyPeerAsync copies between the devices of two contexts, whether or not they can reach each other.
func (l *Lib) MemcpyPeerAsync(dst uint64, to Context, src uint64, from Context, n int64, s Stream) Result {
	return l.call(symMemcpyPeerAsync, uintptr(dst), uintptr(to), uintptr(src), uintptr(from), uintptr(n), uintptr(s))
}

// MemsetD8Async sets n bytes.
func (l *Lib) MemsetD8Async(p uint64, pattern byte, n int64, s Stream) Result {
	return l.call(symMemsetD8Async, uintptr(p), uintptr(pattern), uintptr(n), uintptr(s))
}
