package tensor

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/mem"
)

// A ledger knows the storages of a place that are alive. It holds their records, not the storages: a weak pointer tells
// which of them nobody can reach any more. mu is a leaf.
type ledger struct {
	sites   bool
	sitesBy string // what records them

	changes    atomic.Uint64 // how often a storage came or went
	reclaiming sync.Mutex    // held until what the collector found is back; before mu, and the allocator's

	mu      sync.Mutex
	first   *record
	n       int
	dropped map[site]*LeakSite // what reclaim took back, by what made it
}

func (l *ledger) enter(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.next = l.first
	if l.first != nil {
		l.first.prev = r
	}
	l.first = r
	l.n++
	l.changes.Add(1)
}

func (l *ledger) leave(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(r)
}

func (l *ledger) unlink(r *record) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	l.n--
	l.changes.Add(1)
}

// reclaim runs Go's collector and takes back the memory of storages that were dropped without Release. It returns how many.
// What follows their release (deleters, OnRelease) is called as ever.
func (l *ledger) reclaim() int {
	found := l.takeBack()
	for _, r := range found {
		if r.block == (mem.Block{}) {
			r.giveBack(r.used) // calls a deleter, and so without a lock
		}
		for _, f := range r.after {
			f()
		}
	}
	return len(found)
}

// takeBack ends the storages that nobody can reach, and frees their blocks.
func (l *ledger) takeBack() []*record {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	runtime.GC() // when it returns, the weak pointers of what it found unreachable are nil
	var found []*record
	l.mu.Lock()
	for r := l.first; r != nil; {
		next := r.next
		if r.handle.Value() == nil {
			l.unlink(r)
			if l.dropped == nil {
				l.dropped = map[site]*LeakSite{}
			}
			tally(l.dropped, r).Dropped++
			found = append(found, r)
		}
		r = next
	}
	l.mu.Unlock()
	for _, r := range found {
		r.mu.Lock()
		r.strong, r.ended = 0, here()
		r.mu.Unlock()
		if r.block != (mem.Block{}) {
			r.giveBack(r.used)
		}
	}
	return found
}
