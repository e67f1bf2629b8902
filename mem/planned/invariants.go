package planned

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/invariants"
)

// check checks a stream under the build tag invariants, except long ones, where it would take too long.
func (l *streamAllocator) check() {
	if invariants.Enabled && l.n < 8*stride {
		invariants.Check(l.wrong)
	}
}

// Check verifies the allocator's data structures, for tests. It returns nil unless there is a bug.
func (a *Allocator) Check() error {
	for i := range a.streams {
		l := &a.streams[i]
		l.lock()
		err := l.wrong()
		l.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// wrong checks that live and overdue blocks do not overlap, lie within the stream's part, and are in order.
func (l *streamAllocator) wrong() error {
	var all []overdueBlock
	for b := range l.liveBlocks() {
		p := &l.slots[b.slot]
		all = append(all, overdueBlock{slot: b.slot, at: p.ptr, end: p.ptr + driver.Pointer(p.size())})
	}
	at := driver.Pointer(0)
	for _, s := range l.overdue {
		if s.pending {
			all = append(all, s)
		}
		if s.at < at || s.gen > l.gen {
			return fmt.Errorf("planned: overdue %+v after one that ends at %#x, in generation %d", s, at, l.gen)
		}
		at = s.end
	}
	slices.SortFunc(all, func(x, y overdueBlock) int { return cmp.Compare(x.at, y.at) })
	at = l.base
	for _, s := range all {
		if s.at < at || s.end > l.end {
			return fmt.Errorf("planned: slot %d is live in [%#x,%#x), but another block extends to %#x",
				s.slot, s.at, s.end, at)
		}
		at = s.end
	}
	if l.pos > l.n || l.start > l.pos {
		return fmt.Errorf("planned: position %d of %d, the generation began at %d", l.pos, l.n, l.start)
	}
	return nil
}
