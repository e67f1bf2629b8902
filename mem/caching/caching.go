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
// private pool is such a pair again.
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
// shards. Callbacks and observers of out-of-memory run without locks; the event observer runs under them.
//
// # What differs from PyTorch
//
// After the last wait for pending frees, the free blocks are searched once more before memory runs out (PyTorch issue
// 189504); Config.PyTorchExact turns that off. A failed driver call loses nothing: what could not be given back stays
// cached, a free whose mark could not be taken stays pending and the mark is tried again.
//
// It does not move blocks, and does not share memory with other processes.
package caching

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// An Allocator caches the memory of one device. Safe for concurrent use.
type Allocator struct {
	dev driver.Device
	vm  driver.VirtualMemory // nil if the device has none

	shards    atomic.Pointer[[]*shard] // by stream ID; grows under mu; entries are nil until the stream allocates
	attention atomic.Uint32            // reasons to take the slow path: see the constants below

	mu sync.Mutex // guards what follows, and all segments' coming and going

	live     []*shard // the shards that exist, in the order of their streams' IDs
	locked   *shard   // a shard whose lock is held by the holder of mu already; see lockShards
	cfg      Config   // changes only with every shard locked, so either lock suffices to read it
	limit    int64    // bytes that may be reserved; noLimit without one
	reserved int64    // bytes of segments and mapped pages
	totals   totals
	pending  []*waitList // frees that wait, by the stream they wait for, in the order of first use
	deferred []*deferredFree
	default_ [2]*family
	private  map[mem.PoolID]*privatePool
	captures []capture
	orphans  []driver.Page // unmapped pages that the driver failed to take back

	observer     mem.Observer
	callbacks    []func() bool
	oomObservers []func(*mem.OutOfMemory)
	closed       bool
}

const noLimit = int64(1)<<62 - 1

// Reasons for the slow path.
const (
	attendPending  = 1 << iota // frees wait for other streams: Alloc looks whether they are done
	attendCapture              // some requests go to private pools
	attendGC                   // the age of free blocks is counted
	attendObserver             // somebody wants every event, in one order
	attendClosed               // every call fails
)

// A shard is what belongs to one stream. Its lock guards all of it.
type shard struct {
	mu     sync.Mutex
	a      *Allocator
	index  int
	stream driver.Stream
	slab   slab
	pools  []*pool // [0] small and [1] large of the default pool, then those of private pools
	stats  shardStats
	checks int // how often verify was called

	expandables []*expandable // nil where one has been released
	_           [64]byte      // keep neighbouring shards off one cache line
}

// A pool is the free memory of one family in one shard.
type pool struct {
	free     freeSet
	unmapped []blockRef // by address
	family   *family
	sh       *shard
	index    uint16 // in shard.pools
	class    int    // classSmall or classLarge
	stats    *classStats
}

func (p *pool) small() bool { return p.class == classSmall }

// A family is the pools of one kind, small or large, in all shards: what PyTorch calls a BlockPool.
type family struct {
	id       mem.PoolID
	class    int
	calls    atomic.Int64 // searches for free blocks, counted while garbage collection is on
	reserved int64        // bytes of segments and mapped pages; guarded by Allocator.mu
}

// New returns an allocator of dev's memory. The error says which setting is out of its range, or that the device cannot
// do what a setting asks for.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	a := &Allocator{
		dev:      dev,
		vm:       dev.VirtualMemory(),
		private:  map[mem.PoolID]*privatePool{},
		default_: [2]*family{{class: classSmall}, {class: classLarge}},
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
	if size <= 0 {
		if size < 0 {
			panic(fmt.Sprintf("caching: Alloc of %d bytes", size))
		}
		return mem.Block{}, nil
	}
	if a.attention.Load() == 0 {
		shards := *a.shards.Load()
		if id := int(s.ID()); id < len(shards) && shards[id] != nil {
			sh := shards[id]
			sh.mu.Lock()
			if sh.stream == s && size <= maxRequest {
				rounded := a.cfg.roundSize(size)
				p := sh.defaultPool(rounded)
				if ref, blk := p.find(rounded, a.cfg.ExpandableSegments); ref != 0 {
					b := p.hand(ref, blk, rounded, size, a.cfg.ExpandableSegments)
					over := sh.stats.over
					sh.verify()
					sh.mu.Unlock()
					if over {
						a.foldIfOver(over)
					}
					return b, nil
				}
			}
			sh.mu.Unlock()
		}
	}
	return a.allocSlow(s, size)
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
	if len(used) > 0 || a.attention.Load()&^attendPending != 0 {
		a.freeSlow(b, used)
		return
	}
	index, gen, ref := splitTag(b.Tag)
	shards := *a.shards.Load()
	if index >= len(shards) || shards[index] == nil {
		panicForeign(b)
	}
	sh := shards[index]
	sh.mu.Lock()
	blk := sh.lookup(ref, gen, b)
	if blk == nil {
		sh.mu.Unlock()
		panicForeign(b)
	}
	p := sh.pools[blk.pool]
	p.freeRequested(blk)
	p.release(ref, blk)
	over := sh.stats.over
	sh.verify()
	sh.mu.Unlock()
	if over {
		a.foldIfOver(over)
	}
}

