package magazine

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/processor"
	"github.com/ashlar-go/ashlar/mem"
)

// A rack is what one processor holds.
type rack struct {
	mu        sync.Mutex
	suspended bool
	shelves   []*shelf // by stream; nil until the processor allocates or frees on it
	room      int64    // bytes that may still be held
	unused    ref      // a list of records
	nUnused   int
	counts    counts

	_ [128]byte // two cache lines between racks: processors fetch them in pairs
}

// A shelf is what a rack holds for one stream. The rack's lock guards it.
type shelf struct {
	cells []cell // by class
	room  int64  // bytes that may still be held
	depot *depot
	_     [64]byte
}

// A cell is the blocks of one class on a shelf.
type cell struct {
	top   ref    // n blocks, linked by record.next
	full  ref    // limit blocks, or 0
	n     uint16 // at most limit
	limit uint16 // 0 until the first block comes
}

// Magazines hold up to 1 MiB, but no fewer than 2 blocks and no more than 32: then what is shared costs a 32nd part.
const (
	magazineBytes = 1 << 20
	fewest        = 2
	most          = 32
)

// limitOf is how many blocks a magazine of a class holds.
func limitOf(class uint32) uint16 {
	return uint16(min(max(magazineBytes/unit/class, fewest), most))
}

func (c *Cache) rack() *rack {
	return &c.racks[processor.Number()&uint(len(c.racks)-1)]
}

// shelfOf returns the shelf of a stream, and makes it if need be. The caller holds the rack.
func (c *Cache) shelfOf(rk *rack, stream driver.StreamID) *shelf {
	if n := int(stream) + 1; n > len(rk.shelves) {
		rk.shelves = append(rk.shelves, make([]*shelf, n-len(rk.shelves))...)
	}
	if rk.shelves[stream] == nil {
		rk.shelves[stream] = &shelf{
			cells: make([]cell, classOf(c.opts.MaxSize)+1),
			room:  c.share.shelf,
			depot: c.depotOf(stream),
		}
	}
	return rk.shelves[stream]
}

// put puts a block into the top magazine of a cell, which has room. The caller holds the rack.
func (rk *rack) put(sh *shelf, cell *cell, at ref, r *record) {
	r.next, cell.top = cell.top, at
	cell.n++
	sh.room -= r.block.Size
	rk.room -= r.block.Size
	rk.counts.of(r.class).back.add(r.block.Size, int64(r.asked))
}

// putSlow makes room for a block and puts it into its cell. It returns a list of blocks that leave, perhaps this one
// among them. The caller holds the rack.
func (c *Cache) putSlow(rk *rack, at ref, r *record) (leaving ref) {
	sh := c.shelfOf(rk, r.stream)
	size := r.block.Size
	if size > min(c.share.shelf, c.share.rack) {
		rk.counts.of(r.class).back.add(size, int64(r.asked))
		r.next = 0
		return c.leave(at, 0)
	}
	cell := &sh.cells[r.class]
	cell.limit = limitOf(r.class)
	if cell.n == cell.limit {
		if cell.full != 0 {
			bytes := c.bytes(cell.full)
			sh.room += bytes
			rk.room += bytes
			leaving = c.store(rk, sh.depot, r.class, cell.full, bytes, leaving)
		}
		cell.full, cell.top, cell.n = cell.top, 0, 0
	}
	if sh.room < size {
		leaving = c.clear(rk, sh, leaving)
	}
	if rk.room < size {
		for _, other := range rk.shelves {
			leaving = c.clear(rk, other, leaving)
		}
	}
	rk.put(sh, cell, at, r)
	return leaving
}

// refill finds a full magazine for a cell whose top one is empty: the one in reserve, or one from the depot. The caller
// holds the rack.
func (c *Cache) refill(rk *rack, sh *shelf, class uint32) bool {
	cell := &sh.cells[class]
	if cell.full == 0 {
		if sh.depot.n.Load() == 0 {
			return false
		}
		magazine, bytes := c.draw(sh.depot, class, min(sh.room, rk.room))
		if magazine == 0 {
			return false
		}
		sh.room -= bytes
		rk.room -= bytes
		cell.full, cell.limit = magazine, limitOf(class)
	}
	cell.top, cell.n, cell.full = cell.full, cell.limit, 0
	return true
}

// clear takes everything off a shelf, which may be nil, and adds it to the list of what leaves. The caller holds the
// rack.
func (c *Cache) clear(rk *rack, sh *shelf, leaving ref) ref {
	if sh == nil || sh.room == c.share.shelf {
		return leaving
	}
	for i := range sh.cells {
		cell := &sh.cells[i]
		leaving = c.leave(cell.top, leaving)
		leaving = c.leave(cell.full, leaving)
		cell.top, cell.full, cell.n = 0, 0, 0
	}
	rk.room += c.share.shelf - sh.room
	sh.room = c.share.shelf
	return leaving
}

const recordBatch = 32 // records that a rack takes and gives at a time

// takeRecord returns an unused record. The caller holds the rack.
func (c *Cache) takeRecord(rk *rack) ref {
	if rk.nUnused == 0 {
		rk.unused, rk.nUnused = c.records.take(recordBatch), recordBatch
	}
	at := rk.unused
	rk.unused = c.records.at(at).next
	rk.nUnused--
	return at
}

// giveRecord clears a record. The caller holds the rack.
func (c *Cache) giveRecord(rk *rack, at ref, r *record) {
	r.block = mem.Block{}
	r.next, rk.unused = rk.unused, at
	rk.nUnused++
	if rk.nUnused == 2*recordBatch {
		last := r
		for range recordBatch - 1 {
			last = c.records.at(last.next)
		}
		rk.unused, last.next, rk.nUnused = last.next, 0, recordBatch
		c.records.give(at)
	}
}
