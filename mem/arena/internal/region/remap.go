package region

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// remapFrom is the page size, in bytes, from which remapping is cheaper than copying.
//
// On an H200 remapping takes 40 to 50 us for each page of a long run (25 of them for access, 15 for unmapping),
// whatever its size up to 256 MiB, and 80 us for a single page, because the page at the destination moves, too. Copying
// takes 0.5 us for each MiB. Moving 8 GiB down by one page took 180 ms with pages of 2 MiB, 10.2 with 32 MiB, 5.5 with
// 64 MiB, 2.8 with 128 MiB and 1.6 with 256 MiB; copying took 4.3 ms. A single page of 128 MiB took 80 us, or 91 by
// copying. The caller waits for remapping, while a copy is queued in 10 us.
const remapFrom = 128 << 20

// A pageMove moves whole pages down by whole pages: the pages of the n slots from first+by on move to the slots from
// first on, and the pages that were there move to the slots that become free.
type pageMove struct{ first, n, by int }

// pageMoveOf returns the whole pages within a move, if there are any and remapping is faster than copying.
func (r *Region) pageMoveOf(m Move) (pageMove, bool) {
	shift := int64(m.From - m.To)
	if r.vm == nil || r.page < r.remapFrom || shift%r.page != 0 {
		return pageMove{}, false
	}
	start := int64(m.To - r.base)
	first, end := roundUp(start, r.page)/r.page, (start+m.Size)/r.page
	return pageMove{int(first), int(end - first), int(shift / r.page)}, end > first
}

// remap moves one run: it copies the bytes before the first whole page, remaps the pages, and copies the bytes after
// the last whole page. The first copy overwrites no needed bytes, because it is shorter than the shift, and the last
// copy is the last step. So mapping the pages back undoes the move.
func (r *Region) remap(s driver.Stream, m Move, t pageMove) error {
	start, end := r.at(t.first), r.at(t.first+t.n)
	shift := m.From - m.To
	if head := int64(start - m.To); head > 0 {
		if err := s.Copy(m.To, m.From, head); err != nil {
			return err
		}
	}
	if err := s.Sync(context.Background()); err != nil {
		return err
	}
	before, after := r.pageRuns(t)
	if err := r.replace(before, after); err != nil {
		return err
	}
	if tail := m.Size - int64(end-m.To); tail > 0 {
		if err := s.Copy(end, end+shift, tail); err != nil {
			if undone := r.replace(after, before); undone != nil {
				return r.lose(undone)
			}
			return err
		}
	}
	return nil
}

// A pageRun is a list of pages in consecutive slots.
type pageRun struct {
	first int
	pages []driver.Page
}

// pageRuns returns the runs that a move changes, before and after it.
func (r *Region) pageRuns(t pageMove) (before, after []pageRun) {
	if t.by <= t.n { // sources and destinations form one run, which is rotated
		was := slices.Clone(r.slots[t.first : t.first+t.n+t.by])
		is := slices.Concat(was[t.by:], was[:t.by])
		return []pageRun{{t.first, was}}, []pageRun{{t.first, is}}
	}
	low, high := t.first, t.first+t.by
	a, b := slices.Clone(r.slots[low:low+t.n]), slices.Clone(r.slots[high:high+t.n])
	return []pageRun{{low, a}, {high, b}}, []pageRun{{low, b}, {high, a}}
}

// replace maps the pages of the rows before as the rows after, in the same slots. If it fails, the mapping is
// unchanged.
func (r *Region) replace(before, after []pageRun) error {
	for i, old := range before {
		if _, err := r.take(old.first, len(old.pages)); err != nil {
			return r.restore(err, nil, before[:i])
		}
	}
	for i, next := range after {
		if err := r.place(next.first, next.pages); err != nil {
			return r.restore(err, after[:i], before)
		}
	}
	return nil
}

// restore unmaps the rows placed and maps the rows before. If that fails, too, pages without a slot become spare, so
// that Close frees them.
func (r *Region) restore(cause error, placed, before []pageRun) error {
	for _, p := range placed {
		if _, err := r.take(p.first, len(p.pages)); err != nil {
			return r.strand(before, cause, err)
		}
	}
	for _, old := range before {
		if err := r.place(old.first, old.pages); err != nil {
			return r.strand(before, cause, err)
		}
	}
	return cause
}

func (r *Region) strand(rows []pageRun, errs ...error) error {
	for _, old := range rows {
		for _, pg := range old.pages {
			if !slices.Contains(r.slots, pg) {
				r.spare = append(r.spare, pg)
			}
		}
	}
	r.unmapped = r.lose(errors.Join(errs...))
	return r.unmapped
}