// lookup finds the record of a live block, or nil if there is no such block.
func (sh *shard) lookup(ref blockRef, gen uint16, b mem.Block) *block {
	if uint32(ref) >= sh.slab.n || ref == 0 {
		return nil
	}
	blk := sh.slab.at(ref)
	if blk.state != stateLive || blk.gen != gen || blk.ptr != b.Ptr {
		return nil
	}
	return blk
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("caching: Free of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, or another allocator made it", b.Ptr, b.Size))
}

func (sh *shard) defaultPool(rounded int64) *pool {
	if rounded <= smallSize {
		return sh.pools[0]
	}
	return sh.pools[1]
}

// find takes the best free block for a rounded size out of the free set, or returns 0: the smallest that fits, the
// lowest of those. Among expandable blocks, one that could grow counts with the size it could grow to.
func (p *pool) find(size int64, expandable bool) (blockRef, *block) {
	e, c := p.free.best(size)
	if e.word == 0 {
		return 0, nil
	}
	ref := e.ref()
	blk := p.sh.slab.at(ref)
	if blk.expandable {
		if !expandable {
			// Expandable segments have been turned off since: only ordinary blocks will do.
			p.free.settle()
			for c = p.free.lowerBound(size); c.ok() && blk.expandable; {
				if c = p.free.next(c); c.ok() {
					ref = c.entry().ref()
					blk = p.sh.slab.at(ref)
				}
			}
			if !c.ok() {
				return 0, nil
			}
		} else if reach := p.reach(blk); reach > blk.size() {
			// The block could grow, so it counts as larger than it is: a larger one that cannot grow so far is better.
			p.free.settle()
			c = p.free.lowerBound(size)
			for next := p.free.next(c); next.ok() && blk.expandable; next = p.free.next(next) {
				candidate := p.sh.slab.at(next.entry().ref())
				r := p.reach(candidate)
				if r >= reach {
					break
				}
				c, ref, blk, reach = next, next.entry().ref(), candidate, r
			}
		}
	}
	cfg := &p.sh.a.cfg
	if size < cfg.MaxSplitSize {
		if blk.size() >= cfg.MaxSplitSize {
			return 0, nil
		}
	} else if blk.size()-size >= cfg.MaxNonSplitRounding {
		return 0, nil
	}
	p.free.takeBest(c)
	return ref, blk
}

// reach is the size of a free block with the unmapped span that follows it.
func (p *pool) reach(blk *block) int64 {
	if blk.next != 0 {
		if next := p.sh.slab.at(blk.next); next.state == stateUnmapped {
			return blk.size() + next.size()
		}
	}
	return blk.size()
}

// hand makes a block that is in no set live, and puts what is cut off it into the free set.
func (p *pool) hand(ref blockRef, blk *block, size, requested int64, expandable bool) mem.Block {
	sh := p.sh
	cfg := &sh.a.cfg
	wasSplit := blk.isSplit()
	if cfg.shouldSplit(p, blk.size(), size, expandable) {
		// The new record is the front, which goes on loan; the old one is the rest.
		restRef, rest := ref, blk
		ref, blk = sh.slab.take()
		blk.make(rest.ptr, size, rest.prev, restRef, rest.pool)
		if rest.expandable {
			sh.slab.inSegment(ref, sh.slab.coldAt(restRef).segment)
		}
		if blk.prev != 0 {
			sh.slab.at(blk.prev).next = ref
		}
		rest.prev = ref
		rest.ptr += driver.Pointer(size)
		rest.setSize(rest.size() - size)
		p.putFree(restRef, rest)
		if !blk.expandable {
			if wasSplit {
				p.stats.sub(inactiveSplitBytes, size)
			} else {
				p.stats.split(rest.size())
			}
		}
	} else if wasSplit && !blk.expandable {
		p.stats.sub(inactiveSplitBytes, blk.size())
		p.stats.sub(inactiveSplit, 1)
	}
	blk.state = stateLive
	blk.setRequested(requested)
	blk.gen++
	p.stats.loan(blk.size(), requested)
	if blk.size() >= cfg.MaxSplitSize {
		p.stats.add(oversizeAllocations, 1)
	}
	if sh.a.observer != nil {
		sh.a.observe(mem.ActionAlloc, p, blk.ptr, requested)
	}
	return mem.Block{Ptr: blk.ptr, Size: blk.size(), Tag: makeTag(sh.index, blk.gen, ref)}
}

// freeRequested counts a block as no longer on loan.
func (p *pool) freeRequested(blk *block) {
	p.stats.sub(allocation, 1)
	p.stats.sub(allocatedBytes, blk.size())
	if blk.size() >= p.sh.a.cfg.MaxSplitSize {
		p.stats.sub(oversizeAllocations, 1)
	}
	if p.sh.a.observer != nil {
		p.sh.a.observe(mem.ActionFreeRequested, p, blk.ptr, blk.requested())
	}
}

