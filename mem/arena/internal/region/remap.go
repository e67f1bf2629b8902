package region

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// remapFrom is the page size, in bytes, from which remapping is cheaper than copying.
//
// On an H200 it takes 40 to 50 us for each page of a long run (25 of them for access, 15 for unmapping), whatever its size
// up to 256 MiB, and 80 us for one that goes alone, since the page that was in its way moves too. Copying takes 0.5 us a
// MiB. Measured, 8 GiB down by one page: pages of 2 MiB 180 ms, 32 MiB 10.2, 64 MiB 5.5, 128 MiB 2.8, 256 MiB 1.6; copied 4.3
// ms. One page of 128 MiB alone: 80 us, copied 91. And the caller waits, while a copy is queued in 10 us.
const remapFrom = 128 << 20

// A pageMove is whole pages that go down by whole pages: n slots from first+by on go to those from first on, and the pages
// that stood there to the slots that become free.
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

// remap moves one run: the bytes before the first whole page are copied, the pages mapped, the bytes behind the last
// whole page copied. The first copy goes where nothing is that matters, since it is shorter than the shift; the last is the
// last that can fail. So to undo it is to map the pages back.
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

// A pageRun is pages in consecutive slots.
type pageRun struct {
	first int
	pages []driver.Page
}

// pageRuns returns the runs that a move changes, before and after it.
func (r *Region) pageRuns(t pageMove) (before, after []pageRun) {
	if t.by <= t.n { // where they go and where they come from is one run, which rotates
		was := slices.Clone(r.slots[t.first : t.first+t.n+t.by])
		is := slices.Concat(was[t.by:], was[:t.by])
		return []pageRun{{t.first, was}}, []pageRun{{t.first, is}}
	}
	low, high := t.first, t.first+t.by
	a, b := slices.Clone(r.slots[low:low+t.n]), slices.Clone(r.slots[high:high+t.n])
	return []pageRun{{low, a}, {high, b}}, []pageRun{{low, b}, {high, a}}
}

// replace maps the pages of the rows before as the rows after, which are the same slots. If it fails they are as before.
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

// restore takes the rows placed away again and maps the rows before. The pages that stay without a slot because that
// fails too are spare, for Close to find.
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
	return r.lose(errors.Join(errs...))
}
