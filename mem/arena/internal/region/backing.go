package region

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// Extend maps memory to all of [Base, end), where end is at most Base + Size. Without pages it does nothing. It maps
// all missing pages or none; the error matches driver.ErrNoMemory if there is no room for them.
func (r *Region) Extend(end driver.Pointer) error {
	need := r.slotsTo(end)
	have := r.ready
	if r.unmapped != nil || need <= have {
		return r.unmapped
	}
	pages := make([]driver.Page, 0, min(need-have, 1<<10)) // more only once the device had so many
	for len(pages) < need-have {
		if n := len(r.spare); n > 0 {
			pages, r.spare = append(pages, r.spare[n-1]), r.spare[:n-1]
			continue
		}
		pg, err := r.vm.Create(r.page)
		if err != nil {
			return r.discard(pages, err)
		}
		r.pages++
		pages = append(pages, pg)
	}
	if err := r.place(have, pages); err != nil {
		return r.discard(pages, err)
	}
	r.ready = need
	return nil
}

// discard drops pages that are not mapped, and adds the reason to err.
func (r *Region) discard(pages []driver.Page, err error) error {
	r.spare = append(r.spare, pages...)
	_ = r.dropSpare() // pages that cannot be dropped are kept and used next
	return fmt.Errorf("region: extend by pages of %d bytes: %w", r.page, err)
}

// Trim frees the pages that lie entirely at or above end. Without pages it does nothing. The caller must have
// synchronized the users of that memory. If it fails, some pages may be unmapped but still count in Reserved; the next
// Extend or Trim handles them.
func (r *Region) Trim(end driver.Pointer) error {
	keep := r.slotsTo(end)
	if r.vm == nil || r.unmapped != nil {
		return r.unmapped
	}
	if err := r.giveBack(keep); err != nil {
		return fmt.Errorf("region: trim: %w", err)
	}
	return nil
}

// Reserved returns the bytes of memory that are currently mapped.
func (r *Region) Reserved() int64 {
	if r.vm == nil {
		return r.size
	}
	return int64(r.pages) * r.page
}

// slotsTo returns the number of slots that overlap [Base, end): 0 without pages.
func (r *Region) slotsTo(end driver.Pointer) int {
	if end < r.base || end > r.base+driver.Pointer(r.size) {
		panic(fmt.Sprintf("region: the end %#x is outside [%#x, +%d)", end, r.base, r.size))
	}
	if r.vm == nil {
		return 0
	}
	return int(roundUp(int64(end-r.base), r.page) / r.page)
}

// giveBack unmaps and drops the pages in the slots from keep on.
func (r *Region) giveBack(keep int) error {
	var errs []error
	for i := keep; i < r.ready; i++ {
		from := i
		for i < r.ready && r.slots[i].ID != 0 {
			i++
		}
		if from == i {
			continue
		}
		pages, err := r.take(from, i-from)
		r.spare = append(r.spare, pages...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.ready = min(r.ready, keep)
	return r.dropSpare()
}

// dropSpare drops the spare pages, and keeps those that cannot be dropped.
func (r *Region) dropSpare() error {
	var errs []error
	kept := r.spare[:0]
	for _, pg := range r.spare {
		if err := r.vm.Drop(pg); err != nil {
			kept, errs = append(kept, pg), append(errs, err)
			continue
		}
		r.pages--
	}
	r.spare = kept
	return errors.Join(errs...)
}

// at returns the address of a slot.
func (r *Region) at(slot int) driver.Pointer { return r.base + driver.Pointer(int64(slot)*r.page) }

// place maps pages into the slots from first on, all or none.
func (r *Region) place(first int, pages []driver.Page) error {
	if err := r.vm.Map(r.at(first), pages...); err != nil {
		return err
	}
	if n := first + len(pages) - len(r.slots); n > 0 {
		r.slots = append(r.slots, make([]driver.Page, n)...)
	}
	copy(r.slots[first:], pages)
	return nil
}

// take unmaps n slots from first on and returns their pages, all or none.
func (r *Region) take(first, n int) ([]driver.Page, error) {
	if err := r.vm.Unmap(r.at(first), int64(n)*r.page); err != nil {
		return nil, err
	}
	pages := append([]driver.Page(nil), r.slots[first:first+n]...)
	clear(r.slots[first : first+n])
	return pages, nil
}
