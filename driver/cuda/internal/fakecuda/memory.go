//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "slices"

// A block is the memory of one cuMemAlloc or cuIpcOpenMemHandle. It ends where its pages end, and its start is rounded
// down to 512 bytes, to reveal callers that expect more alignment or more bytes.
type block struct {
	base  uint64
	size  int64
	ctx   *primary
	pages *pages
	kind  blockKind
	opens int // how often an imported block was opened and not yet closed
	key   ipcKey
}

type blockKind int

const (
	fromAlloc blockKind = iota
	fromPeer            // another process's
)

func (c *call) memAlloc(p *uint64, size uint64) Result {
	if p == nil || size == 0 {
		return InvalidValue
	}
	if size > uint64(c.opts.Memory) {
		return OutOfMemory
	}
	whole := roundUp(int64(size), c.page)
	pages, r := c.newPages(c.ctx.dev, whole, false)
	if r != Success {
		return r
	}
	at := c.place(whole, c.page)
	if at == nil {
		pages.mapped = 0
		c.freeUnused(pages)
		return OutOfMemory
	}
	pages.mapped = 1
	at.block = &block{
		base: at.start + uint64(whole-int64(size))/512*512, size: int64(size), ctx: c.ctx, pages: pages,
	}
	c.mapAt(at.start, pages, 0, whole)
	return out(p, at.block.base)
}

func (m *Machine) freeBlock(r *region) {
	m.unmapAt(r.start, int64(r.end-r.start))
	m.space = remove(m.space, r)
	r.block.pages.mapped = 0
	m.freeUnused(r.block.pages)
}

// ownBlock finds a block by its first address.
func (c *call) ownBlock(p uint64) (*region, Result) {
	r := c.find(p)
	switch {
	case r == nil || r.block == nil || r.block.base != p:
		return nil, InvalidValue
	case r.block.ctx != c.ctx:
		return nil, InvalidContext
	}
	return r, Success
}

// memFree waits for all work queued in the context, as the driver does.
func (c *call) memFree(p uint64) Result {
	if p == 0 {
		return Success
	}
	r, res := c.ownBlock(p)
	if res != Success {
		return res
	}
	if r.block.kind == fromPeer {
		return InvalidValue
	}
	if res := c.drain(c.ctx); res != Success {
		return res
	}
	if r, res = c.ownBlock(p); res == Success { // another call may have freed it during the wait
		c.freeBlock(r)
	}
	return res
}

func (c *call) memGetInfo(free, total *uint64) Result {
	if free == nil || total == nil {
		return InvalidValue
	}
	*free, *total = uint64(c.opts.Memory-c.ctx.dev.used), uint64(c.opts.Memory)
	return Success
}

// extent returns the block or the reservation around an address, if it has memory.
func (m *Machine) extent(p uint64) (start uint64, size int64, ok bool) {
	r := m.find(p)
	switch {
	case r == nil:
		return 0, 0, false
	case r.block == nil:
		return r.start, int64(r.end - r.start), r.mappingAt(p) != nil
	case p < r.block.base || p >= r.block.base+uint64(r.block.size):
		return 0, 0, false
	}
	return r.block.base, r.block.size, true
}

// known reports whether all of [p, p+n) is backed by memory.
func (m *Machine) known(p uint64, n int64) bool {
	r := m.find(p)
	switch {
	case r == nil || n < 0:
		return false
	case r.block != nil:
		return p >= r.block.base && uint64(n) <= r.block.base+uint64(r.block.size)-p
	}
	for end := p + uint64(n); p < end; {
		x := r.mappingAt(p)
		if x == nil {
			return false
		}
		p = x.end
	}
	return true
}

// The kinds of access to memory.
type access int

const (
	reading access = iota
	writing
)

// view returns the memory that a device's work accesses, or an illegal address. CUDA's unified addressing lets a copy
// (staged) also use memory that only its own device can reach; the machine counts such copies.
func (m *Machine) view(p *primary, at uint64, n int64, how access, copying bool) ([]byte, Result) {
	if !m.known(at, n) {
		m.misuse(IllegalAddress, "device %d touches %#x, %d bytes: nothing is there", p.dev.ordinal, at, n)
		return nil, IllegalAddress
	}
	r := m.find(at)
	direct, possible := true, true
	if b := r.block; b != nil {
		direct = b.ctx.dev == p.dev || p.peers[b.ctx]
	} else {
		for x := at; x < at+uint64(n); {
			y := r.mappingAt(x)
			direct = direct && y.allows(p.dev, how)
			possible = possible && y.allows(y.pages.dev, how)
			x = y.end
		}
	}
	switch {
	case direct:
	case copying && possible:
		m.staged++
	default:
		m.misuse(IllegalAddress, "device %d may not touch %#x, %d bytes", p.dev.ordinal, at, n)
		return nil, IllegalAddress
	}
	return bytesAt(at, n), Success
}

// mappingAt finds the mapping around an address of a reservation, or nil.
func (r *region) mappingAt(p uint64) *mapping {
	i, ok := slices.BinarySearchFunc(r.maps, p, func(x *mapping, p uint64) int {
		switch {
		case x.end <= p:
			return -1
		case x.start > p:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return r.maps[i]
}
