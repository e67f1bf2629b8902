//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "slices"

// A mapping maps all of some pages at addresses of a reservation. It must not be accessed before cuMemSetAccess.
type mapping struct {
	start, end uint64
	pages      *pages
	access     map[*device]uint64 // what each device may do
}

const (
	accessNone      = 0
	accessRead      = 1
	accessReadWrite = 3
)

func (x *mapping) allows(d *device, how access) bool {
	return x.access[d] == accessReadWrite || (how == reading && x.access[d] == accessRead)
}

// A location is CUmemLocation.
type location struct {
	kind int32 // 1: a device
	id   int32
}

// An allocationProp is CUmemAllocationProp.
type allocationProp struct {
	kind        int32 // 1: CU_MEM_ALLOCATION_TYPE_PINNED
	handleTypes int32
	location    location
	win32       uint64
	compression uint8
	rdma        uint8
	usage       uint16
	_           [4]uint8
}

const posixFD = 1 // of handle types

// An accessDesc is CUmemAccessDesc.
type accessDesc struct {
	location location
	flags    uint32
}

// deviceAt returns the device of a location.
func (c *call) deviceAt(l location) (*device, Result) {
	if l.kind != 1 {
		return nil, InvalidValue
	}
	d, ok := c.device(l.id)
	if !ok {
		return nil, InvalidDevice
	}
	if d.attributes[102] == 0 {
		return nil, NotSupported
	}
	return d, Success
}

// checkProp checks the properties of requested memory.
func (c *call) checkProp(prop *allocationProp) (*device, Result) {
	if prop == nil || prop.kind != 1 || prop.win32 != 0 || prop.compression != 0 || prop.rdma > 1 || prop.usage != 0 {
		return nil, InvalidValue
	}
	d, r := c.deviceAt(prop.location)
	switch {
	case r != Success:
		return nil, r
	case prop.handleTypes&^posixFD != 0, prop.handleTypes == posixFD && d.attributes[103] == 0,
		prop.rdma == 1 && d.attributes[110] == 0:
		return nil, NotSupported
	}
	return d, Success
}

func (c *call) memGetAllocationGranularity(granularity *uint64, prop *allocationProp, option uint32) Result {
	if _, r := c.checkProp(prop); r != Success {
		return r
	}
	if option > 1 {
		return InvalidValue
	}
	return out(granularity, uint64(c.opts.Granularity))
}

// misaligned reports whether a size or address is not a multiple of the granularity.
func (c *call) misaligned(values ...uint64) bool {
	return slices.ContainsFunc(values, func(v uint64) bool { return v%uint64(c.opts.Granularity) != 0 })
}

func (c *call) memAddressReserve(p *uint64, size, align, _, flags uint64) Result {
	switch {
	case c.opts.NoVirtual:
		return NotSupported
	case p == nil || size == 0 || c.misaligned(size) || align&(align-1) != 0 || flags != 0:
		return InvalidValue
	case size > uint64(c.opts.Addresses):
		return OutOfMemory
	}
	r := c.place(int64(size), max(int64(align), c.opts.Granularity))
	if r == nil {
		return OutOfMemory
	}
	r.reservation = true
	return out(p, r.start)
}

func (c *call) memAddressFree(p, size uint64) Result {
	r := c.find(p)
	if r == nil || !r.reservation || r.start != p || r.end-p != size || len(r.maps) > 0 {
		return InvalidValue
	}
	c.space = remove(c.space, r)
	return Success
}

func (c *call) memCreate(h *uint64, size uint64, prop *allocationProp, flags uint64) Result {
	d, r := c.checkProp(prop)
	switch {
	case r != Success:
		return r
	case h == nil || size == 0 || c.misaligned(size) || flags != 0:
		return InvalidValue
	case size > uint64(c.opts.Memory):
		return OutOfMemory
	}
	p, r := c.newPages(d, int64(size), prop.handleTypes == posixFD)
	if r != Success {
		return r
	}
	p.rdma = prop.rdma == 1
	return out(h, c.newAllocationHandle(p))
}

