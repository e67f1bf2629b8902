//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// virtual holds the pages of a device. Reservations and mappings are in device.known, so that streams can check
// addresses without waiting for the calls here: cuMemSetAccess takes 25 us for each page.
//
// A page is a handle of cuMemCreate. Dropping a page releases the handle at once; libcuda keeps the memory as long as
// it is mapped. States are checked in these tables before libcuda is called, because its behaviour for many errors is
// undocumented.
type virtual struct {
	mu    sync.Mutex // held during calls that map and unmap; taken before ranges.mu
	pages map[uint64]*page
	last  uint64 // the number of the newest page; numbers are not reused
}

// A page exists until it is dropped and no longer mapped. A dropped page has no handle.
type page struct {
	handle   cu.MemHandle
	size     int64
	imported bool // from another process: not counted in the budget
	places   int  // number of its mappings
	dropped  bool
}

// VirtualMemory is nil if the device or the driver has none.
func (d *device) VirtualMemory() driver.VirtualMemory {
	if d.info.Granularity == 0 {
		return nil
	}
	return virtualMemory{d}
}

// virtualMemory is the driver.VirtualMemory of a device.
type virtualMemory struct{ d *device }

// whole panics if size is negative, and returns an error unless size is a multiple of the granularity.
func (d *device) whole(call string, size int64) error {
	checkSize(call, size)
	if g := d.info.Granularity; size == 0 || size%g != 0 {
		return invalidError(call, "%d bytes are not a multiple of the granularity, %s", size, bytesize.Exact(g))
	}
	return nil
}

func (v virtualMemory) Reserve(size int64) (driver.Pointer, error) {
	const call = "VirtualMemory.Reserve"
	if err := v.d.whole(call, size); err != nil {
		return 0, err
	}
	if err := v.d.enter(call); err != nil {
		return 0, err
	}
	defer v.d.leave()
	p, r := v.d.lib.MemAddressReserve(size, v.d.info.Granularity)
	if r != cu.Success {
		return 0, v.d.fail(call, r, "%s of addresses", bytesize.Format(size))
	}
	v.d.known.add(driver.Pointer(p), size, reserved)
	return driver.Pointer(p), nil
}

func (v virtualMemory) Release(p driver.Pointer, size int64) error {
	const call = "VirtualMemory.Release"
	checkSize(call, size)
	if err := v.d.enter(call); err != nil {
		return err
	}
	defer v.d.leave()
	v.d.virtual.mu.Lock()
	defer v.d.virtual.mu.Unlock()
	if err := v.d.known.removeReservation(call, p, size); err != nil {
		return err
	}
	if r := v.d.lib.MemAddressFree(uint64(p), size); r != cu.Success {
		v.d.known.add(p, size, reserved)
		return v.d.fail(call, r, "%#x+%d", p, size)
	}
	return nil
}

func (v virtualMemory) Create(size int64) (driver.Page, error) {
	const call = "VirtualMemory.Create"
	if err := v.d.whole(call, size); err != nil {
		return driver.Page{}, err
	}
	if err := v.d.enter(call); err != nil {
		return driver.Page{}, err
	}
	defer v.d.leave()
	return v.d.createPage(call, size, 0)
}

// createPage makes a page that can be shared by the handle types of cu.MemProp, or by none. Network cards can access it
// if the device supports that, as they can access blocks of Alloc. Between enter and leave.
func (d *device) createPage(call string, size int64, handleTypes int32) (driver.Page, error) {
	if size > d.info.TotalMemory || !d.budget.take(size) {
		return driver.Page{}, d.full(call, size)
	}
	prop := cu.DeviceMemory(d.dev, handleTypes)
	prop.RDMA = d.rdma
	h, r := d.lib.MemCreate(size, prop)
	if r == cu.Success {
		return d.adoptPage(page{handle: h, size: size}), nil
	}
	d.budget.giveBack(size)
	if r == cu.OutOfMemory {
		return driver.Page{}, d.full(call, size)
	}
	return driver.Page{}, d.fail(call, r, "%s", bytesize.Format(size))
}

// adoptPage numbers a page. The device then owns its handle.
func (d *device) adoptPage(pg page) driver.Page {
	v := &d.virtual
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pages == nil {
		v.pages = map[uint64]*page{}
	}
	v.last++
	v.pages[v.last] = &pg
	return driver.Page{ID: v.last, Size: pg.size}
}

// handleOf returns the handle of a page. It is valid until the page is dropped.
func (d *device) handleOf(call string, p driver.Page) (cu.MemHandle, error) {
	d.virtual.mu.Lock()
	defer d.virtual.mu.Unlock()
	pg, err := d.virtual.live(call, p)
	if err != nil {
		return 0, err
	}
	return pg.handle, nil
}

