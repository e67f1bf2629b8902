package magazine

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/processor"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// A processorCache holds the cached blocks of one processor.
type processorCache struct {
	mu        sync.Mutex
	suspended bool
	streams   []*streamCache // by stream; nil until the processor allocates or frees on it
	room      int64          // bytes that may be added
	unused    ref            // a list of entries
	nUnused   int
	counts    counts

	_ [128]byte // two cache lines apart: processors fetch lines in pairs
}

// A streamCache holds a processor's blocks of one stream. The processorCache's lock guards it.
type streamCache struct {
	classes []classCache // by class
	room    int64        // bytes that may be added
	depot   *depot
	_       [64]byte
}

// A classCache holds the blocks of one size class in a streamCache.
type classCache struct {
	top   ref    // n blocks, linked by next
	full  ref    // limit blocks, or 0
	n     uint16 // at most limit
	limit uint16 // 0 until the first block comes
}

// Magazines hold up to 1 MiB in 2 to 32 blocks: with 32, a depot's lock is taken once in 32 calls.
const (
	magazineBytes = 1 << 20
	minBlocks     = 2
	maxBlocks     = 32
)

// limitOf returns the number of blocks in a full magazine of a class.
func limitOf(class uint32) uint16 {
	return uint16(min(max(magazineBytes/unit/class, minBlocks), maxBlocks))
}

func (c *Cache) local() *processorCache {
	return &c.processors[processor.Number()&uint(len(c.processors)-1)]
}

// streamCacheOf returns the streamCache of a stream, and makes it if necessary. The caller holds the processorCache.
func (c *Cache) streamCacheOf(pc *processorCache, stream driver.StreamID) *streamCache {
	if n := int(stream) + 1; n > len(pc.streams) {
		pc.streams = append(pc.streams, make([]*streamCache, n-len(pc.streams))...)
	}
	if pc.streams[stream] == nil {
		pc.streams[stream] = &streamCache{
			classes: make([]classCache, classOf(c.opts.MaxSize)+1),
			room:    c.limits.stream,
			depot:   c.depotOf(stream),
		}
	}
	return pc.streams[stream]
}

// put adds a block to the top magazine of a classCache, which has room. The caller holds the processorCache.
func (pc *processorCache) put(sc *streamCache, cc *classCache, at ref, r *blockEntry) {
	r.next, cc.top = cc.top, at
	cc.n++
	sc.room -= r.block.Size
	pc.room -= r.block.Size
	pc.counts.of(r.class).freed.Add(stats.Block(r.block.Size, int64(r.requested)))
}

// putSlow makes room for a block and adds it to its classCache. It returns a list of evicted blocks, which may include
// this one. The caller holds the processorCache.
func (c *Cache) putSlow(pc *processorCache, at ref, r *blockEntry) (evicted ref) {
	sc := c.streamCacheOf(pc, r.stream)
	size := r.block.Size
	if size > min(c.limits.stream, c.limits.processor) {
		pc.counts.of(r.class).freed.Add(stats.Block(size, int64(r.requested)))
		r.next = 0
		return c.evict(at, 0)
	}
	cc := &sc.classes[r.class]
	cc.limit = limitOf(r.class)
	if cc.n == cc.limit {
		if cc.full != 0 {
			bytes := c.bytes(cc.full)
			sc.room += bytes
			pc.room += bytes
			evicted = c.store(pc, sc.depot, r.class, cc.full, bytes, evicted)
		}
		cc.full, cc.top, cc.n = cc.top, 0, 0
	}
	if sc.room < size {
		evicted = c.evictStream(pc, sc, evicted)
	}
	if pc.room < size {
		for _, other := range pc.streams {
			evicted = c.evictStream(pc, other, evicted)
		}
	}
	pc.put(sc, cc, at, r)
	return evicted
}

// refill finds a full magazine for a classCache whose top one is empty: its other one, or one from the depot. The
// caller holds the processorCache.
func (c *Cache) refill(pc *processorCache, sc *streamCache, class uint32) bool {
	cc := &sc.classes[class]
	if cc.full == 0 {
		if sc.depot.n.Load() == 0 {
			return false
		}
		magazine, bytes := c.take(sc.depot, class, min(sc.room, pc.room))
		if magazine == 0 {
			return false
		}
		sc.room -= bytes
		pc.room -= bytes
		cc.full, cc.limit = magazine, limitOf(class)
	}
	cc.top, cc.n, cc.full = cc.full, cc.limit, 0
	return true
}

// evictStream removes all blocks from a streamCache, which may be nil, and adds them to the list of evicted blocks. The
// caller holds the processorCache.
func (c *Cache) evictStream(pc *processorCache, sc *streamCache, evicted ref) ref {
	if sc == nil || sc.room == c.limits.stream {
		return evicted
	}
	for i := range sc.classes {
		cc := &sc.classes[i]
		evicted = c.evict(cc.top, evicted)
		evicted = c.evict(cc.full, evicted)
		cc.top, cc.full, cc.n = 0, 0, 0
	}
	pc.room += c.limits.stream - sc.room
	sc.room = c.limits.stream
	return evicted
}

const entryBatch = 32 // entries that a processorCache takes or releases at a time

// newEntry returns an unused entry. The caller holds the processorCache.
func (c *Cache) newEntry(pc *processorCache) ref {
	if pc.nUnused == 0 {
		pc.unused, pc.nUnused = c.blocks.take(entryBatch), entryBatch
	}
	at := pc.unused
	pc.unused = c.blocks.at(at).next
	pc.nUnused--
	return at
}

// freeEntry clears an entry. The caller holds the processorCache.
func (c *Cache) freeEntry(pc *processorCache, at ref, r *blockEntry) {
	r.block = mem.Block{}
	r.next, pc.unused = pc.unused, at
	pc.nUnused++
	if pc.nUnused == 2*entryBatch {
		last := r
		for range entryBatch - 1 {
			last = c.blocks.at(last.next)
		}
		pc.unused, last.next, pc.nUnused = last.next, 0, entryBatch
		c.blocks.release(at)
	}
}
