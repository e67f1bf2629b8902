// Package magazine lets many goroutines allocate on one stream without meeting at one lock: an adaptor over any
// allocator that keeps freed blocks near the processor that freed them. The design is Bonwick's (Magazines and Vmem,
// USENIX 2001).
//
// # Structure
//
// A Cache has a rack for each processor, a rack a shelf for each stream, and a shelf a cell for each class: the size of
// a request in units of 512 bytes. A cell is two magazines, stacks of blocks: the top one, which Alloc takes from and
// Free adds to, and perhaps a full one in reserve. When both are full the reserve goes to the stream's depot, which all
// processors share; when both are empty one comes from there. So a goroutine that only allocates and another that only
// frees meet once in a whole magazine.
//
// Each block has a record, found from its tag: the block as the layer below knows it, what was asked for, and a count
// that is odd while the block is on loan. A block is
//
//	on loan   the borrower has it
//	held      it is in a magazine; the layer below takes it for live
//	leaving   it is on its way to the layer below, and in no magazine
//
// A block serves requests of the class that it was first asked for, and no other: what is wasted is what the layer
// below wastes, and at most 511 bytes of it more. A block goes straight to the layer below when other streams use it.
//
// # Bounds
//
// One half of what Options allow is divided among the processors, the other is the depots'. A shelf, a rack or a depot
// that would pass its share gives all that it holds back to the layer below: what has not been asked for in a long time
// does not stay in the way of what is. When the layer below has no room, everything goes back and it is asked again.
//
// # Locks
//
// A warm Alloc or Free takes its rack's lock, which another processor wants only when a goroutine was moved in the
// middle of a call, or to give blocks back; it writes to no memory that others write to, but for the block's record.
// Which processor a goroutine runs on is a hint: with any other answer everything is right, and slower.
//
// In the order in which they may be taken: Cache.flushing; Cache.sending; racks, in their order; Cache.growing; a depot;
// the records. None but the first two is held while the layer below allocates or frees, sending for reading; reports hold
// all of them but flushing while they ask it.
//
// # What it does not do
//
// Which address a request gets depends on the scheduler. Statistics, events and recordings of the layer below do not
// see the blocks that come and go above it; mem.Find finds statistics and a snapshot that do. It is no mem.Mover: blocks
// that are held have nobody to follow them, so what is below moves none that came through here. Nothing tells an allocator
// that a stream was closed: its blocks stay held, and serve the stream that gets its number, unless Flush is called.
package magazine

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Cache hands out the blocks of another allocator. Safe for concurrent use.
type Cache struct {
	below  mem.Allocator
	report mem.Allocator // below, with statistics and a snapshot that know what is held
	opts   Options
	share  share
	racks  []rack // a power of two

	records records // the first field of which is the last that a warm call reads

	flushing sync.Mutex // held by who gives everything back, until that is done

	sending sync.RWMutex // held for reading by who gives blocks to the layer below, and by reports
	sent    sent         // what was held, and is the layer below's again

	growing   sync.Mutex   // guards depots
	depots    []*depot     // by stream
	room      atomic.Int64 // bytes that all depots may still take
	suspended int          // under every lock
	base      counts       // when accumulated statistics were reset; under every lock
}

// Options bound what a Cache holds. The zero value has the defaults. Negative values panic.
type Options struct {
	// MaxSize is the largest request, in bytes, that is served from magazines. Larger ones go to the layer below, and
	// their blocks are its own. 0 is 1 MiB, what mem/caching calls small; at most 8 MiB.
	MaxSize int64
	// Stream is how many bytes are held for one stream. 0 is 256 MiB.
	Stream int64
	// Total is how many bytes are held in all. 0 is 1 GiB.
	Total int64
}

const (
	unit       = 512
	maxMaxSize = 8 << 20 // below what can be oversize to mem/caching
	smallSize  = 1 << 20 // what statistics call small
)

// A share is what one of each may hold, in bytes.
type share struct{ shelf, rack, depot int64 }

// New returns a cache over an allocator, with magazines for as many processors as there are now (GOMAXPROCS). Blocks
// that below handed out already are not the cache's to free.
func New(below mem.Allocator, opts Options) *Cache {
	for _, o := range []struct {
		n        *int64
		whenZero int64
	}{{&opts.MaxSize, smallSize}, {&opts.Stream, 256 << 20}, {&opts.Total, 1 << 30}} {
		if *o.n == 0 {
			*o.n = o.whenZero
		}
	}
	if opts.MaxSize < 0 || opts.MaxSize > maxMaxSize || opts.Stream < 0 || opts.Total < 0 {
		panic(fmt.Sprintf("magazine: New with %+v: want no negative sizes, and MaxSize up to 8 MiB", opts))
	}
	n := int64(1) << bits.Len(uint(runtime.GOMAXPROCS(0)-1))
	c := &Cache{
		below: below, opts: opts, racks: make([]rack, n),
		share: share{shelf: opts.Stream / 2 / n, rack: opts.Total / 2 / n, depot: opts.Stream / 2},
	}
	c.report = c.reporting()
	c.records.init()
	c.room.Store(opts.Total / 2)
	for i := range c.racks {
		c.racks[i].room = c.share.rack
	}
	return c
}

