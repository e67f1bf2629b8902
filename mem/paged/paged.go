// Package paged separates addresses from memory: blocks have addresses in large reserved ranges, and pages of physical
// memory are mapped for the blocks in use. So fragmentation wastes addresses, which are plentiful, and little memory.
//
// Pause lends all of that memory to other programs, and Resume gets it back, at the same addresses.
//
// Make an allocator with New on a device that has virtual memory; ParseConfig reads its settings from text. An
// Allocator is safe for concurrent use. Sizes are bytes. Memory is allocated in stream order and across streams: Alloc
// makes its stream wait on the device for other streams that used the memory. The host waits only before it unmaps a
// page that queued work may still use; PageStats counts these stalls. Errors begin with "paged:"; a request for which
// there is no room returns a *mem.OutOfMemory.
//
// A captured graph contains addresses, so the blocks that it uses must stay live as long as it is launched, or belong
// to a private pool: BeginAllocateToPool directs the requests of a capture to a pool, whose memory serves no other
// request until ReleasePool. NewPool makes a pool for other uses. The allocator moves no contents, so it is not a
// mem.Mover.
package paged

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
)

// # Structure
//
// Addresses are divided into granules, the device's granularity (2 MiB on NVIDIA GPUs). A page is physical memory of a
// power of two of granules. A mapping is a page at an address.
//
//	region    a reservation of addresses; spans cover it: blocks, and holes between them (span.go, hole.go)
//	mapping   a page behind some granules of a region; counts the blocks that touch it (mapping.go)
//	page      in use: blocks touch one of its mappings, the user; idle otherwise
//	space     the regions, holes, slabs and idle pages of one pool (space.go, privatepool.go)
//
// Placing (placing.go) considers addresses only: it takes a hole that is slightly larger than the request, or otherwise
// the end of a region. It does not align blocks to pages: neighbours share the granule in which they meet, so a row of
// blocks wastes less than one granule in total. Small blocks share slabs (slab.go).
// AllocAt leaves the choice to the caller (places.go).
//
// Backing (backing.go) then gets memory for the granules that the block touches. A granule with a page, in use or
// idle, needs nothing. The others get idle pages, the least recently used first, or new pages while less memory is in
// use than before. A page that moves keeps its old mapping, an alias: if a block comes back to the old address while
// the page is idle, no driver call is needed. So work that repeats needs few driver calls or none (Config.Spare). A
// mapping is unmapped only if its page is in use elsewhere and a block needs its address.
//
//	used granules <= created granules <= most granules ever used (and Config.Spare), or the limit
//
// A page of several granules costs the driver no more than a small one, and is in use as soon as a block touches any
// of its granules; pages are never split. So pages are small where memory is short, and grow with the memory in use:
// see Config.Page.
//
// # Streams
//
// Holes and pages keep dependencies (mem/internal/reuse). Before the host unmaps a page, it waits for marks after
// which no stream uses that mapping (wait.go). A capturing stream can neither be waited for nor wait; then other
// memory is taken (capture.go).
//
// # Pausing
//
// Pause (pause.go) leaves the pages in use with their mappings' records, and gives their memory back: a page that is
// paused has no handle, and is neither in created nor in used. Idle pages and aliases go for good. The contents are
// copied in runs of addresses (pausecopies.go) to host memory (hostmemory.go), several runs ahead of the one whose
// memory is given back. Resume makes pages of the same sizes at the same addresses. A failure at any point leaves each
// page in one of the two states, with its contents in its memory or in the host's.
//
// # Processors
//
// Processor caches (processorcache.go) hold freed blocks that are not merged yet, by stream and size. There is one
// cache until goroutines contend for it, then one for each processor; so the behaviour of a single goroutine is
// repeatable. Before the driver is asked for anything, all caches are emptied and the request is tried again.
//
// # Locks
//
// Allocator.observing, a processor cache's lock, Allocator.mu, those of host memory, then those inside the device.
// While blocks pass between a processor cache and the allocator both locks are held, the cache's first. Reports hold
// every cache's.

var _ interface {
	mem.Allocator
	mem.OptionsAllocator
	mem.Trimmer
	mem.Snapshotter
	mem.StatsReporter
	mem.Observable
	mem.PeerAdder
} = (*Allocator)(nil)

