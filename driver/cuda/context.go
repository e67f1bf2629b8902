//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// CUDA's current context belongs to an OS thread, and a goroutine may move to another between any two calls. So every
// batch of calls to libcuda stands between enter and leave, which lock the goroutine to its thread and make the context
// current once. The thread may be another library's, which reads its current device from the current context: so the
// context is pushed on the thread's stack of contexts, and popped on every path.

// push locks the goroutine to its thread and makes the device's context current there, until pop. If it fails there is
// nothing to pop.
func (d *device) push() cu.Result {
	runtime.LockOSThread()
	r := d.lib.CtxPushCurrent(d.ctx)
	if r != cu.Success {
		runtime.UnlockOSThread()
	}
	return r
}

// pop makes the context current that was so before push, or none. A call that fails is made again: it could not be
// reported, and the thread would work on another device.
func (d *device) pop() {
	if _, r := d.lib.CtxPopCurrent(); r != cu.Success {
		_, _ = d.lib.CtxPopCurrent()
	}
	runtime.UnlockOSThread()
}

// enter starts a batch of calls: it fails if the device is closed or lost, and else the context is current until leave.
// It holds Close off, so it must not be nested.
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

// leave ends what enter began.
func (d *device) leave() {
	d.pop()
	d.life.RUnlock()
}

// fail returns the error for a result of libcuda, nil for cu.Success. What is lost stays lost: the first cause is kept,
// and every later call says it.
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

// failure makes an error of a result.
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

// isClosed says whether Close was called.
func (d *device) isClosed() bool {
	d.life.RLock()
	defer d.life.RUnlock()
	return d.closed
}
