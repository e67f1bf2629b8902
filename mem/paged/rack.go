package paged

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/processor"
)

// racks are in front of the allocator. The first is everybody's, and its lock is Allocator.mu: so a request that goes on from
// there takes one lock. Once somebody has found that locked, each processor has a rack of its own among the others.
type racks struct {
	all  []rack        // a power of two, and one
	mask atomic.Uint64 // of the number of a processor: 0, or len(all)-2
}

// A rack holds the blocks that were freed last, to hand them out again: what one processor has to do with. A request that finds
// none of its size takes them all along to where they are from, so that what is free there is all in one piece, and what
// the first rack lends was on loan already at the last request from below: peaks do not change.
type rack struct {
	mu        *sync.Mutex
	suspended bool
	n         uint32
	last      [numHeld]held   // n of them, the newest at the end
	streams   []driver.Stream // by number: whose requests came here last
	lent      tally           // what was drawn
	own       sync.Mutex

	_ [128]byte // two cache lines between racks: processors fetch them in pairs
}

// A held block is of a stream, and for requests of a size.
type held struct {
	size   int64
	stream driver.StreamID
	at     ref
}

const numHeld = 8

func (rs *racks) init(first *sync.Mutex) {
	n := 1
	for n < runtime.GOMAXPROCS(0) {
		n *= 2
	}
	rs.all = make([]rack, 1+n)
	for i := range rs.all {
		rs.all[i].mu = &rs.all[i].own
	}
	rs.all[0].mu = first
}

// lock locks the rack that the goroutine is to use.
func (rs *racks) lock() *rack {
	if mask := rs.mask.Load(); mask != 0 {
		rk := &rs.all[1+uint64(processor.Number())&mask]
		rk.mu.Lock()
		return rk
	}
	rk := &rs.all[0]
	if !rk.mu.TryLock() {
		rk.mu.Lock()
		rs.spread()
	}
	return rk
}

// spread gives processors racks of their own, if there are several. The caller holds the first: so there is one as long as
// somebody holds it who found one.
func (rs *racks) spread() { rs.mask.Store(uint64(len(rs.all) - 2)) }

// isFirst reports whether a rack's lock is mu.
func (a *Allocator) isFirst(rk *rack) bool { return rk == &a.racks.all[0] }

// lockBelow takes mu for who holds a rack, unless that is the first one's lock. The rack stays locked, so that no block is on the
// way between the two when somebody looks for memory.
func (a *Allocator) lockBelow(rk *rack) {
	if !a.isFirst(rk) {
		a.mu.Lock()
	}
}

// unlockBelow lets mu go again.
func (a *Allocator) unlockBelow(rk *rack) {
	if !a.isFirst(rk) {
		a.mu.Unlock()
	}
}

// draw takes a block out of a rack, which the caller holds, or returns 0.
func (rk *rack) draw(s driver.Stream, id driver.StreamID, size int64) ref {
	for i := int(rk.n) - 1; i >= 0; i-- {
		if h := &rk.last[i]; h.size == size && h.stream == id {
			if int(id) >= len(rk.streams) || rk.streams[id] != s {
				break
			}
			at := h.at
			rk.n--
			copy(rk.last[i:rk.n], rk.last[i+1:])
			return at
		}
	}
	rk.meet(id, s)
	return 0
}

// meet notes whose requests come. What is held for a closed stream of that number serves the new one, which the allocator
// meets in the request that misses here.
func (rk *rack) meet(id driver.StreamID, s driver.Stream) {
	for int(id) >= len(rk.streams) {
		rk.streams = append(rk.streams, nil)
	}
	rk.streams[id] = s
}

// stow holds a block that was freed. The oldest makes room for it.
func (a *Allocator) stow(at ref, r *span) bool {
	rk := a.racks.lock()
	if rk.suspended {
		rk.mu.Unlock()
		return false
	}
	var oldest held
	if rk.n == numHeld {
		oldest = rk.last[0]
		rk.n--
		copy(rk.last[:rk.n], rk.last[1:])
	}
	rk.last[rk.n] = held{r.asked(), r.stream, at}
	rk.n++
	if oldest.at != 0 {
		a.lockBelow(rk)
		a.releaseAll([]held{oldest})
		a.unlockBelow(rk)
	}
	rk.mu.Unlock()
	return true
}

// empty takes all blocks out of a rack. They lie in it still, as long as the caller holds it.
func (rk *rack) empty() []held {
	n := rk.n
	rk.n = 0
	return rk.last[:n]
}

// releaseAll gives blocks that left a rack back, in the order in which they were freed. The caller holds mu.
func (a *Allocator) releaseAll(leaving []held) {
	for _, h := range leaving {
		r := a.records.at(h.at)
		a.fell.add(r)
		a.release(h.at, r, nil)
	}
	if a.cfg.Keep != KeepAll {
		a.thin()
	}
}

// flush empties all racks, at one moment. The caller holds mu, which is let go before.
func (a *Allocator) flush() {
	a.mu.Unlock()
	a.lockAll()
	a.emptyRacks()
	for i := 1; i < len(a.racks.all); i++ {
		a.racks.all[i].mu.Unlock()
	}
}

// emptyRacks does so for who holds them all.
func (a *Allocator) emptyRacks() {
	for i := range a.racks.all {
		a.releaseAll(a.racks.all[i].empty())
	}
}

// held visits all blocks that racks hold. The caller holds every rack.
func (rs *racks) held(visit func(at ref)) {
	for i := range rs.all {
		for _, h := range rs.all[i].last[:rs.all[i].n] {
			visit(h.at)
		}
	}
}

// suspend lets every request past the racks, or no longer.
func (rs *racks) suspend(yes bool) {
	for i := range rs.all {
		rk := &rs.all[i]
		rk.mu.Lock()
		rk.suspended = yes
		rk.mu.Unlock()
	}
}
