package planned

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// An overdueBlock is memory that is in use although it is free in the plan: a live block, or freed memory that the
// streams in deps may still use.
type overdueBlock struct {
	slot    int // of a live block
	gen     uint64
	at, end driver.Pointer
	pending bool // freed
	deps    reuse.Dependencies
}

// setOverdue makes a live block overdue. The compare and swap fails if the block is freed at the same time.
func (l *streamAllocator) setOverdue(k int) {
	m := l.slots[k].freed.Load()
	if gen := l.genOf(k); m&1 == 0 && m>>1 < gen && l.slots[k].freed.CompareAndSwap(m, m|1) {
		l.insertOverdue(overdueBlock{slot: k, gen: gen})
	}
}

// insertOverdue lists a live overdue block.
func (l *streamAllocator) insertOverdue(s overdueBlock) {
	p := &l.slots[s.slot]
	s.at, s.end = p.ptr, p.ptr+driver.Pointer(p.size())
	i, _ := l.searchOverdue(s.at)
	l.overdue = slices.Insert(l.overdue, i, s)
	l.overdueSums.Add(l.sumsOf(s.slot))
}

// insertPending lists freed memory that streams may still use. It merges it with adjacent memory that the same streams
// use.
func (l *streamAllocator) insertPending(at, end driver.Pointer, deps reuse.Dependencies) {
	from, _ := l.searchOverdue(at)
	to := from
	joins := func(i int) bool { return l.overdue[i].pending && l.overdue[i].deps.Users == deps.Users }
	if from > 0 && l.overdue[from-1].end == at && joins(from-1) {
		from--
		at = l.overdue[from].at
	}
	if to < len(l.overdue) && l.overdue[to].at == end && joins(to) {
		end = l.overdue[to].end
		to++
	}
	for _, s := range l.overdue[from:to] {
		deps = l.a.merged(deps, s.deps)
	}
	l.overdue = slices.Replace(l.overdue, from, to, overdueBlock{at: at, end: end, pending: true, deps: deps})
}

// searchOverdue returns the index of the overdue block at an address, or where it would be.
func (l *streamAllocator) searchOverdue(p driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(l.overdue, p, func(s overdueBlock, p driver.Pointer) int {
		return cmp.Compare(s.at, p)
	})
}

// free frees a block that is overdue, or that other streams use or may get.
func (l *streamAllocator) free(b mem.Block, used []driver.Stream) {
	l.lock()
	defer l.unlock()
	k, gen := int(b.Tag&posMask), b.Tag>>posBits
	wrong := func(what string) { panic(fmt.Sprintf("planned: Free of %+v, which %s", b, what)) }
	if k >= l.n || l.slots[k].ptr != b.Ptr || l.slots[k].size() != b.Size || b.Tag&slow != 0 || gen > l.gen {
		wrong("is no block of this allocator")
	}
	users := l.usersOf(k, used)
	m := l.slots[k].freed.Load()
	if m>>1 >= gen || !l.slots[k].freed.CompareAndSwap(m, l.freedMark(k)) {
		wrong("is not live")
	}
	if m&1 != 0 {
		i, _ := l.searchOverdue(b.Ptr)
		l.overdue = slices.Delete(l.overdue, i, i+1)
		l.overdueSums.Sub(l.sumsOf(k))
	}
	if users != 0 {
		l.insertPending(b.Ptr, b.Ptr+driver.Pointer(b.Size), l.a.freedBy(users))
	}
}

// usersOf returns the set of the streams that a later stream must wait for: the used ones, and the block's own if
// another one may get its memory.
func (l *streamAllocator) usersOf(slot int, used []driver.Stream) (users reuse.Set) {
	a, own := l.a, l.sharers[l.keys[slot]>>sizeBits]
	a.waits.Lock()
	defer a.waits.Unlock()
	if len(l.sharers) > 1 {
		users = a.waits.Register(own.stream)
	}
	for _, s := range used {
		if s == nil || s.ID() != own.id || len(l.sharers) > 1 {
			users = a.waits.Union(users, a.waits.Register(s))
		}
	}
	return users
}

// freedBy returns the dependencies of memory that is freed now and that these streams may use.
func (a *Allocator) freedBy(users reuse.Set) reuse.Dependencies {
	a.waits.Lock()
	defer a.waits.Unlock()
	return a.waits.Freed(users)
}

// merged returns the dependencies of two pieces of memory together.
func (a *Allocator) merged(p, q reuse.Dependencies) reuse.Dependencies {
	a.waits.Lock()
	defer a.waits.Unlock()
	return a.waits.Merge(p, q)
}

// makeRoom reports whether no overdue block overlaps a slot. For those that are freed, it makes s wait for their users
// and removes them. Of memory that streams share, it removes only the slot's: others may get what is beside it.
func (l *streamAllocator) makeRoom(s driver.Stream, p *servedSlot) bool {
	end := p.ptr + driver.Pointer(p.size())
	from, _ := l.searchOverdue(p.ptr)
	if from > 0 && l.overdue[from-1].end > p.ptr {
		from--
	}
	to := from
	for ; to < len(l.overdue) && l.overdue[to].at < end; to++ {
		if o := &l.overdue[to]; !o.pending || l.a.follow(s, o.deps) != nil {
			return false
		}
	}
	if from == to {
		return true
	}
	left := make([]overdueBlock, 0, 2)
	if first := l.overdue[from]; len(l.sharers) > 1 && first.at < p.ptr {
		first.end = p.ptr
		left = append(left, first)
	}
	if last := l.overdue[to-1]; len(l.sharers) > 1 && last.end > end {
		last.at = end
		left = append(left, last)
	}
	l.overdue = slices.Replace(l.overdue, from, to, left...)
	return true
}
