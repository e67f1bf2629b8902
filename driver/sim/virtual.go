package sim

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// virtualMemory implements driver.VirtualMemory.
type virtualMemory struct{ d *Device }

// A reservation is a range of addresses, of which some are mapped.
type reservation struct {
	mappings index[*mapping]
}

// A mapping is a page at an address, with the last access through it of each stream: Unmap must come after those.
type mapping struct {
	page *page
	uses []*Access
}

// A page is physical memory. Its bytes count as used until it is dropped and mapped nowhere.
type page struct {
	object
	id      uint64
	mapped  int // number of mappings
	dropped bool
}

// VirtualMemory returns the device's virtual memory, or nil if Options say that it has none.
func (d *Device) VirtualMemory() driver.VirtualMemory {
	if d.opts.NoVirtualMemory {
		return nil
	}
	return virtualMemory{d}
}

// granules fails unless size is a positive multiple of the granularity. Negative sizes panic.
func (d *Device) granules(c Call, size int64) error {
	if size <= 0 || size%d.opts.Granularity != 0 {
		return d.fail(c, driver.ErrInvalid,
			fmt.Sprintf("size %d: want a positive multiple of the granularity %d", size, d.opts.Granularity))
	}
	return nil
}

func notNegative(c Call, size int64) {
	if size < 0 {
		panic(fmt.Sprintf("driver/sim: %v of %d bytes: negative", c, size))
	}
}

func (v virtualMemory) Reserve(size int64) (driver.Pointer, error) {
	notNegative(CallReserve, size)
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallReserve, d.cost(CallReserve, size), uint64(size)); err != nil {
		return 0, err
	}
	if err := d.granules(CallReserve, size); err != nil {
		return 0, err
	}
	start, ok := d.reservable.take(uint64(size))
	if !ok {
		return 0, d.fail(CallReserve, driver.ErrNoMemory, fmt.Sprintf("no %d consecutive addresses", size))
	}
	d.reservations.insert(start, uint64(size), &reservation{})
	d.addToHash(start)
	return driver.Pointer(start), nil
}

func (v virtualMemory) Release(p driver.Pointer, size int64) error {
	notNegative(CallRelease, size)
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallRelease, d.cost(CallRelease, size), uint64(p), uint64(size)); err != nil {
		return err
	}
	at := d.reservations.floor(uint64(p))
	if !d.reservations.valid(at) || d.reservations.at(at).start != uint64(p) ||
		d.reservations.at(at).size != uint64(size) {
		return d.fail(CallRelease, driver.ErrInvalid, fmt.Sprintf("[%#x, +%d) is not a whole reservation", p, size))
	}
	if n := d.reservations.at(at).value.mappings.n; n != 0 {
		return d.fail(CallRelease, driver.ErrInvalid,
			fmt.Sprintf("%d pages are still mapped in [%#x, +%d): unmap them first", n, p, size))
	}
	d.reservations.remove(at)
	d.reservable.give(uint64(p), uint64(size))
	d.remember(uint64(p), uint64(size))
	return nil
}

func (v virtualMemory) Create(size int64) (driver.Page, error) {
	notNegative(CallCreate, size)
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallCreate, d.cost(CallCreate, size), uint64(size)); err != nil {
		return driver.Page{}, err
	}
	if err := d.granules(CallCreate, size); err != nil {
		return driver.Page{}, err
	}
	if err := d.room(CallCreate, size); err != nil {
		return driver.Page{}, err
	}
	d.lastPage++
	d.pages[d.lastPage] = &page{object: d.newObject(size), id: d.lastPage}
	d.used += size
	return driver.Page{ID: d.lastPage, Size: size}, nil
}

// page finds a page that is not dropped, or returns an error that says what is wrong with it.
func (d *Device) page(c Call, h driver.Page) (*page, error) {
	pg := d.pages[h.ID]
	switch {
	case pg == nil && (h.ID == 0 || h.ID > d.lastPage):
		return nil, d.fail(c, driver.ErrInvalid, fmt.Sprintf("page %d was never created", h.ID))
	case pg == nil || pg.dropped:
		return nil, d.fail(c, driver.ErrInvalid, fmt.Sprintf("page %d was dropped", h.ID))
	case pg.size != h.Size:
		return nil, d.fail(c, driver.ErrInvalid, fmt.Sprintf("page %d has %d bytes, not %d", h.ID, pg.size, h.Size))
	}
	return pg, nil
}