// An Allocator allocates blocks of a device that has virtual memory. It is safe for concurrent use.
type Allocator struct {
	dev     driver.Device
	vm      *peers.Memory
	cfg     Config
	granule int64
	shift   uint // of the granule
	spans   spanTable
	caches  processorCaches

	observing sync.Mutex // held by Observe, Pause, Resume and Close
	scoping   sync.Mutex // held while a scope begins or ends

	mu             sync.Mutex // guards what follows
	closed         bool
	streams        *reuse.Streams
	waits          waits
	main           space // of requests outside private pools
	private        map[mem.PoolID]*privatePool
	places         *region        // nil until Places
	overflow       []*privatePool // pools with UseOnOOM, by their age
	scopes         poolscope.Scopes[*privatePool]
	regions        []*region
	mappings       []mapping
	unusedMappings []mref // indices without a mapping
	pages          []page
	unusedPages    []pref // indices without a page
	undropped      int    // pages that the driver failed to free
	created        int64  // granules of pages
	used           int64  // granules of pages in use
	mostUsed       int64
	limit          int64 // granules that may be created, or noLimit
	maxGranules    int64 // the same, or all that the device has
	surplus        int64 // granules beyond maxGranules when that was lowered
	fraction       float64
	stats          mem.Stats
	allocated      tally      // of blocks handed to callers and processor caches
	freed          stats.Sums // of those that came back
	peak           stats.Sums // the maxima of live blocks

	nowAtReset, allocatedAtReset stats.Sums // live, and allocated in all, when accumulated statistics were reset
	stalls                       int64
	unfreed                      []hostMemory // of ended pauses
	observer                     mem.Observer
	pieces                       []driver.Page // scratch of back
	taken                        []mref
	chosen                       []pref

	checks atomic.Uint64 // number of calls of verify
}

// New returns an allocator of dev's memory. Close frees the memory. The error names the wrong setting, matches
// driver.ErrUnsupported if the device has no virtual memory, or is an error of the driver.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	cfg, err := cfg.complete(dev)
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		dev: dev, vm: peers.Of(dev), cfg: cfg, granule: dev.Info().Granularity, private: map[mem.PoolID]*privatePool{},
		shift:    uint(bits.TrailingZeros64(uint64(dev.Info().Granularity))),
		streams:  reuse.New(dev, "paged"),
		mappings: make([]mapping, 1, 64), pages: make([]page, 1, 64), // 0 is none
	}
	a.waits.dev, a.waits.streams = dev, a.streams
	a.caches.init(&a.mu)
	a.setLimit(cfg.Limit, 1)
	if _, err := a.reserve(&a.main, 0); err != nil {
		return nil, err
	}
	return a, nil
}

const tooLarge = 1 << 40 // bytes: more than any device has, and than a span can be

// Alloc implements mem.Allocator. The error is a *mem.OutOfMemory if there is no room, or an error of the driver if a
// call failed; then nothing has been allocated.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.allocate(s, size, &noOptions)
}

var noOptions mem.AllocOptions // never changed; passed by its address, because a copy costs 2 % of a request

// AllocWith implements mem.OptionsAllocator. With NoRetry it neither waits nor frees device memory to make room.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if o.RoundUp != 0 {
		size, o = o.Rounded(size)
	}
	if o.Key != nil {
		poolscope.CheckKey("paged: Alloc", o.Key)
	}
	return a.allocate(s, size, &o)
}

// allocate allocates a block from a processor cache, or else from the shared structures.
func (a *Allocator) allocate(s driver.Stream, size int64, o *mem.AllocOptions) (mem.Block, error) {
	check.Stream("paged: Alloc", s)
	if size <= 0 || size > tooLarge {
		return mem.Block{}, a.refuse(size, o.Tentative)
	}
	pc := a.caches.lock()
	id := s.ID()
	if at := pc.take(s, id, size); at != 0 {
		r := a.spans.at(at)
		pc.allocated.add(r)
		b := r.markAllocated(at, size)
		pc.mu.Unlock()
		return b, nil
	}
	a.shared(pc)
	var to *privatePool
	if len(a.scopes) > 0 {
		to, _ = a.scopes.Find(s, o.Key)
	}
	b, err := a.allocShared(s, id, size, o, to)
	a.mu.Unlock()
	return b, err
}

// refuse returns the error for a size that no block has: none for 0 bytes.
func (a *Allocator) refuse(size int64, tentative bool) error {
	switch {
	case size < 0:
		panic(fmt.Sprintf("paged: Alloc of %d bytes", size))
	case size == 0:
		return nil
	case size < 1<<60 && !tentative:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stats.NumOOMs++
	}
	return &mem.OutOfMemory{Requested: size, TooLarge: true}
}

// allocShared allocates a block of a private pool, or of the default pool if to is nil, from the shared structures
// below the processor caches, one of which is empty. The caller holds mu.
func (a *Allocator) allocShared(
	s driver.Stream, id driver.StreamID, size int64, o *mem.AllocOptions, to *privatePool,
) (mem.Block, error) {
	var r request // set field by field: a literal would be copied, which stalls
	r.stream, r.id, r.space, r.noWait = s, id, &a.main, o.NoRetry
	if to != nil {
		r.space = &to.space
	}
	r.requested, r.units = size, uint32(uint64(size+unit-1)/unit)
	r.mayCallDriver = a.caches.mask.Load() == 0 // otherwise other processor caches may hold the missing memory
	at, err := a.alloc(&r)
	if err != nil {
		if at, err = a.allocAgain(&r, to, err); err != nil {
			return mem.Block{}, a.explain(r, err, o.Tentative)
		}
	}
	block := a.spans.at(at)
	b := block.markAllocated(at, size)
	if r.space.owner != nil {
		b.Tag |= privateTag
	}
	a.countAlloc(block)
	a.notify(mem.ActionAlloc, r.space, r.id, b.Ptr, size)
	a.verify()
	return b, nil
}

