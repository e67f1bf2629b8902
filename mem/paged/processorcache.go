package paged

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/processor"
)

// processorCaches hold freed blocks in front of the shared structures. The first cache serves all goroutines, and its
// lock is Allocator.mu, so that a request that continues in the shared structures takes one lock. Once a goroutine has
// found that lock taken, each processor uses one of the other caches.
type processorCaches struct {
	all  []processorCache // a power of two, plus the first
	mask atomic.Uint64    // of the processor number: 0 while only the first is used, else len(all)-2
}

// A processorCache holds the blocks that one processor freed last, for reuse. A request that finds no block of its
// size empties the cache, so that all its blocks merge. Blocks allocated from the first cache were live at the last
// request to the shared structures too, so peaks do not change.
type processorCache struct {
	mu        *sync.Mutex
	suspended suspension
	n         uint32
	blocks    [cacheSize]cachedBlock // n of them, the newest last
	streams   []driver.Stream        // by ID: the streams of the requests
	allocated tally                  // blocks allocated from here
	own       sync.Mutex

	_ [128]byte // two cache lines: processors fetch them in pairs
}

// A cachedBlock serves requests of its size on its stream.
type cachedBlock struct {
	size   int64
	stream driver.StreamID
	at     ref
}

const cacheSize = 8

func (pcs *processorCaches) init(first *sync.Mutex) {
	n := 1
	for n < runtime.GOMAXPROCS(0) {
		n *= 2
	}
	pcs.all = make([]processorCache, 1+n)
	for i := range pcs.all {
		pcs.all[i].mu = &pcs.all[i].own
	}
	pcs.all[0].mu = first
}

// lock locks the cache that the goroutine is to use.
func (pcs *processorCaches) lock() *processorCache {
	if pcs.mask.Load() == 0 {
		if pc := &pcs.all[0]; pc.mu.TryLock() {
			return pc
		}
	}
	return pcs.lockContended()
}

// lockContended is lock after goroutines have contended for the first cache.
func (pcs *processorCaches) lockContended() *processorCache {
	if mask := pcs.mask.Load(); mask != 0 {
		pc := &pcs.all[1+uint64(processor.Number())&mask]
		pc.mu.Lock()
		return pc
	}
	pc := &pcs.all[0]
	pc.mu.Lock()
	pcs.usePerProcessor()
	return pc
}

// usePerProcessor gives each processor a cache of its own, if there are several. The caller holds the first cache,
// which therefore stays the only one while a goroutine that found only it holds it.
func (pcs *processorCaches) usePerProcessor() { pcs.mask.Store(uint64(len(pcs.all) - 2)) }

// isFirst reports whether a cache's lock is mu.
func (a *Allocator) isFirst(pc *processorCache) bool { return pc == &a.caches.all[0] }

// lockShared locks mu for the holder of a cache, unless that cache's lock is mu. The cache stays locked, so that no
// block is between the two while another goroutine looks for memory.
func (a *Allocator) lockShared(pc *processorCache) {
	if !a.isFirst(pc) {
		a.mu.Lock()
	}
}

// shared passes from a cache that the caller holds, which it empties, to the shared structures.
func (a *Allocator) shared(pc *processorCache) {
	first := a.isFirst(pc)
	if !first {
		a.mu.Lock()
	}
	a.releaseAll(pc.drain())
	if !first {
		pc.mu.Unlock()
	}
}

// unlockShared undoes lockShared.
func (a *Allocator) unlockShared(pc *processorCache) {
	if !a.isFirst(pc) {
		a.mu.Unlock()
	}
}

// take removes a block from a cache that the caller holds, and returns it, or 0.
func (pc *processorCache) take(s driver.Stream, id driver.StreamID, size int64) ref {
	for i := int(pc.n) - 1; i >= 0; i-- {
		if b := &pc.blocks[i]; b.size == size && b.stream == id {
			if int(id) >= len(pc.streams) || pc.streams[id] != s {
				break
			}
			at := b.at
			pc.n--
			copy(pc.blocks[i:pc.n], pc.blocks[i+1:])
			return at
		}
	}
	pc.setStream(id, s)
	return 0
}

// setStream records the stream of a request. If a new stream has the number of a closed one, the closed stream's
// blocks serve it after this request, which misses and registers the new stream.
func (pc *processorCache) setStream(id driver.StreamID, s driver.Stream) {
	for int(id) >= len(pc.streams) {
		pc.streams = append(pc.streams, nil)
	}
	pc.streams[id] = s
}

// cache puts a freed block into a cache, and releases the oldest one if the cache is full.
func (a *Allocator) cache(at ref, r *span) bool {
	pc := a.caches.lock()
	if pc.suspended != 0 {
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

// drain removes all blocks from a cache. The result is valid while the caller holds the cache.
func (pc *processorCache) drain() []cachedBlock {
	n := pc.n
	pc.n = 0
	return pc.blocks[:n]
}

// releaseAll releases blocks that left a cache, in the order of their frees. The caller holds mu.
func (a *Allocator) releaseAll(leaving []cachedBlock) {
	for i := range leaving {
		at := leaving[i].at
		r := a.spans.at(at)
		a.freed.Add(r.sums())
		a.release(at, r, nil)
	}
	if a.excess() {
		a.trimIdle()
	}
}

// flushCaches empties all caches at one moment. The caller holds mu, which flushCaches unlocks and locks again.
func (a *Allocator) flushCaches() {
	a.mu.Unlock()
	a.lockAll()
	a.drainCaches()
	for i := 1; i < len(a.caches.all); i++ {
		a.caches.all[i].mu.Unlock()
	}
}

// drainCaches empties all caches for a caller that holds all of them.
func (a *Allocator) drainCaches() {
	for i := range a.caches.all {
		a.releaseAll(a.caches.all[i].drain())
	}
}

// each visits all cached blocks. The caller holds every cache.
func (pcs *processorCaches) each(visit func(at ref)) {
	for i := range pcs.all {
		for _, b := range pcs.all[i].blocks[:pcs.all[i].n] {
			visit(b.at)
		}
	}
}

// A suspension is the set of reasons for which requests bypass the caches.
type suspension uint8

const (
	forObserver suspension = 1 << iota // it receives every request
	forScopes                          // they may send a request to a private pool
	forPause                           // requests are refused
)

// suspend makes requests bypass the caches for a reason, or no longer for it.
func (pcs *processorCaches) suspend(reason suspension, yes bool) {
	for i := range pcs.all {
		pc := &pcs.all[i]
		pc.mu.Lock()
		if pc.suspended &^= reason; yes {
			pc.suspended |= reason
		}
		pc.mu.Unlock()
	}
}
