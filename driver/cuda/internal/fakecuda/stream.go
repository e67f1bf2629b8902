//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

// newStream makes a stream in a context.
func (m *Machine) newStream(p *primary, flags uint32, priority int32) *stream {
	s := &stream{ctx: p, flags: flags, priority: priority, held: m.opts.Held}
	s.handle = m.newHandle(s)
	p.streams = append(p.streams, s)
	return s
}

// stream finds a stream of the current context by its handle. The real driver accepts streams of other contexts in some
// calls and crashes on destroyed ones.
func (c *call) stream(h uint64) (*stream, Result) {
	s, r := c.anyStream(h)
	if r == Success && s.ctx != c.ctx {
		return nil, c.misuse(InvalidHandle, "a stream of device %d while device %d is current",
			s.ctx.dev.ordinal, c.ctx.dev.ordinal)
	}
	return s, r
}

// anyStream finds a stream of any context by its handle: 0 and 1 are the legacy default stream of the current one.
func (c *call) anyStream(h uint64) (*stream, Result) {
	switch h {
	case 0, 1:
		return c.ctx.null, Success
	case 2:
		return nil, NotSupported // the per-thread default stream is useless to goroutines
	}
	s, ok := lookup[*stream](c.Machine, h)
	if !ok {
		return nil, c.misuse(InvalidHandle, "no such stream: %#x", h)
	}
	return s, Success
}

func (c *call) streamCreateWithPriority(h *uint64, flags uint32, priority int32) Result {
	if flags&^streamNonBlocking != 0 || h == nil {
		return InvalidValue
	}
	return out(h, c.newStream(c.ctx, flags, min(max(priority, -5), 0)).handle)
}

func (c *call) streamDestroy(h uint64) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if s == c.ctx.null {
		return InvalidHandle
	}
	switch {
	case s.capture != nil && s == s.capture.origin:
		c.endCapture(s.capture)
	case s.capture != nil:
		s.capture.broken = true
	}
	delete(c.handles, h)
	s.gone = true
	if len(s.queue) == 0 {
		s.ctx.streams = remove(s.ctx.streams, s)
	}
	return Success
}

func (c *call) streamSynchronize(h uint64) Result {
	s, r := c.streamNotCapturing(h)
	if r != Success {
		return r
	}
	return c.wait(s.last)
}

// streamNotCapturing returns a stream that does not capture. It breaks the capture of one that does.
func (c *call) streamNotCapturing(h uint64) (*stream, Result) {
	s, r := c.stream(h)
	if r == Success && s.capture != nil {
		s.capture.broken = true
		return nil, CaptureUnsupported
	}
	if r == Success && s == c.ctx.null {
		r = c.implicit(s)
	}
	return s, r
}

func (c *call) streamWaitEvent(h, eventHandle uint64, flags uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	e, r := c.event(eventHandle) // of any context
	if r != Success {
		return r
	}
	if flags > 1 { // 1 is CU_EVENT_WAIT_EXTERNAL
		return InvalidValue
	}
	if s.capture != nil || (e.captured != nil && e.captured.capture.open) {
		return c.join(s, e)
	}
	if e.captured != nil {
		return InvalidValue
	}
	if r := c.implicit(s); r != Success {
		return r
	}
	switch {
	case e.shared != nil:
		if r := c.usable(e); r != Success {
			return r
		}
		c.waitShared(s, e)
	case e.last != nil:
		c.enqueue(s, 0, nil, e.last)
	}
	return Success
}

func (c *call) streamGetCtx(h uint64, ctx *uint64) Result {
	s, r := c.anyStream(h)
	if r != Success {
		return r
	}
	return out(ctx, s.ctx.handle)
}

func (c *call) streamGetPriority(h uint64, priority *int32) Result {
	s, r := c.anyStream(h)
	if r != Success {
		return r
	}
	return out(priority, s.priority)
}
