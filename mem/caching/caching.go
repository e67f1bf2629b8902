// Package caching is PyTorch's caching allocator for device memory, exact to the address.
//
// It keeps the memory that the driver returned, in segments, and allocates blocks from them: the smallest free block
// that fits, and the lowest address among equals. Sizes, pools, splitting, merging and releasing follow
// c10/cuda/CUDACachingAllocator.cpp as of 2026. Given the same requests, the same segment addresses and the same
// moments at which other streams finish, every block has the address that PyTorch gives it.
//
// Make an allocator with New, from Default or from ParseConfig, which reads the text of PYTORCH_ALLOC_CONF. A Pool is
// memory of its own for one user, and BeginAllocateToPool directs the requests of a captured graph to a private pool.
// An Allocator and its Pools are safe for concurrent use. Sizes are bytes. Errors begin with "caching:"; a request for
// which there is no room returns a *mem.OutOfMemory. Freeing a block that is not live panics.
//
// Ashlar differs from PyTorch in three points, unless Config.PyTorchExact is set: after the last wait for pending
// frees, the free blocks are searched once more before memory runs out (PyTorch issue 189504); a request to a Pool that
// finds no room releases the Pool's own free segments if no graph uses it; and a Pool that graphs use lends no blocks.
// Restore does not take back blocks that the default pool has borrowed. A failed driver call loses nothing: memory that
// could not be released stays cached, and a free whose mark could not be taken stays pending until the mark succeeds.
//
// The allocator does not move blocks. Other processes open its expandable segments through ExportPages (see mem/raw),
// which does not count references.
package caching

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// # Structure
//
// An Allocator has one shard for each stream. A shard owns the segments that were allocated for its stream: their
// blocks (slab) and, for each pool, the free blocks in order (freeSet) and the unmapped spans of expandable segments.
// Blocks never pass from one stream to another. The default pool is a pair, small (blocks up to 1 MiB) and large; each
// private pool is such a pair too. BeginAllocateToPool makes a private pool for captured graphs, and NewPool makes one
// for a user, perhaps with an upstream allocator in place of the device. A private pool has an index of its pools by
// shard, through which warm requests find their blocks. It is removed when it has no users, its memory has been
// released and no request to it is under way.
//
// A block is free, live, pending (freed, but waiting for marks on other streams) or unmapped. Alloc makes a free block
// live and splits off the rest. Free makes it free again, through pending if other streams use it, and merges it with
// free neighbours. The blocks of a segment cover it, and no two neighbours are both free or both unmapped. The build
// tag invariants checks this, and that the free sets and the statistics agree with the blocks, after every call.
//
// # Locks
//
// A warm Alloc or Free takes its shard's lock and no other. It makes no driver call, no map lookup and no heap
// allocation. All other work (new segments, frees that wait, releasing memory, captures, observers) holds
// Allocator.mu.
//
//	returning, then Allocator.mu, then shards' locks
//
// A shard's lock may be taken alone or under mu. A goroutine that holds a shard's lock never waits for mu. Only the
// holder of mu holds two shards' locks. Allocator.locked names the shard that the holder of mu has locked, so that
// lockShards does not lock it twice.
//
// Callbacks, observers of out-of-memory errors and upstreams are called without locks, except returning, which orders
// the returns to upstreams. The event observer and the filters of private pools are called under the locks. If one of
// those panics, or the driver does, the allocator stays locked.

// An Allocator caches the memory of one device. It is safe for concurrent use.
type Allocator struct {
	dev driver.Device
	vm  *peers.Memory // nil if the device has none

	shards   atomic.Pointer[[]*shard] // by stream ID; grows under mu; entries are nil until the stream allocates
	slowPath atomic.Uint32            // reasons to take the slow path: the constants below
	changed  atomic.Pointer[shard]    // a list of the shards that a fold has to visit: see shardStats
	aged     atomic.Bool              // the age of free blocks has been counted at some time
	cfg      Config                   // changes only with mu and every shard locked: either lock suffices to read it

	_ [64]byte // warm calls read the fields above; slow calls write those below

	mu sync.Mutex // guards the fields below, and the adding and removing of segments

	live     []*shard // all shards, by stream ID
	visited  []*shard // scratch space for the shards that a fold visits
	holders  []*shard // shards that may have slack: see shardStats
	locked   *shard   // the shard that the holder of mu has locked; see lockShards
	limit    int64    // bytes that may be reserved; noLimit without one
	reserved int64    // bytes of segments and mapped pages, and inFlight
	inFlight int64    // bytes of segments being requested from the driver while the locks are released
	totals   totals
	pending  []*waitList // frees that wait, by the stream they wait for
	deferred []*deferredFree
	default_ [2]*blockPool
	private  map[mem.PoolID]*privatePool
	overflow []*privatePool // pools that the default pool may borrow from, by ID
	scopes   poolscope.Scopes[*privatePool]
	returns  []returned    // segments to return to upstreams once mu is unlocked
	flushing int           // number of segments being returned to upstreams now
	orphans  []driver.Page // unmapped pages that the driver failed to drop; not counted as reserved

	reserveClasses map[driver.StreamID]string // by stream, if it is in a class
	uncached       uncached

	observer           mem.Observer
	lowMemory          hooks[func() bool]
	oomObservers       []func(*mem.OutOfMemory)
	rejectionObservers hooks[func(*mem.OutOfMemory)]
	closed             bool

	returning sync.Mutex // held while segments are returned to upstreams; taken before mu
}

