//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

// Each device has its default memory pool, which keeps nothing: memory freed in stream order goes back to the device.

func (c *call) memAllocAsync(p *uint64, size, h uint64) Result {
	s, r := c.stream(h)
	switch {
	case r != Success:
		return r
	case c.ctx.dev.attributes[115] == 0:
		return NotSupported
	case p == nil || size == 0:
		return InvalidValue
	case s.capture != nil: // the driver makes nodes of them
		s.capture.broken = true
		return CaptureUnsupported
	}
	b, r := c.newBlock(size, fromPool)
	if r != Success {
		return r
	}
	c.enqueue(s, 0, nil)
	return out(p, b.base)
}

// memFreeAsync frees a block once the stream comes to it. Until then the block is there; asked for twice, it is refused.
func (c *call) memFreeAsync(p, h uint64) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if p == 0 {
		return Success
	}
	at, r := c.ownBlock(p)
	switch {
	case r != Success:
		return r
	case at.block.kind == fromPeer:
		return InvalidValue
	case s.capture != nil:
		s.capture.broken = true
		return CaptureUnsupported
	}
	at.block.freeing = true
	m := c.Machine
	c.enqueue(s, 0, func() Result {
		m.freeBlock(at)
		return Success
	})
	return Success
}

func (c *call) deviceGetDefaultMemPool(pool *uint64, dev int32) Result {
	d, ok := c.device(dev)
	switch {
	case !ok:
		return InvalidDevice
	case d.attributes[115] == 0:
		return NotSupported
	}
	return out(pool, d.pool)
}

func (c *call) memPoolSetAttribute(pool uint64, attribute uint32, value *uint64) Result {
	d, ok := lookup[*device](c.Machine, pool)
	switch {
	case !ok || value == nil || attribute == 0 || attribute > 8:
		return InvalidValue
	case attribute == 4:
		d.threshold = *value
	}
	return Success
}

func (c *call) memPoolTrimTo(pool, _ uint64) Result {
	if _, ok := lookup[*device](c.Machine, pool); !ok {
		return InvalidValue
	}
	return Success
}
