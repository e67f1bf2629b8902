//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/spans"
)

// The part of ranges that virtual memory changes. virtual.mu is held in all of these functions except mappedRun, so a
// reservation does not change between a check and the change that follows. ranges.mu is held only while the table is
// read or written.

// inside returns the reservation that [p, p+size) is in. r.mu is held.
func (r *ranges) inside(call string, p driver.Pointer, size int64) (*known, error) {
	i := r.t.Find(p)
	if i < 0 || r.t[i].Value.kind != reserved || size > int64(r.t[i].End()-p) {
		return nil, invalidError(call, "%#x+%d is not inside one reservation", p, size)
	}
	return &r.t[i].Value, nil
}

// wholePages returns the part of the reservation's table for [p, p+size), which must consist of whole pages. r.mu is
// held.
func (r *ranges) wholePages(call string, p driver.Pointer, size int64) (in *known, from, to int, err error) {
	if in, err = r.inside(call, p, size); err != nil {
		return nil, 0, 0, err
	}
	from, to, ok := in.mapped.Run(p, size)
	if !ok || in.mapped[from].At != p || in.mapped[to-1].End() != p+driver.Pointer(size) {
		return nil, 0, 0, invalidError(call, "%#x+%d is not a run of whole mapped pages", p, size)
	}
	return in, from, to, nil
}

// unmapped returns an error unless [p, p+size) is inside one reservation and no page is mapped there.
func (r *ranges) unmapped(call string, p driver.Pointer, size int64) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	in, err := r.inside(call, p, size)
	if err == nil && !in.mapped.Free(p, size) {
		err = invalidError(call, "%#x+%d is partly mapped already", p, size)
	}
	return err
}

// mapped records that pages were mapped from p on.
func (r *ranges) mapped(p driver.Pointer, pages []driver.Page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := &r.t[r.t.Find(p)].Value
	for _, pg := range pages {
		in.mapped.Insert(spans.Entry[uint64]{At: p, Size: pg.Size, Value: pg.ID})
		p += driver.Pointer(pg.Size)
	}
}

// unmap removes the pages at [p, p+size) from the table before they are unmapped, so that no more work is queued there,
// and returns them.
func (r *ranges) unmap(call string, p driver.Pointer, size int64) ([]driver.Page, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, from, to, err := r.wholePages(call, p, size)
	if err != nil {
		return nil, err
	}
	pages := make([]driver.Page, 0, to-from)
	for _, e := range in.mapped[from:to] {
		pages = append(pages, driver.Page{ID: e.Value, Size: e.Size})
	}
	in.mapped.Remove(from, to)
	return pages, nil
}

// removeReservation removes a whole reservation without mapped pages.
func (r *ranges) removeReservation(call string, p driver.Pointer, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.t.Starting(p)
	if i < 0 || r.t[i].Value.kind != reserved || r.t[i].Size != size {
		return invalidError(call, "%#x+%d is not a whole reservation", p, size)
	}
	if len(r.t[i].Value.mapped) > 0 {
		return invalidError(call, "pages are mapped in %#x+%d", p, size)
	}
	r.t.Remove(i, i+1)
	return nil
}

// mappedRun returns an error unless [p, p+size) consists of whole mapped pages of one reservation.
func (d *device) mappedRun(call string, p driver.Pointer, size int64) error {
	d.known.mu.RLock()
	defer d.known.mu.RUnlock()
	_, _, _, err := d.known.wholePages(call, p, size)
	return err
}
