package host

import (
	"errors"
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// physical is the operating system's memory without addresses. The device's lock is held in all calls.
type physical interface {
	// reserve returns size bytes of inaccessible addresses, from a multiple of align on.
	reserve(size, align int64) (driver.Pointer, error)
	release(p driver.Pointer, size int64) error

	// create adds size bytes of memory and returns their offset. discard frees them.
	create(size int64) (offset int64, err error)
	discard(offset, size int64) error

	// mapAt maps memory at a reserved address; unmapAt makes addresses reserved again.
	mapAt(p driver.Pointer, offset, size int64) error
	unmapAt(p driver.Pointer, size int64) error

	close() error
}

// A reservation is a range of addresses, with the mappings in it.
type reservation struct {
	mapped spans.Table[mapping]
}

// A mapping is a page at an address, and the peers that may use it there.
type mapping struct {
	page  *page
	peers []*device
}

// A page is a range of physical memory. It is freed when it is dropped and mapped nowhere.
type page struct {
	driver.Page
	memory   physical // of which it is a range: the device's, or its own
	own      bool
	imported bool // another process's: not counted as allocated here
	offset   int64
	places   int // number of its mappings
	dropped  bool
}

// virtualMemory implements driver.VirtualMemory.
type virtualMemory struct{ d *device }

// whole fails unless size is a positive multiple of the granularity. It panics if size is negative.
func (v virtualMemory) whole(call string, size int64) error {
	if size < 0 {
		panic(fmt.Sprintf("driver/host: %s of %d bytes", call, size))
	}
	if g := v.d.info.Granularity; size == 0 || size%g != 0 {
		return invalidError(call, "%d bytes are not a multiple of the granularity, %s", size, bytesize.Exact(g))
	}
	return nil
}

// open locks the device, or fails if it is closed.
func (v virtualMemory) open(call string) error {
	v.d.mu.Lock()
	if v.d.closed {
		v.d.mu.Unlock()
		return closedError(call)
	}
	return nil
}

// openWhole is whole and then open.
func (v virtualMemory) openWhole(call string, size int64) error {
	if err := v.whole(call, size); err != nil {
		return err
	}
	return v.open(call)
}

func (v virtualMemory) Reserve(size int64) (driver.Pointer, error) {
	const call = "VirtualMemory.Reserve"
	if err := v.openWhole(call, size); err != nil {
		return 0, err
	}
	defer v.d.mu.Unlock()
	p, err := v.d.physical.reserve(size, v.d.info.Granularity)
	if err != nil {
		return 0, systemError(call, fmt.Sprintf("%s of addresses", bytesize.Format(size)), err)
	}
	v.d.reserved.Insert(spans.Entry[*reservation]{At: p, Size: size, Value: &reservation{}})
	return p, nil
}

func (v virtualMemory) Release(p driver.Pointer, size int64) error {
	const call = "VirtualMemory.Release"
	if err := v.openWhole(call, size); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	i := v.d.reserved.Starting(p)
	if i < 0 || v.d.reserved[i].Size != size {
		return invalidError(call, "%#x+%d is not a reservation", p, size)
	}
	if n := len(v.d.reserved[i].Value.mapped); n > 0 {
		return invalidError(call, "%d pages are still mapped in %#x+%d: unmap them first", n, p, size)
	}
	if err := v.d.physical.release(p, size); err != nil {
		return systemError(call, fmt.Sprintf("%#x+%d", p, size), err)
	}
	v.d.reserved.Remove(i, i+1)
	return nil
}

// Create counts the page as allocated; the operating system provides its memory when it is touched.
func (v virtualMemory) Create(size int64) (driver.Page, error) {
	const call = "VirtualMemory.Create"
	if err := v.openWhole(call, size); err != nil {
		return driver.Page{}, err
	}
	defer v.d.mu.Unlock()
	if err := v.d.reserve(call, size); err != nil {
		return driver.Page{}, err
	}
	offset, err := v.d.physical.create(size)
	if err != nil {
		v.d.used -= size
		return driver.Page{}, systemError(call, bytesize.Format(size), err)
	}
	return v.d.addPage(page{Page: driver.Page{Size: size}, memory: v.d.physical, offset: offset}), nil
}

// addPage adds a page, and returns it with its number. d.mu is held.
func (d *device) addPage(pg page) driver.Page {
	d.lastPage++
	pg.ID = d.lastPage
	d.pages[pg.ID] = &pg
	return pg.Page
}

// live finds a page that was created and not dropped.
func (v virtualMemory) live(call string, p driver.Page) (*page, error) {
	if pg := v.d.pages[p.ID]; pg != nil && !pg.dropped && pg.Size == p.Size {
		return pg, nil
	}
	return nil, invalidError(call, "page %d of %d bytes does not exist", p.ID, p.Size)
}

func (v virtualMemory) Drop(p driver.Page) error {
	const call = "VirtualMemory.Drop"
	if err := v.open(call); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	pg, err := v.live(call, p)
	if err != nil {
		return err
	}
	pg.dropped = true
	return v.collect(call, pg)
}

// collect frees the memory of a page that is dropped and mapped nowhere.
func (v virtualMemory) collect(call string, pg *page) error {
	if !pg.dropped || pg.places > 0 {
		return nil
	}
	delete(v.d.pages, pg.ID)
	if err := v.d.discard(pg); err != nil {
		return systemError(call, fmt.Sprintf("give back page %d", pg.ID), err)
	}
	return nil
}

// discard frees the memory of a page. d.mu is held.
func (d *device) discard(pg *page) error {
	if !pg.imported {
		d.used -= pg.Size
	}
	if pg.own {
		return pg.memory.close()
	}
	return pg.memory.discard(pg.offset, pg.Size)
}

func (v virtualMemory) Map(p driver.Pointer, pages ...driver.Page) error {
	const call = "VirtualMemory.Map"
	if err := v.open(call); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	var total int64
	found := make([]*page, len(pages))
	for i, named := range pages {
		pg, err := v.live(call, named)
		if err != nil {
			return err
		}
		if found[i] = pg; pg.Size > math.MaxInt64-total {
			return invalidError(call, "the pages have more than %d bytes", int64(math.MaxInt64))
		}
		total += pg.Size
	}
	if err := v.whole(call, total); err != nil {
		return err
	}
	i := v.d.reserved.Find(p)
	if i < 0 || total > int64(v.d.reserved[i].End()-p) {
		return invalidError(call, "%#x+%d is not inside one reservation", p, total)
	}
	if g := v.d.info.Granularity; int64(p)%g != 0 {
		return invalidError(call, "%#x is not a multiple of the granularity, %s", p, bytesize.Exact(g))
	}
	mapped := &v.d.reserved[i].Value.mapped
	if !mapped.Free(p, total) {
		return invalidError(call, "%#x+%d is partly mapped already", p, total)
	}
	at := p
	for _, pg := range found {
		if err := pg.memory.mapAt(at, pg.offset, pg.Size); err != nil {
			if at > p {
				err = errors.Join(err, v.d.physical.unmapAt(p, int64(at-p)))
			}
			return systemError(call, fmt.Sprintf("page %d at %#x", pg.ID, at), err)
		}
		at += driver.Pointer(pg.Size)
	}
	for _, pg := range found {
		mapped.Insert(spans.Entry[mapping]{At: p, Size: pg.Size, Value: mapping{page: pg}})
		pg.places++
		p += driver.Pointer(pg.Size)
	}
	return nil
}

func (v virtualMemory) Unmap(p driver.Pointer, size int64) error {
	const call = "VirtualMemory.Unmap"
	if err := v.openWhole(call, size); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	mapped, from, to, err := v.wholePages(call, p, size)
	if err != nil {
		return err
	}
	if err := v.d.physical.unmapAt(p, size); err != nil {
		return systemError(call, fmt.Sprintf("%#x+%d", p, size), err)
	}
	var errs []error
	for _, e := range (*mapped)[from:to] {
		e.Value.page.places--
		errs = append(errs, v.collect(call, e.Value.page))
	}
	mapped.Remove(from, to)
	return errors.Join(errs...)
}

// wholePages returns the mappings that make up [p, p+size), as indices of a reservation's, or fails. The lock is held.
func (v virtualMemory) wholePages(call string, p driver.Pointer, size int64) (*spans.Table[mapping], int, int, error) {
	i := v.d.reserved.Find(p)
	if i < 0 || size > int64(v.d.reserved[i].End()-p) {
		return nil, 0, 0, invalidError(call, "%#x+%d is not inside one reservation", p, size)
	}
	mapped := &v.d.reserved[i].Value.mapped
	from, to, ok := mapped.Run(p, size)
	if !ok || (*mapped)[from].At != p || (*mapped)[to-1].End() != p+driver.Pointer(size) {
		return nil, 0, 0, invalidError(call, "%#x+%d is not a run of whole mapped pages", p, size)
	}
	return mapped, from, to, nil
}

// closePages frees all pages and reservations. d.mu is held.
func (d *device) closePages() error {
	if d.physical == nil {
		return nil
	}
	var errs []error
	for _, r := range d.reserved {
		errs = append(errs, d.physical.release(r.At, r.Size))
	}
	for _, pg := range d.pages {
		errs = append(errs, d.discard(pg))
	}
	d.reserved, d.pages = nil, nil
	return errors.Join(append(errs, d.physical.close())...)
}

// systemError returns the error for a failed system call. The operating system does not distinguish a lack of memory
// from a lack of mappings.
func systemError(call, what string, err error) error {
	return &driver.Error{
		Call: call, Code: driver.ErrNoMemory, Detail: fmt.Sprintf("%s: the operating system says: %v", what, err),
	}
}
