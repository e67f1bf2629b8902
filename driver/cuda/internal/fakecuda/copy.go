//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "slices"

// Up to this many bytes of ordinary memory are read before an asynchronous copy from it returns.
const stagedMost = 64 << 10

// A side is the source or the destination of a copy.
type side struct {
	at     uint64
	device bool // device memory; otherwise host memory
	pinned bool // page-locked host memory
	staged []byte
}

// side returns the kind of memory at [at, at+n).
func (c *call) side(at uint64, n int64) (side, Result) {
	s := side{at: at}
	switch {
	case at >= c.base && at < c.end:
		s.device = true
		if !c.known(at, n) {
			return s, InvalidValue
		}
	case at == 0 || at+uint64(n) < at:
		return s, InvalidValue
	default:
		s.pinned = c.isPinned(at, n)
	}
	return s, Success
}

// viewSide returns the memory of a side when the copy runs.
func (m *Machine) viewSide(p *primary, s side, n int64, how access) ([]byte, Result) {
	switch {
	case s.staged != nil:
		return s.staged, Success
	case s.device:
		return m.view(p, s.at, n, how, true)
	case s.pinned && !m.isPinned(s.at, n):
		return nil, m.misuse(IllegalAddress, "a copy comes to host memory at %#x that is no longer page-locked", s.at)
	}
	return bytesAt(s.at, n), Success
}

// The kinds of memory that a call accepts.
type wants int

const (
	onDevice wants = iota
	onHost
)

func (w wants) accepts(s side) bool { return s.device == (w == onDevice) }

// copy queues a copy. If host memory is not page-locked, it waits until the source has been read or the destination
// written. But it reads up to 64 KiB of ordinary memory at once, and returns before the copy is done.
func (c *call) copy(dst, src uint64, size uint64, s *stream, to, from wants) (*work, Result) {
	n := int64(size)
	switch {
	case n == 0:
		return nil, Success
	case size > 1<<47:
		return nil, InvalidValue
	case dst < src+size && src < dst+size:
		return nil, c.misuse(InvalidValue, "copy of %d bytes to %#x from %#x: they overlap", n, dst, src)
	}
	d, r := c.side(dst, n)
	if r != Success {
		return nil, r
	}
	f, r := c.side(src, n)
	if r != Success {
		return nil, r
	}
	if !to.accepts(d) || !from.accepts(f) {
		return nil, InvalidValue
	}
	if (d.device || d.pinned) && (f.device || f.pinned) {
		return c.submit(s, nodeCopy, 1000+n/1000, c.mover(d, f, n))
	}
	if s.capture != nil {
		s.capture.broken = true
		return nil, CaptureUnsupported
	}
	staged := !f.device && !f.pinned && n <= stagedMost && (d.device || d.pinned)
	if staged {
		f.staged = slices.Clone(bytesAt(src, n))
	}
	w, r := c.submit(s, nodeCopy, 1000+n/1000, c.mover(d, f, n))
	if r == Success && !staged {
		r = c.wait(w)
	}
	return w, r
}

// mover returns the work of a copy in a context.
func (c *call) mover(d, f side, n int64) func() Result {
	m, p, way := c.Machine, c.ctx, c.way
	return func() Result {
		if way != nil && !way.user.peers[way.owner] {
			return IllegalAddress
		}
		to, r := m.viewSide(p, d, n, writing)
		if r != Success {
			return r
		}
		from, r := m.viewSide(p, f, n, reading)
		if r != Success {
			return r
		}
		copy(to, from)
		return Success
	}
}

func (c *call) copyAsync(dst, src, size, h uint64, to, from wants) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	_, r = c.copy(dst, src, size, s, to, from)
	return r
}

func (c *call) memcpyHtoDAsync(dst, src, size, h uint64) Result {
	return c.copyAsync(dst, src, size, h, onDevice, onHost)
}

func (c *call) memcpyDtoHAsync(dst, src, size, h uint64) Result {
	return c.copyAsync(dst, src, size, h, onHost, onDevice)
}

func (c *call) memcpyDtoDAsync(dst, src, size, h uint64) Result {
	return c.copyAsync(dst, src, size, h, onDevice, onDevice)
}

// memcpyDtoH uses the legacy default stream, and waits.
func (c *call) memcpyDtoH(dst, src, size uint64) Result {
	w, r := c.copy(dst, src, size, c.ctx.null, onHost, onDevice)
	if r == Success {
		r = c.wait(w)
	}
	return r
}

func (c *call) memcpyPeerAsync(dst, dstContext, src, srcContext, size, h uint64) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	var ends [2]*primary
	for i, x := range []struct{ at, context uint64 }{{dst, dstContext}, {src, srcContext}} {
		p, r := c.context(x.context)
		if r != Success {
			return r
		}
		ends[i] = p
		if size > 0 && c.known(x.at, int64(size)) && c.deviceOf(x.at) != p.dev {
			return InvalidContext
		}
	}
	// The path is chosen now. A peer path must still be enabled when the work runs. Without one, the host stages the copy.
	for _, w := range []peerWay{{ends[0], ends[1]}, {ends[1], ends[0]}} {
		if w.user.peers[w.owner] {
			c.way = &w
			break
		}
	}
	_, r = c.copy(dst, src, size, s, onDevice, onDevice)
	return r
}

// A peerWay is the access of one context to the memory of another.
type peerWay struct{ user, owner *primary }

// deviceOf returns the device whose memory is at a known address.
func (m *Machine) deviceOf(p uint64) *device {
	r := m.find(p)
	if r.block != nil {
		return r.block.pages.dev
	}
	return r.mappingAt(p).pages.dev
}

func (c *call) memsetD8Async(dst uint64, value uint8, n, h uint64) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	switch {
	case n > 1<<44:
		return InvalidValue
	case n == 0:
		return Success
	case !c.known(dst, int64(n)):
		return InvalidValue
	}
	m, p := c.Machine, c.ctx
	_, r = c.submit(s, nodeFill, 1000+int64(n)/4000, func() Result {
		to, r := m.view(p, dst, int64(n), writing, true)
		fill(to, value)
		return r
	})
	return r
}

// fill sets every byte of b by doubling what is set, as fast as memory is copied.
func fill(b []byte, value byte) {
	for n := copy(b, []byte{value}); n < len(b); {
		n += copy(b[n:], b[:n])
	}
}