const noLimit = int64(1)<<62 - 1

// Reasons to take the slow path.
const (
	slowPending  = 1 << iota // frees wait for other streams, and Alloc must process them
	slowCapture              // some requests go to private pools
	slowGC                   // the age of free blocks is counted
	slowObserver             // an observer receives every event, in one order
	slowClosed               // every call fails, or Close is running
	slowDisabled             // caching is off: each request goes to the driver

	slowFrees = slowObserver | slowClosed // reasons that matter to a Free without other streams
)

// New returns an allocator of dev's memory. The error names the setting that is out of range or that the device does
// not support.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	a := &Allocator{
		dev:      dev,
		vm:       peers.Of(dev),
		private:  map[mem.PoolID]*privatePool{},
		default_: [2]*blockPool{{class: classSmall}, {class: classLarge}},
	}
	a.shards.Store(new([]*shard))
	if err := a.Configure(cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// Alloc returns a block of at least size bytes for work that is queued on s from now on: see mem.Allocator. The error
// is an *mem.OutOfMemory if there is no room, and the driver's error otherwise.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	check.Stream("caching: Alloc", s)
	if size <= 0 {
		if size < 0 {
			panic(fmt.Sprintf("caching: Alloc of %d bytes", size))
		}
		return mem.Block{}, nil
	}
	if b, ok := a.allocWarm(s, size); ok {
		return b, nil
	}
	return a.allocSlowDefault(s, size)
}

// allocWarm serves a request from the free blocks of its stream. It returns false if there is none that fits, or if
// the request must take the slow path.
func (a *Allocator) allocWarm(s driver.Stream, size int64) (mem.Block, bool) {
	shards := *a.shards.Load()
	if id := int(s.ID()); id < len(shards) && shards[id] != nil {
		sh := shards[id]
		sh.mu.Lock()
		// Setters of slowPath hold every shard's lock, so the value read under this lock stays valid until the lock is
		// released.
		if a.slowPath.Load() == 0 && sh.stream == s && size < maxRequest {
			rounded := a.cfg.roundSize(size)
			p := sh.defaultPool(rounded)
			if ref, blk := p.find(rounded, a.cfg.ExpandableSegments); ref != 0 {
				cut := a.cfg.shouldSplit(p, blk.size(), rounded, a.cfg.ExpandableSegments)
				b := p.allocateBlock(ref, blk, rounded, size, cut)
				over := sh.stats.over
				sh.verify()
				sh.mu.Unlock()
				if over {
					a.fold()
				}
				return b, true
			}
		}
		sh.mu.Unlock()
	}
	return mem.Block{}, false
}

// Free frees b: see mem.Allocator. If used names streams other than b's own, the memory is not reused before they have
// done the work that is queued on them now.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if b.Tag == 0 {
		if b != (mem.Block{}) {
			panic(fmt.Sprintf("caching: Free of a block that this allocator did not make (address %#x)", b.Ptr))
		}
		return
	}
	if len(used) > 0 {
		a.freeSlow(b, used)
		return
	}
	index, generation, ref := splitTag(b.Tag)
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		a.freeUncached(b)
		return
	}
	sh := shards[index]
	sh.mu.Lock()
	if a.slowPath.Load()&slowFrees != 0 {
		sh.mu.Unlock()
		a.freeSlow(b, nil)
		return
	}
	blk := sh.lookup(ref, generation, b)
	if blk == nil {
		sh.mu.Unlock()
		a.freeUncached(b)
		return
	}
	p := sh.pools[blk.pool]
	p.freeRequested(blk)
	p.freeBlock(ref, blk)
	over := sh.stats.over
	sh.verify()
	sh.mu.Unlock()
	if over {
		a.fold()
	}
}

func panicForeign(call string, b mem.Block) {
	panic(fmt.Sprintf("caching: %s of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, or another allocator made it", call, b.Ptr, b.Size))
}

func (a *Allocator) observe(action mem.Action, p *shardPool, ptr driver.Pointer, size int64) {
	if a.observer != nil {
		a.observer(mem.Event{Action: action, Stream: p.sh.stream.ID(), Pool: p.blockPool.id, Ptr: ptr, Size: size})
	}
}

// ErrClosed is returned by calls on a closed allocator.
var ErrClosed = errors.New("caching: the allocator is closed")

// The settings of mem.Open are those of ParseConfig. The priority makes this allocator the default.
func init() {
	mem.Register("caching", "", 100, func(dev driver.Device, settings string) (mem.Allocator, error) {
		cfg, _, err := ParseConfig(settings)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg)
	})
}
