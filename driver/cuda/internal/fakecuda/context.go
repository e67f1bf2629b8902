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

func (c *call) ctxSetCurrent(h uint64) Result {
	var p *primary
	if h != 0 {
		var r Result
		if p, r = c.context(h); r != Success {
			return r
		}
	}
	c.thread.contexts[len(c.thread.contexts)-1] = p
	return Success
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
	n := len(c.thread.contexts)
	if c.ctx == nil {
		return InvalidContext
	}
	if h != nil {
		*h = c.ctx.handle
	}
	if n == 1 {
		c.thread.contexts[0] = nil
		return Success
	}
	c.thread.contexts = c.thread.contexts[:n-1]
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
