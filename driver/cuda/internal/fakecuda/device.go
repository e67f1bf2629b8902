//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"fmt"
	"maps"
	"slices"
)

// A device is one GPU: its memory and its primary context.
type device struct {
	ordinal    int
	fd         int   // the memory: a sparse memfd
	top        int64 // bytes of fd allocated so far; none is allocated twice
	used       int64 // bytes of physical memory that exist
	attributes map[int32]int32
	context    *primary
	holds      int // how often the context was retained and not released
}

// A primary is a primary context. It is destroyed once it is released as often as it was retained. A later retain makes
// another one.
type primary struct {
	dev     *device
	handle  uint64
	live    bool
	broken  Result // the result of all later calls, once work has failed
	null    *stream
	streams []*stream // including null, and destroyed streams with work that is not done
	peers   map[*primary]bool
}

func (m *Machine) newDevice(ordinal int) *device {
	d := &device{ordinal: ordinal, fd: memfd("fakecuda device"), attributes: map[int32]int32{
		1: 1024, 2: 1024, 3: 1024, 4: 64, // threads of a block, and of its dimensions
		5: 1<<31 - 1, 6: 65535, 7: 65535, // blocks of a grid's dimensions
		8: 48 << 10, 10: 32, 12: 65536, 16: 132, // shared memory, warp, registers, multiprocessors
		18: 0, 19: 1, 20: 0, 31: 1, // integrated, maps host memory, compute mode, concurrent kernels
		33: int32(0x1b + ordinal), 34: 0, 50: 0, // PCI bus, device, domain
		38: 50 << 20, 39: 2048, 40: 3, 41: 1, // L2, threads of a multiprocessor, copy engines, unified addressing
		75: 9, 76: 0, 78: 1, 81: 228 << 10, 83: 1, // compute capability, priorities, shared memory, managed memory
		// pageable access, managed concurrently, registered pointers, opt-in shared memory
		88: 0, 89: 1, 91: 1, 97: 227 << 10,
		102: 1, 103: 1, 110: 0, 115: 1, 119: 1, // virtual memory, as files, with RDMA; pools, and their handles
		128: 0, 132: 0, // fabric, multicast
	}}
	if m.opts.NoVirtual {
		d.attributes[102], d.attributes[103] = 0, 0
	}
	if m.opts.NoFD {
		d.attributes[103] = 0
	}
	maps.Copy(d.attributes, m.opts.Attributes)
	d.context = &primary{}
	return d
}

func (c *call) init(flags uint32) Result {
	if c.opts.Init != Success {
		return c.opts.Init
	}
	if flags != 0 {
		return InvalidValue
	}
	c.inited = true
	return Success
}

func (c *call) driverGetVersion(version *int32) Result {
	return out(version, c.opts.Version)
}

func (c *call) deviceGetCount(n *int32) Result { return out(n, int32(len(c.devices))) }

func (c *call) deviceGet(dev *int32, ordinal int32) Result {
	if _, ok := c.device(ordinal); !ok {
		return InvalidDevice
	}
	return out(dev, ordinal)
}

// device finds a device by its CUdevice, which is its number.
func (m *Machine) device(dev int32) (*device, bool) {
	if dev < 0 || int(dev) >= len(m.devices) {
		return nil, false
	}
	return m.devices[dev], true
}

func (c *call) deviceGetName(name *byte, n, dev int32) Result {
	return c.text(name, n, dev, c.opts.Name)
}

func (c *call) deviceGetPCIBusID(name *byte, n, dev int32) Result {
	d, ok := c.device(dev)
	if !ok {
		return InvalidDevice
	}
	return c.text(name, n, dev, fmt.Sprintf("%04x:%02x:%02x.0", d.attributes[50], d.attributes[33], d.attributes[34]))
}

// text writes a C string, cut to n bytes, as the driver does.
func (c *call) text(to *byte, n, dev int32, s string) Result {
	if _, ok := c.device(dev); !ok {
		return InvalidDevice
	}
	if to == nil || n <= 0 {
		return InvalidValue
	}
	putText(arrayOf(to, uint64(n)), s)
	return Success
}

func (c *call) deviceGetUUID(uuid *[16]byte, dev int32) Result {
	if _, ok := c.device(dev); !ok {
		return InvalidDevice
	}
	return out(uuid, [16]byte{0xfa, 0xce, 0xcd, 0xa0, 4: 0x11, 6: 0x40, 8: 0x80, 15: byte(dev)})
}

func (c *call) deviceGetAttribute(value *int32, attribute, dev int32) Result {
	d, ok := c.device(dev)
	if !ok {
		return InvalidDevice
	}
	v, ok := d.attributes[attribute]
	if !ok {
		return InvalidValue
	}
	return out(value, v)
}

func (c *call) deviceTotalMem(size *uint64, dev int32) Result {
	if _, ok := c.device(dev); !ok {
		return InvalidDevice
	}
	return out(size, uint64(c.opts.Memory))
}

func (c *call) deviceCanAccessPeer(can *int32, dev, peer int32) Result {
	_, ok := c.device(dev)
	_, ok2 := c.device(peer)
	if !ok || !ok2 {
		return InvalidDevice
	}
	if dev != peer && !c.opts.Unlinked {
		return out(can, 1)
	}
	return out(can, 0)
}

func (c *call) primaryRetain(ctx *uint64, dev int32) Result {
	d, ok := c.device(dev)
	if !ok {
		return InvalidDevice
	}
	if !d.context.live {
		p := &primary{dev: d, live: true, peers: map[*primary]bool{}}
		p.handle = c.newHandle(p)
		p.null = c.newStream(p, 0, 0)
		delete(c.handles, p.null.handle)
		p.null.handle = 0
		d.context = p
	}
	d.holds++
	return out(ctx, d.context.handle)
}

func (c *call) primaryRelease(dev int32) Result {
	d, ok := c.device(dev)
	if !ok {
		return InvalidDevice
	}
	if d.holds == 0 {
		return InvalidContext
	}
	if d.holds--; d.holds == 0 && d.context.live {
		return c.destroy(d.context)
	}
	return Success
}

// destroy waits for a context's work, and destroys the context and everything in it.
func (c *call) destroy(p *primary) Result {
	c.drain(p)
	if c.closed {
		return Deinitialized
	}
	for _, x := range slices.Clone(c.captures) {
		if x.origin.ctx == p {
			c.endCapture(x)
		}
	}
	if p.broken == Success { // in a broken context, callers cannot free anything
		c.abandoned = append(c.abandoned, c.leaksOf(p)...)
	}
	for h, x := range c.handles {
		if owner(x) == p {
			delete(c.handles, h)
		}
	}
	for _, r := range slices.Clone(c.space) {
		if r.block != nil && r.block.ctx == p {
			c.freeBlock(r)
		}
	}
	for _, h := range slices.Clone(c.host) {
		if h.ctx == p {
			c.freeHost(h)
		}
	}
	p.live = false
	p.streams, p.null = nil, nil
	return Success
}

// out stores a result where the caller's pointer points.
func out[T any](to *T, v T) Result {
	if to == nil {
		return InvalidValue
	}
	*to = v
	return Success
}