// newAllocationHandle returns the handle of pages, and assigns one if necessary.
func (c *call) newAllocationHandle(p *pages) uint64 {
	if p.handles++; p.handles == 1 {
		p.handle = c.newHandle(p)
	}
	return p.handle
}

// pagesOf finds pages by their handle.
func (c *call) pagesOf(h uint64) (*pages, Result) {
	p, ok := lookup[*pages](c.Machine, h)
	if !ok {
		return nil, InvalidValue
	}
	return p, Success
}

func (c *call) memRelease(h uint64) Result {
	p, r := c.pagesOf(h)
	if r != Success {
		return r
	}
	if p.handles--; p.handles == 0 {
		delete(c.handles, h)
	}
	c.freeUnused(p)
	return Success
}

// memMap maps all of some pages at addresses of one reservation, where nothing is mapped.
func (c *call) memMap(at, size, offset, h, flags uint64) Result {
	p, res := c.pagesOf(h)
	if res != Success {
		return res
	}
	r := c.find(at)
	if size > uint64(p.size) && !c.misaligned(at, size) {
		return NotSupported // the driver's result for more bytes than the pages have (NVIDIA H200)
	}
	if size == 0 || c.misaligned(at, size) || offset != 0 || flags != 0 || size != uint64(p.size) ||
		r == nil || !r.reservation || size > r.end-at {
		return InvalidValue
	}
	i, _ := slices.BinarySearchFunc(r.maps, at, func(x *mapping, a uint64) int {
		if x.end <= a {
			return -1
		}
		return 1
	})
	if i < len(r.maps) && r.maps[i].start < at+size {
		return InvalidValue
	}
	p.aliased = p.aliased || p.mapped > 0
	p.mapped++
	r.maps = slices.Insert(r.maps, i, &mapping{at, at + size, p, map[*device]uint64{}})
	c.mapAt(at, p, 0, int64(size))
	return Success
}

// mappings finds the mappings that tile [at, at+size), all of one reservation.
func (c *call) mappings(at, size uint64) (*region, []*mapping, bool) {
	r := c.find(at)
	if size == 0 || r == nil || !r.reservation || size > r.end-at {
		return nil, nil, false
	}
	var tiles []*mapping
	for _, x := range r.maps {
		if x.end > at && x.start < at+size {
			tiles = append(tiles, x)
		}
	}
	want := at
	for _, x := range tiles {
		if x.start != want {
			return nil, nil, false
		}
		want = x.end
	}
	return r, tiles, want == at+size
}

// memUnmap does not wait. Queued work that uses the memory fails.
func (c *call) memUnmap(at, size uint64) Result {
	r, tiles, ok := c.mappings(at, size)
	if !ok {
		return InvalidValue
	}
	for _, x := range tiles {
		r.maps = remove(r.maps, x)
		c.unmapAt(x.start, int64(x.end-x.start))
		x.pages.mapped--
		c.freeUnused(x.pages)
	}
	return Success
}

func (c *call) memSetAccess(at, size uint64, descs *accessDesc, n uint64) Result {
	_, tiles, ok := c.mappings(at, size)
	if !ok || descs == nil || n == 0 {
		return InvalidValue
	}
	for _, desc := range arrayOf(descs, n) {
		d, r := c.deviceAt(desc.location)
		switch {
		case r != Success:
			return r
		case desc.flags != accessNone && desc.flags != accessRead && desc.flags != accessReadWrite:
			return InvalidValue
		}
		for _, x := range tiles {
			if d == x.pages.dev || desc.flags == accessNone {
				continue
			}
			if c.opts.Unlinked {
				return InvalidDevice
			}
			if x.pages.aliased { // as the driver does (NVIDIA H200, driver 580)
				return InvalidValue
			}
		}
	}
	for _, desc := range arrayOf(descs, n) {
		for _, x := range tiles {
			x.access[c.devices[desc.location.id]] = uint64(desc.flags)
		}
	}
	return Success
}
