package planned

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A stray is memory of the lane that the plan does not have on loan.
type stray struct {
	slot    int
	turn    uint64
	at, end driver.Pointer
	pending bool // freed, and its past says who may still use it
	past    reuse.Dependencies
}

// stray makes one of a live block, unless it is freed meanwhile.
func (l *lane) stray(k int) {
	m := l.places[k].mark.Load()
	if turn := l.turnOf(k); m&1 == 0 && m>>1 < turn && l.places[k].mark.CompareAndSwap(m, m|1) {
		l.insert(stray{slot: k, turn: turn})
	}
}

// insert lists a stray.
func (l *lane) insert(s stray) {
	p := &l.places[s.slot]
	s.at, s.end = p.ptr, p.ptr+driver.Pointer(p.size())
	i, _ := l.findStray(s.at)
	l.strays = slices.Insert(l.strays, i, s)
	if !s.pending {
		l.astray.add(l.sumsOf(s.slot))
	}
}

// findStray is where a stray at an address is listed, or would be.
func (l *lane) findStray(p driver.Pointer) (int, bool) {
	return slices.BinarySearchFunc(l.strays, p, func(s stray, p driver.Pointer) int { return cmp.Compare(s.at, p) })
}

// free frees a block that is a stray, or that other streams use.
func (l *lane) free(b mem.Block, used []driver.Stream) {
	l.lock()
	defer l.unlock()
	k, turn := int(b.Tag&posMask), b.Tag>>posBits
	wrong := func(what string) { panic(fmt.Sprintf("planned: Free of %+v, which %s", b, what)) }
	if k >= l.n || l.places[k].ptr != b.Ptr || l.places[k].size() != b.Size || b.Tag&slow != 0 || turn > l.turn {
		wrong("is no block of this allocator")
	}
	users := l.a.note(l.stream, used)
	m := l.places[k].mark.Load()
	if m>>1 >= turn || !l.places[k].mark.CompareAndSwap(m, l.passed(k)) {
		wrong("is not on loan")
	}
	i := -1
	if m&1 != 0 {
		i, _ = l.findStray(b.Ptr)
	}
	if i >= 0 {
		l.astray.sub(l.sumsOf(k))
	}
	switch {
	case users != 0 && i < 0:
		l.insert(stray{slot: k, turn: turn, pending: true, past: l.a.past(users)})
	case users != 0:
		l.strays[i].pending, l.strays[i].past = true, l.a.past(users)
	case i >= 0:
		l.strays = slices.Delete(l.strays, i, i+1)
	}
}

// note is the set of streams but one.
func (a *Allocator) note(own driver.StreamID, used []driver.Stream) (users reuse.Set) {
	a.waits.Lock()
	defer a.waits.Unlock()
	for _, s := range used {
		if s == nil || s.ID() != own {
			users = a.waits.Union(users, a.waits.Register(s))
		}
	}
	return users
}

// past is that of memory which these streams may use, and that is freed now.
func (a *Allocator) past(users reuse.Set) reuse.Dependencies {
	a.waits.Lock()
	defer a.waits.Unlock()
	return a.waits.Freed(users)
}

// clear reports whether no stray is in the way of a place. Those that others still use are out of it once s waits for them.
func (l *lane) clear(s driver.Stream, p *place) bool {
	end := p.ptr + driver.Pointer(p.size())
	i, _ := l.findStray(p.ptr)
	if i > 0 && l.strays[i-1].end > p.ptr {
		i--
	}
	for i < len(l.strays) && l.strays[i].at < end {
		if !l.strays[i].pending || l.a.follow(s, l.strays[i].past) != nil {
			return false
		}
		l.strays = slices.Delete(l.strays, i, i+1)
	}
	return true
}
