//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// CUDA's current context belongs to an OS thread, and a goroutine may move to another thread between any two calls. So
// every batch of calls to libcuda runs between enter and leave, which lock the goroutine to its thread and make the
// context current once. The thread may belong to another library, which reads its current device from the current
// context. So the context is pushed on the thread's stack of contexts, and popped on every path.

// push locks the goroutine to its thread and makes the device's context current there, until pop. If push fails, pop
// must not be called.
func (d *device) push() cu.Result {
	runtime.LockOSThread()
	r := d.lib.CtxPushCurrent(d.ctx)
	if r != cu.Success {
		runtime.UnlockOSThread()
	}
	return r
}

// pop restores the context that was current before push, or none. If the call fails, pop tries once more: it cannot
// report the error, and the thread would be left on the wrong device.
func (d *device) pop() {
	if _, r := d.lib.CtxPopCurrent(); r != cu.Success {
		_, _ = d.lib.CtxPopCurrent()
	}
	runtime.UnlockOSThread()
}

// enter starts a batch of calls. The context is current until leave. It fails if the device is closed or lost. Close
// waits for leave, so enter must not be nested.
func (d *device) enter(call string) error {
	d.life.RLock()
	if d.closed {
		d.life.RUnlock()
		return closedError(call, "the device")
	}
	if lost := d.lost.Load(); lost != nil {
		d.life.RUnlock()
		return &driver.Error{Call: call, Code: driver.ErrLost, Detail: lost.Detail}
	}
	if r := d.push(); r != cu.Success {
		d.life.RUnlock()
		return d.fail(call, r, "make the context of device %d current", d.info.Ordinal)
	}
	return nil
}

// leave ends the batch that enter started.
func (d *device) leave() {
	d.pop()
	d.life.RUnlock()
}

// fail returns the error for a result of libcuda, nil for cu.Success. A lost device stays lost: fail keeps the first
// cause, and every later call reports it.
func (d *device) fail(call string, r cu.Result, format string, args ...any) error {
	if r == cu.Success {
		return nil
	}
	e := failure(d.lib, call, r, fmt.Sprintf(format, args...))
	if r.Sticky() {
		e.Detail = "first seen by " + call + ": " + e.Detail
		d.lost.CompareAndSwap(nil, e)
	}
	return e
}

// failure returns an error for a result; what, if not "", says what was attempted.
func failure(lib *cu.Lib, call string, r cu.Result, what string) *driver.Error {
	text := lib.Describe(r)
	if what != "" {
		text = what + ": " + text
	}
	return &driver.Error{Call: call, Code: r.Code(), Detail: text}
}

func closedError(call, what string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: what}
}

func invalidError(call, format string, args ...any) error {
	return &driver.Error{Call: call, Code: driver.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// isClosed reports whether Close was called.
func (d *device) isClosed() bool {
	d.life.RLock()
	defer d.life.RUnlock()
	return d.closed
}
