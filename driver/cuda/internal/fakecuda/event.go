//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "golang.org/x/sys/unix"

// An event is a point on a stream: the work that its last record queued, or a place in a capture.
type event struct {
	ctx      *primary
	flags    uint32
	last     *work    // of the last record; nil if there was none
	captured *forking // in place of last, if the last record was in a capture

	shared *sharedState // with other processes; see ipcevent.go
	number uint64       // of last among the records of all processes
}

const (
	eventBlockingSync  = 1
	eventDisableTiming = 2
	eventInterprocess  = 4
)

func (c *call) eventCreate(h *uint64, flags uint32) Result {
	if h == nil || flags&^(eventBlockingSync|eventDisableTiming|eventInterprocess) != 0 ||
		flags&(eventInterprocess|eventDisableTiming) == eventInterprocess {
		return InvalidValue
	}
	e := &event{ctx: c.ctx, flags: flags}
	if flags&eventInterprocess != 0 {
		fd := memfd(eventName)
		must(unix.Ftruncate(fd, countersSize))
		e.shared = newState(fd, true)
	}
	return out(h, c.newHandle(e))
}

// event finds an event by its handle.
func (c *call) event(h uint64) (*event, Result) {
	e, ok := lookup[*event](c.Machine, h)
	if !ok {
		return nil, c.misuse(InvalidHandle, "no such event: %#x", h)
	}
	return e, Success
}

// ownEvent finds an event of the current context.
func (c *call) ownEvent(h uint64) (*event, Result) {
	e, r := c.event(h)
	if r == Success && e.ctx != c.ctx {
		return nil, c.misuse(InvalidHandle, "an event of device %d while device %d is current",
			e.ctx.dev.ordinal, c.ctx.dev.ordinal)
	}
	return e, r
}

func (c *call) eventRecord(h, streamHandle uint64) Result {
	e, r := c.ownEvent(h)
	if r != Success {
		return r
	}
	s, r := c.stream(streamHandle)
	if r != Success {
		return r
	}
	if r := c.usable(e); r != Success {
		return r
	}
	if s.capture != nil {
		if s.capture.broken {
			return CaptureInvalidated
		}
		if e.shared != nil {
			s.capture.broken = true
			return CaptureUnsupported
		}
		e.captured, e.last = s.fork(), nil
		return Success
	}
	if r := c.implicit(s); r != Success {
		return r
	}
	if e.shared != nil {
		c.recordShared(s, e)
		return Success
	}
	e.captured, e.last = nil, c.enqueue(s, 0, nil)
	return Success
}

// eventQuery needs no current context: CUDA's documentation does not list CUDA_ERROR_INVALID_CONTEXT.
func (c *call) eventQuery(h uint64) Result {
	e, r := c.event(h)
	if r != Success {
		return r
	}
	if e.captured != nil {
		if !e.captured.capture.open {
			return InvalidValue // as on an NVIDIA H200 with driver 580
		}
		return CapturedEvent
	}
	if r := c.guarded(); r != Success {
		return r
	}
	if e.ctx.broken != Success {
		return e.ctx.broken
	}
	if e.shared != nil {
		if r := c.usable(e); r != Success {
			return r
		}
		return c.pollShared(e)
	}
	return c.poll(e.last)
}

func (c *call) eventSynchronize(h uint64) Result {
	e, r := c.ownEvent(h)
	if r != Success {
		return r
	}
	if e.captured != nil {
		return CapturedEvent
	}
	if e.shared != nil {
		return c.misuse(NotSupported, "waiting on the host for an event that processes share: the fake has not "+
			"learned it")
	}
	if r := c.guarded(); r != Success {
		return r
	}
	return c.wait(e.last)
}

func (c *call) eventDestroy(h uint64) Result {
	e, r := c.ownEvent(h)
	if r != Success {
		return r
	}
	if e.shared != nil {
		e.shared.destroy()
	}
	delete(c.handles, h)
	return Success
}

func (c *call) eventElapsedTime(ms *float32, from, to uint64) Result {
	a, r := c.ownEvent(from)
	if r != Success {
		return r
	}
	b, r := c.ownEvent(to)
	if r != Success {
		return r
	}
	switch {
	case ms == nil:
		return InvalidValue
	case (a.flags|b.flags)&eventDisableTiming != 0, a.last == nil, b.last == nil:
		return InvalidHandle
	case !a.last.done, !b.last.done:
		return NotReady
	}
	*ms = float32(b.last.stamp-a.last.stamp) / 1e6
	return Success
}
