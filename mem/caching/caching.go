// Package caching is PyTorch's caching allocator for device memory, exact to the address.
//
// It keeps the memory that it got from the driver, in segments, and cuts blocks from them: the smallest free block that
// fits, the lowest address among equals. The policy (sizes, pools, splitting, merging, what is given back and when) is
// that of c10/cuda/CUDACachingAllocator.cpp as of 2026: given the same requests, the same addresses of segments and the
// same moments at which other streams finish, every block gets the address that PyTorch gives it.
//
// # Structure
//
// An Allocator has a shard for each stream. A shard owns the segments that were allocated for its stream: their block
// records (slab), and, for each pool, the free blocks in order (freeSet) and the unmapped spans of expandable segments.
// Blocks never pass from one stream to another. The default pool is a pair, small (blocks up to 1 MiB) and large; each
// private pool is such a pair again. A private pool is made by BeginAllocateToPool, for graphs that are captured, or by
// NewPool, for a user who wants memory apart, perhaps from an upstream allocator instead of the device. It has a home in
// each shard that it has served, through which its warm requests find their blocks. It is forgotten once its users are
// gone, its memory has been given back and no request is on its way to it.
//
// A block is free, live, pending (freed, but waiting for marks on other streams) or unmapped. Alloc takes a free block
// to live and cuts the rest off; Free takes it back through pending, if other streams use it, and merges it with free
// neighbours. A segment's blocks tile it, and no two neighbours are both free or both unmapped. Under the build tag
// invariants that, and the agreement of the free sets and the statistics with the blocks, is checked after every call.
//
// # Locks
//
// A warm Alloc or Free takes its shard's lock and nothing else: no driver call, no map, no heap allocation. Everything
// else (new segments, frees that wait, giving memory back, captures, observers) runs under Allocator.mu. A shard's lock
// may be taken alone or under mu; whoever holds a shard's lock never waits for mu; only the holder of mu holds two
// shards. Callbacks, observers of out-of-memory and upstreams run without locks, but for one that orders what upstreams
// are given back, which is taken before mu; the event observer and the filters of private pools run under them. A panic
// out of one of those, or out of the driver, leaves the allocator locked for good.
//
// # What differs from PyTorch
//
// After the last wait for pending frees, the free blocks are searched once more before memory runs out (PyTorch issue
// 189504), a request to a Pool gives back what the Pool itself has free, if no graph uses it, and a Pool that graphs use
// lends nothing; Config.PyTorchExact turns these off. A Restore does not take back what a Pool has lent. A failed driver
// call loses nothing: what could not be given back stays cached, a free whose mark could not be taken stays pending and
// the mark is tried again.
//
// It does not move blocks. Other processes open its expandable segments through ExportPages (see mem/raw), which counts
// nothing.
package caching

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// An Allocator caches the memory of one device. Safe for concurrent use.
type Allocator struct {
	dev driver.Device
	vm  *peers.Memory // nil if the device has none

	shards   atomic.Pointer[[]*shard] // by stream ID; grows under mu; entries are nil until the stream allocates
	slowPath atomic.Uint32            // reasons to take the slow path: see the constants below
	changed  atomic.Pointer[shard]    // a list of the shards that a fold has to visit: see shardStats
	aged     atomic.Bool              // the age of free blocks has ever been counted
	cfg      Config                   // changes only with mu and every shard locked: either lock suffices to read it

	_ [64]byte // warm calls of all streams read what is above, and slow ones write what is below

	mu sync.Mutex // guards what follows, and all segments' coming and going

	live     []*shard // the shards that exist, in the order of their streams' IDs
	visited  []*shard // room for those that a fold visits
	holders  []*shard // those that may have slack: see shardStats
	locked   *shard   // a shard whose lock is held by the holder of mu already; see lockShards
	limit    int64    // bytes that may be reserved; noLimit without one
	reserved int64    // bytes of segments and mapped pages, and inFlight
	inFlight int64    // bytes of segments that the driver is being asked for with the locks released
	totals   totals
	pending  []*waitList // frees that wait, by the stream they wait for, in the order of their numbers
	deferred []*deferredFree
	default_ [2]*blockPool
	private  map[mem.PoolID]*privatePool
	overflow []*privatePool // that may be borrowed from, in the order of their IDs
	scopes   poolscope.Scopes[*privatePool]
	returns  []returned    // segments that upstreams are to get back as soon as mu is let go of
	flushing int           // segments that upstreams are being given back now
	orphans  []driver.Page // unmapped pages that the driver failed to take back; not counted as reserved

	reserveClasses map[driver.StreamID]string // of streams that are in one
	uncached       uncached

	observer           mem.Observer
	lowMemory          hooks[func() bool]
	oomObservers       []func(*mem.OutOfMemory)
	rejectionObservers hooks[func(*mem.OutOfMemory)]
	closed             bool

	returning sync.Mutex // held while upstreams are given their segments back; taken before mu
}

const noLimit = int64(1)<<62 - 1

// Reasons for the slow path.
const (
	slowPending  = 1 << iota // frees wait for other streams: Alloc looks whether they are done
	slowCapture              // some requests go to private pools
	slowGC                   // the age of free blocks is counted
	slowObserver             // somebody wants every event, in one order
	slowClosed               // every call fails, or Close is under way
	slowDisabled             // each request is the driver's

	slowFrees = slowObserver | slowClosed // what matters to a free that waits for no other stream
)

// New returns an allocator of dev's memory. The error says which setting is out of its range, or that the device cannot
// do what a setting asks for.
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

// Alloc returns a block of at least size bytes for work queued on s from now on: see mem.Allocator. The error is an
// *mem.OutOfMemory if there is no room, and otherwise the driver's.
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

// allocWarm serves a request from the cache of its stream, unless something wants attention.
func (a *Allocator) allocWarm(s driver.Stream, size int64) (mem.Block, bool) {
	shards := *a.shards.Load()
	if id := int(s.ID()); id < len(shards) && shards[id] != nil {
		sh := shards[id]
		sh.mu.Lock()
		// Observers, settings and Close ask for attention with every shard locked: what is seen under the lock holds.
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

// Free takes b back: see mem.Allocator. Streams in used other than b's own make the block wait until they have done the
// work that is queued on them now.
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
	index, gen, ref := splitTag(b.Tag)
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
	blk := sh.lookup(ref, gen, b)
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

// It is what mem.Open gives out where no other allocator is asked for; its settings are ParseConfig's.
func init() {
	mem.Register("caching", "", 100, func(dev driver.Device, settings string) (mem.Allocator, error) {
		cfg, _, err := ParseConfig(settings)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg)
	})
}