// Alloc implements mem.Allocator. Errors are those of the layer below; if it has no room, it has been asked again after
// all held blocks were given back.
func (c *Cache) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return c.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry nothing that is held is given back to make room. With FreedBefore the request
// goes to the layer below: nobody counted when blocks that are held were freed. So does one with a Key, which may be for a
// private pool, and its block goes back there: it is never held.
func (c *Cache) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("magazine: Alloc", s)
	size, o = o.Rounded(size)
	if size <= 0 || size > c.opts.MaxSize {
		return c.fetch(s, size, o)
	}
	stream, class := s.ID(), classOf(size)
	rk := c.rack()
	rk.mu.Lock()
	if int(stream) < len(rk.shelves) && !rk.suspended && o.FreedBefore == nil && o.Key == nil {
		if sh := rk.shelves[stream]; sh != nil {
			cell := &sh.cells[class]
			if cell.n > 0 || c.refill(rk, sh, class) {
				if r := c.records.at(cell.top); r.block.Size >= size {
					at := cell.top
					cell.top, cell.n = r.next, cell.n-1
					b := r.block
					sh.room += b.Size
					rk.room += b.Size
					rk.counts.of(class).lent.add(b.Size, size)
					r.asked = uint32(size)
					b.Tag = r.lend(at)
					rk.mu.Unlock()
					return b, nil
				}
			}
		}
	}
	rk.mu.Unlock()
	return c.allocNew(s, stream, class, size, o)
}

// allocNew gets a block from the layer below, and makes a record of it.
func (c *Cache) allocNew(
	s driver.Stream, stream driver.StreamID, class uint32, size int64, o mem.AllocOptions,
) (mem.Block, error) {
	b, err := c.fetch(s, size, o)
	if err != nil || b.Size > c.opts.MaxSize {
		return b, err
	}
	rk := c.rack()
	rk.mu.Lock()
	defer rk.mu.Unlock()
	if rk.suspended || o.Key != nil {
		class = 0
	} else {
		c.shelfOf(rk, stream) // so that the next request looks into the depot
	}
	at := c.takeRecord(rk)
	r := c.records.at(at)
	r.block, r.asked, r.first, r.class, r.stream = b, uint32(size), uint32(size), class, stream
	b.Tag = r.lend(at)
	return b, nil
}

// fetch asks the layer below, and again, for good, if there is no room before everything held is given back.
func (c *Cache) fetch(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if !o.NoRetry {
		tentative := o
		tentative.Tentative = true
		b, err := mem.AllocWith(c.below, s, size, tentative)
		if err == nil || !errors.Is(err, mem.ErrNoMemory) {
			return b, err
		}
		c.Flush()
	}
	return mem.AllocWith(c.below, s, size, o)
}

// Free implements mem.Allocator. A block that was freed already is always noticed, whoever has it now.
func (c *Cache) Free(b mem.Block, used ...driver.Stream) {
	if b.Size > c.opts.MaxSize {
		c.below.Free(b, used...) // one of its own, or nobody's: then it says so
		return
	}
	if b == (mem.Block{}) {
		return
	}
	turns, at := splitTag(b.Tag)
	r := c.records.find(at)
	if r == nil || r.block.Ptr != b.Ptr || r.block.Size != b.Size || turns%2 == 0 {
		panicForeign(b)
	}
	check.Used("magazine: Free", used)
	if !r.turns.CompareAndSwap(turns, turns+1) {
		panicForeign(b)
	}
	if len(used) > 0 || r.class == 0 {
		c.freeBelow(at, r, used)
		return
	}
	rk := c.rack()
	rk.mu.Lock()
	if int(r.stream) < len(rk.shelves) {
		if sh := rk.shelves[r.stream]; sh != nil && sh.room >= b.Size && rk.room >= b.Size {
			if cell := &sh.cells[r.class]; cell.n < cell.limit {
				rk.put(sh, cell, at, r)
				rk.mu.Unlock()
				return
			}
		}
	}
	leaving := c.putSlow(rk, at, r)
	rk.mu.Unlock()
	c.send(leaving)
}

// freeBelow frees a block that no magazine may have.
func (c *Cache) freeBelow(at ref, r *record, used []driver.Stream) {
	b := r.block
	// The record goes first: as soon as the layer below has the block, its address may be another's.
	rk := c.rack()
	rk.mu.Lock()
	rk.counts.of(r.class).sent.asked += int64(r.first) - int64(r.asked)
	c.giveRecord(rk, at, r)
	rk.mu.Unlock()
	c.below.Free(b, used...)
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("magazine: Free of a block that is not on loan (address %#x, %d bytes): "+
		"it was freed already, changed since Alloc, or another allocator made it", uint64(b.Ptr), b.Size))
}

// Unwrap implements mem.Wrapper.
func (c *Cache) Unwrap() mem.Allocator { return c.report }

func classOf(size int64) uint32 { return uint32((size + unit - 1) / unit) }