func (v virtualMemory) Drop(h driver.Page) error {
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallDrop, d.cost(CallDrop, h.Size), h.ID); err != nil {
		return err
	}
	pg, err := d.page(CallDrop, h)
	if err != nil {
		return err
	}
	pg.dropped = true
	d.reclaim(pg)
	return nil
}

// reclaim frees a page's memory once the page is dropped and mapped nowhere.
func (d *Device) reclaim(pg *page) {
	if pg.dropped && pg.mapped == 0 {
		d.used -= pg.size
		delete(d.pages, pg.id)
	}
}

func (v virtualMemory) Map(p driver.Pointer, pages ...driver.Page) error {
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallMap, d.model.Map(pages...), uint64(p)); err != nil {
		return err
	}
	if len(pages) == 0 {
		return d.fail(CallMap, driver.ErrInvalid, "no pages")
	}
	found := make([]*page, len(pages))
	var size uint64
	for i, h := range pages {
		pg, err := d.page(CallMap, h)
		if err != nil {
			return err
		}
		d.addToHash(h.ID)
		found[i] = pg
		size += uint64(h.Size)
	}
	if uint64(p)%uint64(d.opts.Granularity) != 0 {
		return d.fail(CallMap, driver.ErrInvalid,
			fmt.Sprintf("%#x is not a multiple of the granularity %d", p, d.opts.Granularity))
	}
	r := d.reservations.find(uint64(p))
	if r == nil || size > r.end()-uint64(p) {
		return d.fail(CallMap, driver.ErrInvalid, fmt.Sprintf("[%#x, +%d) is not inside one reservation", p, size))
	}
	mappings := &r.value.mappings
	if next := mappings.from(uint64(p)); mappings.valid(next) && mappings.at(next).start < uint64(p)+size {
		m := mappings.at(next)
		return d.fail(CallMap, driver.ErrInvalid,
			fmt.Sprintf("page %d is mapped at [%#x, +%d) already", m.value.page.id, m.start, m.size))
	}
	at := uint64(p)
	for _, pg := range found {
		mappings.insert(at, uint64(pg.size), &mapping{page: pg})
		pg.mapped++
		at += uint64(pg.size)
	}
	return nil
}

func (v virtualMemory) Unmap(p driver.Pointer, size int64) error {
	notNegative(CallUnmap, size)
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(CallUnmap, 0, uint64(p), uint64(size)); err != nil {
		return err
	}
	start, end := uint64(p), uint64(p)+uint64(size)
	r := d.reservations.find(start)
	if size == 0 || r == nil || uint64(size) > r.end()-start {
		return d.fail(CallUnmap, driver.ErrInvalid, fmt.Sprintf("[%#x, +%d) is not inside one reservation", p, size))
	}
	mappings := &r.value.mappings
	first := mappings.from(start)
	at := start
	for i := first; at < end; i = mappings.next(i) {
		if !mappings.valid(i) || mappings.at(i).start != at || mappings.at(i).end() > end {
			return d.fail(CallUnmap, driver.ErrInvalid, fmt.Sprintf("[%#x, +%d) is not a run of whole mapped pages: "+
				"no page within it starts at %#x", p, size, at))
		}
		m := mappings.at(i)
		if at == start {
			d.charge(CallUnmap, d.cost(CallUnmap, int64(m.size)))
		} else {
			d.charge(CallUnmap, d.model.UnmapNext)
		}
		at = m.end()
	}
	if err := d.checkUnmap(mappings, first, driver.Range{Ptr: p, Size: size}); err != nil {
		return err
	}
	for i := first; mappings.valid(i) && mappings.at(i).start < end; i = mappings.next(i) {
		pg := mappings.at(i).value.page
		pg.mapped--
		d.reclaim(pg)
	}
	mappings.removeFrom(start, end)
	return nil
}