// allocAgain repeats a request that failed with err, after it has collected memory from processor caches and pools
// without users, or takes memory of a pool with UseOnOOM.
func (a *Allocator) allocAgain(r *request, to *privatePool, err error) (at ref, _ error) {
	if err == errFlushFirst {
		a.flushCaches()
		r.mayCallDriver = true
		at, err = a.alloc(r)
	}
	if isShortage(err) && to != nil { // processor caches may hold memory of the default pool
		a.flushCaches()
		at, err = a.alloc(r)
	}
	if isShortage(err) && a.reclaimFor(r) {
		at, err = a.alloc(r)
	}
	if isShortage(err) && to == nil {
		at, err = a.borrow(r, err)
	}
	return at, err
}

// A request is a call of Alloc.
type request struct {
	stream        driver.Stream
	own           reuse.Set // the set of stream alone
	id            driver.StreamID
	space         *space
	requested     int64
	units         uint32
	noWait        bool      // the host must not wait
	avoid         avoidance // streams whose memory it must not take, because of a capture
	mayCallDriver bool      // false on the first attempt: see errFlushFirst
	captured      avoidance // streams that capture, once asked
	asked         bool
	stale         bool // it met a mapping whose page is in use elsewhere
}

// errFlushFirst means that the processor caches must be emptied before the driver is asked for memory.
var errFlushFirst = errors.New("paged: processor caches hold blocks")

// alloc allocates a block from a slab or a hole. The caller holds mu.
func (a *Allocator) alloc(r *request) (ref, error) {
	if a.closed {
		return 0, closedError("Alloc")
	}
	if r.space.paused != nil {
		return 0, ErrPaused
	}
	if r.space.owner != nil && r.space.owner.gone {
		return 0, ErrPoolClosed
	}
	r.own = a.streams.Register(r.stream)
	if r.space.noMerge() {
		return a.place(r, uint32((int64(r.units)*unit+a.granule-1)/a.granule*a.granule/unit))
	}
	if r.units <= slabUnits {
		return a.allocSlot(r)
	}
	return a.place(r, r.units)
}

// Free implements mem.Allocator. It makes no driver call, except where Config.Keep frees memory at once, or a stream
// has the number of a closed one.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	at, r := a.spans.find(b)
	check.Used("paged: Free", used)
	if !r.markFree(b.Tag) {
		panicForeign(b)
	}
	if len(used) == 0 && b.Tag&(privateTag|placeTag) == 0 && a.cache(at, r) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	stream, asked, s := r.stream, r.requested(), a.spaceOf(r)
	a.freed.Add(r.sums())
	a.release(at, r, used)
	a.notify(mem.ActionFreeRequested, s, stream, b.Ptr, asked)
	a.notify(mem.ActionFreeCompleted, s, stream, b.Ptr, asked)
	if a.excess() {
		a.trimIdle()
	}
	a.verify()
}

// release returns a block to its slab or makes it a hole. The caller holds mu.
func (a *Allocator) release(at ref, r *span, used []driver.Stream) {
	users := r.deps.Users
	for _, s := range used {
		users = a.streams.Union(users, a.streams.Register(s))
	}
	deps := a.streams.Freed(users)
	if r.state == slot {
		a.releaseSlot(at, r, deps)
	} else {
		a.freeSpan(at, r, deps)
	}
	if a.streams.NeedsCollect() {
		a.streams.Collect(a.sets)
	}
}

// notify calls the observer, if there is one. The caller holds mu.
func (a *Allocator) notify(action mem.Action, s *space, stream driver.StreamID, p driver.Pointer, size int64) {
	if a.observer != nil {
		a.report(action, s, stream, p, size)
	}
}

func (a *Allocator) report(action mem.Action, s *space, stream driver.StreamID, p driver.Pointer, size int64) {
	a.observer(mem.Event{Action: action, Stream: stream, Pool: s.id(), Ptr: p, Size: size})
}

// Observe implements mem.Observable. While there is an observer, every request bypasses the processor caches, so that
// the observer receives each. Memory mapped at an address, or unmapped from it, is reported as a segment.
func (a *Allocator) Observe(observer mem.Observer) {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.caches.suspend(forObserver, observer != nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCaches()
	a.observer = observer
}

func closedError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the allocator is closed"}
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("paged: Free of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, changed since Alloc, or another allocator made it", uint64(b.Ptr), b.Size))
}
