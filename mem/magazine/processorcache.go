package magazine

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/processor"
	"github.com/ashlar-go/ashlar/mem"
)

// A rack is what one processor holds.
type processorCache struct {
	mu        sync.Mutex
	suspended bool
	streams   []*streamCache // by stream; nil until the processor allocates or frees on it
	room      int64          // bytes that may still be held
	unused    ref            // a list of records
	nUnused   int
	counts    counts

	_ [128]byte // two cache lines between racks: processors fetch them in pairs
}

// A shelf is what a rack holds for one stream. The rack's lock guards it.
type streamCache struct {
	classes []classCache // by class
	room    int64        // bytes that may still be held
	depot   *depot
	_       [64]byte
}

// A cc is the blocks of one class on a shelf.
type classCache struct {
	top   ref    // n blocks, linked by record.next
	full  ref    // limit blocks, or 0
	n     uint16 // at most limit
	limit uint16 // 0 until the first block comes
}

// Magazines hold up to 1 MiB, but no fewer than 2 blocks and no more than 32: then what is shared costs a 32nd part.
const (
	magazineBytes = 1 << 20
	minBlocks     = 2
	maxBlocks     = 32
)

// limitOf is how many blocks a magazine of a class holds.
func limitOf(class uint32) uint16 {
	return uint16(min(max(magazineBytes/unit/class, minBlocks), maxBlocks))
}

func (c *Cache) local() *processorCache {
	return &c.processors[processor.Number()&uint(len(c.processors)-1)]
}

// shelfOf returns the shelf of a stream, and makes it if need be. The caller holds the rack.
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

// put puts a block into the top magazine of a cc, which has room. The caller holds the rack.
func (pc *processorCache) put(sc *streamCache, cc *classCache, at ref, r *blockEntry) {
	r.next, cc.top = cc.top, at
	cc.n++
	sc.room -= r.block.Size
	pc.room -= r.block.Size
	pc.counts.of(r.class).freed.add(r.block.Size, int64(r.requested))
}

// putSlow makes room for a block and puts it into its cc. It returns a list of blocks that leave, perhaps this one
// among them. The caller holds the rack.
func (c *Cache) putSlow(pc *processorCache, at ref, r *blockEntry) (evicted ref) {
	sc := c.streamCacheOf(pc, r.stream)
	size := r.block.Size
	if size > min(c.limits.stream, c.limits.processor) {
		pc.counts.of(r.class).freed.add(size, int64(r.requested))
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

// refill finds a full magazine for a cc whose top one is empty: the one in reserve, or one from the depot. The caller
// holds the rack.
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

// clear takes everything off a shelf, which may be nil, and adds it to the list of what leaves. The caller holds the
// rack.
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

const entryBatch = 32 // records that a rack takes and gives at a time

// takeRecord returns an unused record. The caller holds the rack.
func (c *Cache) newEntry(pc *processorCache) ref {
	if pc.nUnused == 0 {
		pc.unused, pc.nUnused = c.blocks.take(entryBatch), entryBatch
	}
	at := pc.unused
	pc.unused = c.blocks.at(at).next
	pc.nUnused--
	return at
}

// giveRecord clears a record. The caller holds the rack.
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
