//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

// context finds a live context by its handle.
func (m *Machine) context(h uint64) (*primary, Result) {
	p, ok := lookup[*primary](m, h)
	switch {
	case !ok:
		return nil, InvalidContext
	case !p.live:
		return nil, ContextIsDestroyed
	}
	return p, Success
}

// ctxSetCurrent replaces the current context. For none it pops the current context, as cuCtxPopCurrent does.
func (c *call) ctxSetCurrent(h uint64) Result {
	if h == 0 {
		c.thread.pop()
		return Success
	}
	p, r := c.context(h)
	if r == Success {
		c.thread.contexts[len(c.thread.contexts)-1] = p
	}
	return r
}

// pop removes the current context from the thread's stack.
func (t *thread) pop() {
	if n := len(t.contexts); n > 1 {
		t.contexts = t.contexts[:n-1]
	} else {
		t.contexts[0] = nil
	}
}

func (c *call) ctxGetCurrent(h *uint64) Result {
	if c.ctx == nil {
		return out(h, 0)
	}
	return out(h, c.ctx.handle)
}

func (c *call) ctxPushCurrent(h uint64) Result {
	p, r := c.context(h)
	if r != Success {
		return r
	}
	c.thread.contexts = append(c.thread.contexts, p)
	return Success
}

func (c *call) ctxPopCurrent(h *uint64) Result {
	if c.ctx == nil {
		return InvalidContext
	}
	if h != nil {
		*h = c.ctx.handle
	}
	c.thread.pop()
	return Success
}

func (c *call) ctxSynchronize() Result { return c.drain(c.ctx) }

func (c *call) ctxGetStreamPriorityRange(least, greatest *int32) Result {
	if least != nil {
		*least = 0
	}
	if greatest != nil {
		*greatest = -5
	}
	return Success
}

func (c *call) threadExchangeCaptureMode(mode *uint32) Result {
	if mode == nil || *mode > captureRelaxed {
		return InvalidValue
	}
	*mode, c.thread.mode = c.thread.mode, *mode
	return Success
}

func (c *call) ctxEnablePeerAccess(h uint64, flags uint32) Result {
	p, r := c.context(h)
	switch {
	case r != Success:
		return r
	case flags != 0:
		return InvalidValue
	case p == c.ctx:
		return InvalidDevice
	case c.opts.Unlinked:
		return PeerAccessUnsupported
	case c.ctx.peers[p]:
		return PeerAccessAlreadyEnabled
	}
	c.ctx.peers[p] = true
	return Success
}

func (c *call) ctxDisablePeerAccess(h uint64) Result {
	p, r := c.context(h)
	switch {
	case r != Success:
		return r
	case !c.ctx.peers[p]:
		return PeerAccessNotEnabled
	}
	delete(c.ctx.peers, p)
	return Success
}
