package tensor

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/mem"
)

// The liveStorages of a device hold the states of its storages, not the Storages: a weak pointer shows which of them
// are unreachable. No other lock is taken while mu is held.
type liveStorages struct {
	sites   bool
	sitesBy string // the setting that records them

	changes    atomic.Uint64 // the number of storages added and removed
	reclaiming sync.Mutex    // held while unreachable storages are freed; taken before mu and the allocator's locks

	mu      sync.Mutex
	first   *storageState
	count   int
	dropped map[site]*LeakSite // reclaimed storages, by the site that made them
}

func (l *liveStorages) add(r *storageState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.next = l.first
	if l.first != nil {
		l.first.prev = r
	}
	l.first = r
	l.count++
	l.changes.Add(1)
}

func (l *liveStorages) remove(r *storageState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(r)
}

func (l *liveStorages) unlink(r *storageState) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	l.count--
	l.changes.Add(1)
}

// reclaim runs Go's garbage collector, frees the storages that were dropped without Release, and returns their number.
// Deleters and functions of OnRelease are called as after a release.
func (l *liveStorages) reclaim() int {
	found := l.freeUnreachable()
	for _, r := range found {
		if r.block == (mem.Block{}) {
			r.free(r.used) // calls a deleter, and so without a lock
		}
		for _, f := range r.onRelease {
			f()
		}
	}
	return len(found)
}

// freeUnreachable marks the unreachable storages as released, and frees their blocks.
func (l *liveStorages) freeUnreachable() []*storageState {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	runtime.GC() // when it returns, the weak pointers to unreachable storages are nil
	var found []*storageState
	l.mu.Lock()
	for r := l.first; r != nil; {
		next := r.next
		if r.handle.Value() == nil {
			l.unlink(r)
			if l.dropped == nil {
				l.dropped = map[site]*LeakSite{}
			}
			countSite(l.dropped, r).Dropped++
			found = append(found, r)
		}
		r = next
	}
	l.mu.Unlock()
	for _, r := range found {
		r.mu.Lock()
		r.owners, r.released = 0, callsite.Here()
		r.mu.Unlock()
		if r.block != (mem.Block{}) {
			r.free(r.used)
		}
	}
	return found
}
