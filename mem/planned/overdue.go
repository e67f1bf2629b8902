package planned

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// An overdueBlock is memory that is in use although it is free in the plan.
type overdueBlock struct {
	slot    int
	gen     uint64
	at, end driver.Pointer
	pending bool // freed, but the streams in deps may still use it
	deps    reuse.Dependencies
}

// setOverdue makes a live block overdue. The compare and swap fails if the block is freed at the same time.
func (l *streamAllocator) setOverdue(k int) {
	m := l.slots[k].freed.Load()
	if gen := l.genOf(k); m&1 == 0 && m>>1 < gen && l.slots[k].freed.CompareAndSwap(m, m|1) {
		l.insertOverdue(overdueBlock{slot: k, gen: gen})
	}
}

// insertOverdue lists an overdue block.
func (l *streamAllocator) insertOverdue(s overdueBlock) {
	p := &l.slots[s.slot]
	s.at, s.end = p.ptr, p.ptr+driver.Pointer(p.size())
	i, _ := l.searchOverdue(s.at)
	l.overdue = slices.Insert(l.overdue, i, s)
	if !s.pending {
		l.overdueSums.Add(l.sumsOf(s.slot))
	}
}

// searchOverdue returns the index of the overdue block at an address, or where it would be.
func (l *streamAllocator) searchOverdue(p driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(l.overdue, p, func(s overdueBlock, p driver.Pointer) int {
		return cmp.Compare(s.at, p)
	})
}

// free frees a block that is overdue, or that other streams use.
func (l *streamAllocator) free(b mem.Block, used []driver.Stream) {
	l.lock()
	defer l.unlock()
	k, gen := int(b.Tag&posMask), b.Tag>>posBits
	wrong := func(what string) { panic(fmt.Sprintf("planned: Free of %+v, which %s", b, what)) }
	if k >= l.n || l.slots[k].ptr != b.Ptr || l.slots[k].size() != b.Size || b.Tag&slow != 0 || gen > l.gen {
		wrong("is no block of this allocator")
	}
	users := l.a.usersOf(l.stream, used)
	m := l.slots[k].freed.Load()
	if m>>1 >= gen || !l.slots[k].freed.CompareAndSwap(m, l.freedMark(k)) {
		wrong("is not live")
	}
	i := -1
	if m&1 != 0 {
		i, _ = l.searchOverdue(b.Ptr)
	}
	if i >= 0 {
		l.overdueSums.Sub(l.sumsOf(k))
	}
	switch {
	case users != 0 && i < 0:
		l.insertOverdue(overdueBlock{slot: k, gen: gen, pending: true, deps: l.a.freedBy(users)})
	case users != 0:
		l.overdue[i].pending, l.overdue[i].deps = true, l.a.freedBy(users)
	case i >= 0:
		l.overdue = slices.Delete(l.overdue, i, i+1)
	}
}

// usersOf returns the set of the used streams, except the block's own.
func (a *Allocator) usersOf(own driver.StreamID, used []driver.Stream) (users reuse.Set) {
	a.waits.Lock()
	defer a.waits.Unlock()
	for _, s := range used {
		if s == nil || s.ID() != own {
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

// makeRoom reports whether no overdue block overlaps a slot. For those that are freed, it makes s wait for their users
// and removes them.
func (l *streamAllocator) makeRoom(s driver.Stream, p *servedSlot) bool {
	end := p.ptr + driver.Pointer(p.size())
	i, _ := l.searchOverdue(p.ptr)
	if i > 0 && l.overdue[i-1].end > p.ptr {
		i--
	}
	for i < len(l.overdue) && l.overdue[i].at < end {
		if !l.overdue[i].pending || l.a.follow(s, l.overdue[i].deps) != nil {
			return false
		}
		l.overdue = slices.Delete(l.overdue, i, i+1)
	}
	return true
}