// live returns a page that was created and not dropped. v.mu is held.
func (v *virtual) live(call string, p driver.Page) (*page, error) {
	if pg, ok := v.pages[p.ID]; ok && pg.size == p.Size && !pg.dropped {
		return pg, nil
	}
	return nil, invalidError(call, "page %d of %d bytes does not exist", p.ID, p.Size)
}

func (v virtualMemory) Drop(p driver.Page) error {
	const call = "VirtualMemory.Drop"
	if err := v.d.enter(call); err != nil {
		return err
	}
	defer v.d.leave()
	own := &v.d.virtual
	own.mu.Lock()
	defer own.mu.Unlock()
	pg, err := own.live(call, p)
	if err != nil {
		return err
	}
	if r := v.d.lib.MemRelease(pg.handle); r != cu.Success {
		return v.d.fail(call, r, "page %d", p.ID)
	}
	pg.dropped = true
	v.d.forgetUnused(p.ID)
	return nil
}

// forgetUnused deletes a page that is dropped and no longer mapped. virtual.mu is held.
func (d *device) forgetUnused(id uint64) {
	pg := d.virtual.pages[id]
	if !pg.dropped || pg.places > 0 {
		return
	}
	delete(d.virtual.pages, id)
	if !pg.imported {
		d.budget.giveBack(pg.size)
	}
}

// Map calls cuMemSetAccess once for all the pages.
func (v virtualMemory) Map(p driver.Pointer, pages ...driver.Page) error {
	const call = "VirtualMemory.Map"
	if err := v.d.enter(call); err != nil {
		return err
	}
	defer v.d.leave()
	own := &v.d.virtual
	own.mu.Lock()
	defer own.mu.Unlock()
	var total int64
	found := make([]*page, len(pages))
	for i, named := range pages {
		pg, err := own.live(call, named)
		if err != nil {
			return err
		}
		if found[i] = pg; pg.size > math.MaxInt64-total {
			return invalidError(call, "the pages have more than %d bytes", int64(math.MaxInt64))
		}
		total += pg.size
	}
	if err := v.d.whole(call, total); err != nil {
		return err
	}
	if g := v.d.info.Granularity; uint64(p)%uint64(g) != 0 {
		return invalidError(call, "%#x is not a multiple of the granularity, %s", p, bytesize.Exact(g))
	}
	if err := v.d.known.unmapped(call, p, total); err != nil {
		return err
	}
	if err := v.mapAll(call, p, found); err != nil {
		return err
	}
	if r := v.d.lib.MemSetAccess(uint64(p), total, cu.ReadWrite(v.d.dev)); r != cu.Success {
		return v.d.rollback(call, p, total, v.d.fail(call, r, "access to %#x+%d", p, total))
	}
	v.d.known.mapped(p, pages)
	for _, pg := range found {
		pg.places++
	}
	return nil
}

// mapAll maps all pages at consecutive addresses, or none.
func (v virtualMemory) mapAll(call string, p driver.Pointer, pages []*page) error {
	at := p
	for i, pg := range pages {
		if r := v.d.lib.MemMap(uint64(at), pg.size, pg.handle); r != cu.Success {
			return v.d.rollback(call, p, int64(at-p), v.d.fail(call, r, "page %d of %d at %#x", i+1, len(pages), at))
		}
		at += driver.Pointer(pg.size)
	}
	return nil
}

// rollback unmaps the pages that were mapped before err.
func (d *device) rollback(call string, p driver.Pointer, size int64, err error) error {
	if size == 0 {
		return err
	}
	if r := d.lib.MemUnmap(uint64(p), size); r != cu.Success {
		return fmt.Errorf("%w; and undoing it: %w", err, d.fail(call, r, "%#x+%d", p, size))
	}
	return err
}

// Unmap makes one call of libcuda, whatever the number of pages.
func (v virtualMemory) Unmap(p driver.Pointer, size int64) error {
	const call = "VirtualMemory.Unmap"
	if err := v.d.whole(call, size); err != nil {
		return err
	}
	if err := v.d.enter(call); err != nil {
		return err
	}
	defer v.d.leave()
	v.d.virtual.mu.Lock()
	defer v.d.virtual.mu.Unlock()
	pages, err := v.d.known.unmap(call, p, size)
	if err != nil {
		return err
	}
	if r := v.d.lib.MemUnmap(uint64(p), size); r != cu.Success {
		v.d.known.mapped(p, pages)
		return v.d.fail(call, r, "%#x+%d", p, size)
	}
	for _, pg := range pages {
		v.d.virtual.pages[pg.ID].places--
		v.d.forgetUnused(pg.ID)
	}
	return nil
}
