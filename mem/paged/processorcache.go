package paged

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/processor"
)

// processor caches are in front of the allocator. The first is everybody's, and its lock is Allocator.mu: so a request that goes on from
// there takes one lock. Once somebody has found that locked, each processor has a processor cache of its own among the others.
type processorCaches struct {
	all  []processorCache // a power of two, and one
	mask atomic.Uint64    // of the number of a processor: 0, or len(all)-2
}

// A processor cache holds the blocks that were freed last, to hand them out again: what one processor has to do with. A request that finds
// none of its size takes them all along to where they are from, so that what is free there is all in one piece, and what
// the first processor cache lends was live already at the last request from below: peaks do not change.
type processorCache struct {
	mu        *sync.Mutex
	suspended bool
	n         uint32
	blocks    [cacheSize]cachedBlock // n of them, the newest at the end
	streams   []driver.Stream        // by number: whose requests came here last
	allocated tally                  // what was drawn
	own       sync.Mutex

	_ [128]byte // two cache lines between processor caches: processors fetch them in pairs
}

// A cachedBlock block is of a stream, and for requests of a size.
type cachedBlock struct {
	size   int64
	stream driver.StreamID
	at     ref
}

const cacheSize = 8

func (rs *processorCaches) init(first *sync.Mutex) {
	n := 1
	for n < runtime.GOMAXPROCS(0) {
		n *= 2
	}
	rs.all = make([]processorCache, 1+n)
	for i := range rs.all {
		rs.all[i].mu = &rs.all[i].own
	}
	rs.all[0].mu = first
}

// lock locks the processor cache that the goroutine is to use.
func (rs *processorCaches) lock() *processorCache {
	if mask := rs.mask.Load(); mask != 0 {
		pc := &rs.all[1+uint64(processor.Number())&mask]
		pc.mu.Lock()
		return pc
	}
	pc := &rs.all[0]
	if !pc.mu.TryLock() {
		pc.mu.Lock()
		rs.usePerProcessor()
	}
	return pc
}

// usePerProcessor gives processors processor caches of their own, if there are several. The caller holds the first: so there is one as long as
// somebody holds it who found one.
func (rs *processorCaches) usePerProcessor() { rs.mask.Store(uint64(len(rs.all) - 2)) }

// isFirst reports whether a processor cache's lock is mu.
func (a *Allocator) isFirst(pc *processorCache) bool { return pc == &a.caches.all[0] }

// lockShared takes mu for who holds a processor cache, unless that is the first one's lock. The processor cache stays locked, so that no block is on the
// way between the two when somebody looks for memory.
func (a *Allocator) lockShared(pc *processorCache) {
	if !a.isFirst(pc) {
		a.mu.Lock()
	}
}

// unlockShared lets mu go again.
func (a *Allocator) unlockShared(pc *processorCache) {
	if !a.isFirst(pc) {
		a.mu.Unlock()
	}
}

// take takes a block out of a processor cache, which the caller holds, or returns 0.
func (pc *processorCache) take(s driver.Stream, id driver.StreamID, size int64) ref {
	for i := int(pc.n) - 1; i >= 0; i-- {
		if h := &pc.blocks[i]; h.size == size && h.stream == id {
			if int(id) >= len(pc.streams) || pc.streams[id] != s {
				break
			}
			at := h.at
			pc.n--
			copy(pc.blocks[i:pc.n], pc.blocks[i+1:])
			return at
		}
	}
	pc.setStream(id, s)
	return 0
}

// setStream notes whose requests come. What is held for a closed stream of that number serves the new one, which the allocator
// meets in the request that misses here.
func (pc *processorCache) setStream(id driver.StreamID, s driver.Stream) {
	for int(id) >= len(pc.streams) {
		pc.streams = append(pc.streams, nil)
	}
	pc.streams[id] = s
}

// cache holds a block that was freed. The oldest makes room for it.
func (a *Allocator) cache(at ref, r *span) bool {
	pc := a.caches.lock()
	if pc.suspended {
		pc.mu.Unlock()
		return false
	}
	var oldest cachedBlock
	if pc.n == cacheSize {
		oldest = pc.blocks[0]
		pc.n--
		copy(pc.blocks[:pc.n], pc.blocks[1:])
	}
	pc.blocks[pc.n] = cachedBlock{r.requested(), r.stream, at}
	pc.n++
	if oldest.at != 0 {
		a.lockShared(pc)
		a.releaseAll([]cachedBlock{oldest})
		a.unlockShared(pc)
	}
	pc.mu.Unlock()
	return true
}

// drain takes all blocks out of a processor cache. They lie in it still, as long as the caller holds it.
func (pc *processorCache) drain() []cachedBlock {
	n := pc.n
	pc.n = 0
	return pc.blocks[:n]
}

// releaseAll gives blocks that left a processor cache back, in the order in which they were freed. The caller holds mu.
func (a *Allocator) releaseAll(leaving []cachedBlock) {
	for _, h := range leaving {
		r := a.spans.at(h.at)
		a.freed.add(r)
		a.release(h.at, r, nil)
	}
	if a.cfg.Keep != KeepAll {
		a.trimIdle()
	}
}

// flushCaches empties all processor caches, at one moment. The caller holds mu, which is let go before.
func (a *Allocator) flushCaches() {
	a.mu.Unlock()
	a.lockAll()
	a.drainCaches()
	for i := 1; i < len(a.caches.all); i++ {
		a.caches.all[i].mu.Unlock()
	}
}

// drainCaches does so for who holds them all.
func (a *Allocator) drainCaches() {
	for i := range a.caches.all {
		a.releaseAll(a.caches.all[i].drain())
	}
}

// each visits all blocks that processor caches hold. The caller holds every processor cache.
func (rs *processorCaches) each(visit func(at ref)) {
	for i := range rs.all {
		for _, h := range rs.all[i].blocks[:rs.all[i].n] {
			visit(h.at)
		}
	}
}

// setSuspended lets every request past the processor caches, or no longer.
func (rs *processorCaches) setSuspended(yes bool) {
	for i := range rs.all {
		pc := &rs.all[i]
		pc.mu.Lock()
		pc.suspended = yes
		pc.mu.Unlock()
	}
}
