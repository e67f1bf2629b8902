//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Pinned is page-locked host memory.
type pinned struct {
	start      uint64
	size       int64 // bytes, as requested
	mapped     int64 // bytes, whole pages; 0 if registered
	registered bool  // the memory is the caller's
	ctx        *primary
}

const (
	hostPortable      = 1
	hostDeviceMap     = 2
	hostWriteCombined = 4
	registerReadOnly  = 8
)

func (c *call) memHostAlloc(p *uint64, size uint64, flags uint32) Result {
	if p == nil || size == 0 || flags&^(hostPortable|hostDeviceMap|hostWriteCombined) != 0 {
		return InvalidValue
	}
	if size > 1<<40 {
		return OutOfMemory
	}
	whole := roundUp(int64(size), c.page)
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(whole), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return OutOfMemory
	}
	h := &pinned{start: uint64(uintptr(at)), size: int64(size), mapped: whole, ctx: c.ctx}
	for b := bytesAt(h.start, h.size); len(b) > 0; {
		b = b[copy(b, noise()):]
	}
	c.addHost(h)
	return out(p, h.start)
}

func (m *Machine) addHost(h *pinned) {
	i, _ := slices.BinarySearchFunc(m.host, h.start, func(x *pinned, a uint64) int {
		if x.start < a {
			return -1
		}
		return 1
	})
	m.host = slices.Insert(m.host, i, h)
}

// hostAt finds page-locked memory around an address, or nil.
func (m *Machine) hostAt(p uint64) *pinned {
	for _, h := range m.host {
		if p >= h.start && p-h.start < uint64(h.size) {
			return h
		}
	}
	return nil
}

// isPinned reports whether one piece of page-locked memory contains all of [p, p+n). A copy must not cross into
// another.
func (m *Machine) isPinned(p uint64, n int64) bool {
	h := m.hostAt(p)
	return h != nil && uint64(n) <= h.start+uint64(h.size)-p
}

// memFreeHost waits for all work queued in the context.
func (c *call) memFreeHost(p uint64) Result {
	h := c.hostAt(p)
	if h == nil || h.start != p || h.registered {
		return InvalidValue
	}
	if r := c.drain(c.ctx); r != Success {
		return r
	}
	c.freeHost(h)
	return Success
}

func (m *Machine) freeHost(h *pinned) {
	m.host = remove(m.host, h)
	if !h.registered {
		must(unix.MunmapPtr(pointer(h.start), uintptr(h.mapped)))
	}
}

func (c *call) memHostRegister(p, size uint64, flags uint32) Result {
	if p == 0 || size == 0 || p+size < p || flags&^(hostPortable|hostDeviceMap|registerReadOnly) != 0 {
		return InvalidValue
	}
	if p < c.end && p+size > c.base {
		return InvalidValue
	}
	for _, h := range c.host {
		if p < h.start+uint64(h.size) && h.start < p+size {
			return HostAlreadyRegistered
		}
	}
	c.addHost(&pinned{start: p, size: int64(size), registered: true, ctx: c.ctx})
	return Success
}

// memHostUnregister does not wait. Queued work that uses the memory fails.
func (c *call) memHostUnregister(p uint64) Result {
	h := c.hostAt(p)
	if h == nil || h.start != p || !h.registered {
		return HostNotRegistered
	}
	c.freeHost(h)
	return Success
}