// release makes a live or pending block free: it swallows its free neighbours and enters the free set.
func (p *pool) release(ref blockRef, blk *block) {
	sh := p.sh
	if sh.a.observer != nil {
		sh.a.observe(mem.ActionFreeCompleted, p, blk.ptr, blk.requested())
	}
	if blk.state == statePending {
		p.stats.sub(active, 1)
		p.stats.sub(activeBytes, blk.size())
	}
	// Both neighbours are looked at before either is merged, so that two cache misses cost the time of one.
	prev, next := sh.slab.at(blk.prev), sh.slab.at(blk.next)
	prevState, nextState := prev.state, next.state
	var merged, mergedBytes int64
	if prevState == stateFree {
		merged, mergedBytes = 1, p.swallow(ref, blk, blk.prev, prev)
	}
	if nextState == stateFree {
		merged, mergedBytes = merged+1, mergedBytes+p.swallow(ref, blk, blk.next, next)
	}
	p.putFree(ref, blk)
	if !blk.expandable {
		count, bytes := -merged, -mergedBytes
		if blk.isSplit() {
			count, bytes = count+1, bytes+blk.size()
		}
		p.stats.change(inactiveSplit, count)
		p.stats.change(inactiveSplitBytes, bytes)
	}
	p.stats.sub(requestedBytes, blk.requested())
}

func (p *pool) putFree(ref blockRef, blk *block) {
	blk.state = stateFree
	if calls := p.family.calls.Load(); calls != 0 {
		p.sh.slab.coldAt(ref).gcBase = calls
	}
	p.free.insert(blk.size(), uint64(blk.ptr), ref)
}

// swallow merges a neighbour, which is free or unmapped, into blk, which is in no set, and returns the neighbour's size.
func (p *pool) swallow(ref blockRef, blk *block, other blockRef, o *block) int64 {
	slab := &p.sh.slab
	if o.state == stateFree {
		p.free.remove(o.size(), uint64(o.ptr))
	} else {
		p.dropUnmapped(other)
	}
	if blk.prev == other {
		blk.ptr = o.ptr
		if blk.prev = o.prev; blk.prev != 0 {
			slab.at(blk.prev).next = ref
		}
	} else if blk.next = o.next; blk.next != 0 {
		slab.at(blk.next).prev = ref
	}
	size := o.size()
	blk.setSize(blk.size() + size)
	slab.give(other)
	return size
}

func (a *Allocator) observe(action mem.Action, p *pool, ptr driver.Pointer, size int64) {
	if a.observer != nil {
		a.observer(mem.Event{Action: action, Stream: p.sh.stream.ID(), Pool: p.family.id, Ptr: ptr, Size: size})
	}
}

// merge swallows the neighbours of blk that are in the given state.
func (p *pool) merge(ref blockRef, blk *block, state blockState) {
	if prev := p.sh.slab.at(blk.prev); prev.state == state {
		p.swallow(ref, blk, blk.prev, prev)
	}
	if next := p.sh.slab.at(blk.next); next.state == state {
		p.swallow(ref, blk, blk.next, next)
	}
}

// shardOf returns the shard of a stream, and makes it if need be. The caller holds mu and no shard.
func (a *Allocator) shardOf(s driver.Stream) *shard {
	id := int(s.ID())
	shards := *a.shards.Load()
	if id < len(shards) && shards[id] != nil {
		sh := shards[id]
		if sh.stream != s {
			// The driver gave the number of a closed stream to a new one, or the caller has another handle to it.
			sh.mu.Lock()
			sh.stream = s
			sh.mu.Unlock()
		}
		return sh
	}
	if id > maxStreams {
		panic(fmt.Sprintf("caching: stream ID %d: drivers number streams densely, and at most %d", id, maxStreams))
	}
	sh := &shard{a: a, index: id, stream: s}
	sh.stats.init()
	sh.addPool(a.default_[0])
	sh.addPool(a.default_[1])
	grown := make([]*shard, max(id+1, len(shards)))
	copy(grown, shards)
	grown[id] = sh
	a.lockShards()
	a.live = a.live[:0]
	for _, other := range grown {
		if other != nil {
			a.live = append(a.live, other)
		}
	}
	sh.mu.Lock()
	a.shards.Store(&grown)
	a.foldPeaks()
	a.unlockShards()
	return sh
}

const maxStreams = 1<<16 - 1

func (sh *shard) addPool(f *family) *pool {
	p := &pool{family: f, sh: sh, index: uint16(len(sh.pools)), class: f.class, stats: &sh.stats.class[f.class]}
	sh.pools = append(sh.pools, p)
	return p
}

// lockShards locks every shard but a.locked, which the holder of mu has locked already.
func (a *Allocator) lockShards() {
	for _, sh := range a.live {
		if sh != a.locked {
			sh.mu.Lock()
		}
	}
}

func (a *Allocator) unlockShards() {
	for _, sh := range a.live {
		if sh != a.locked {
			sh.mu.Unlock()
		}
	}
}

// ErrClosed is returned by calls on a closed allocator.
var ErrClosed = errors.New("caching: the allocator is closed")
