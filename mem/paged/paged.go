// Package paged keeps addresses and memory apart: blocks lie in reserved address ranges, and pages of physical memory are put
// behind those that are in use. What other allocators lose to fragmentation is addresses here, of which there are plenty.
//
// # Structure
//
// Addresses are divided into granules, the device's granularity (2 MiB on NVIDIA GPUs). A page is physical memory of a power of
// two of them; a mapping is a page at an address.
//
//	region    a reservation; spans tile it: blocks, and holes between them (span.go, hole.go)
//	mapping   a page behind some granules of a region; counts the blocks that touch it (mapping.go)
//	page      in use: blocks touch one of its mappings, the user; idle otherwise
//
// Placement looks at addresses alone: a hole that is little larger, else the end of the region. It does not care where pages
// are, nor does it align blocks to them: neighbours share the granule in which they meet, so what is lost is a fraction of
// a granule for a whole row of blocks, and not for each. Small blocks share slabs (slab.go).
//
// Then the granules that the block touches get memory (backing.go). One where a page is, in use or idle, needs nothing. The
// others get idle pages, those that have not been used for longest, or new ones while the memory in use has not been as much
// before. A page that moves keeps its old mapping: it is an alias, and when a block comes back to the old place while the
// page is idle, nothing is to be done at all. So work that repeats comes to few driver calls or none (Config.Spare). Only a
// mapping whose page is in use elsewhere is unmapped, when a block needs its place.
//
//	used granules <= created granules <= most granules ever used (and Config.Spare), or the limit
//
// A page of several granules costs the driver no more than a small one, and is in use as soon as a block touches one of
// them. So pages are small where memory is short, and grow with the memory that is there: see Config.Page.
//
// # Streams
//
// Memory is allocated in stream order, and across streams at once: holes and pages have dependencies (mem/internal/reuse), and
// Alloc makes its stream wait on the device for those. The host waits only before it unmaps, for the marks after which
// nobody uses that mapping (wait.go): a stall. While a stream captures a graph it cannot be waited for, nor can it wait itself; then
// other memory is taken (capture.go). What a graph uses must stay live as long as the graph is launched: an allocator does not know which addresses
// are in it.
//
// # Processors
//
// In front of all this are processor caches (processor cache.go): blocks that were freed and not taken apart yet, by stream and size. There is
// one processor cache until goroutines meet at it, then as many as processors; so what one goroutine does is repeatable. Before
// the driver is asked for anything, processor caches are emptied and the request is tried again.
//
// # Locks
//
// Allocator.observing, a processor cache's, or Allocator.mu, then those inside the device. Both are held, the processor cache's first, while
// blocks go from one to the other, and in reports, which hold every processor cache's.
//
// # What it does not do
//
// It moves no contents, so it is no mem.Mover. It keeps no private pools. It splits no page: one of several granules that a
// small block keeps in use is in use as a whole.
package paged

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

var _ interface {
	mem.Allocator
	mem.OptionsAllocator
	mem.Trimmer
	mem.Snapshotter
	mem.StatsReporter
	mem.Observable
	mem.PeerAdder
} = (*Allocator)(nil)

// An Allocator allocates blocks of a device that has virtual memory. Safe for concurrent use.
type Allocator struct {
	dev     driver.Device
	vm      *peers.Memory
	cfg     Config
	granule int64
	shift   uint // of the granule
	spans   spanTable
	caches  processorCaches

	observing sync.Mutex // held by Observe

	mu             sync.Mutex // guards what follows
	closed         bool
	streams        *reuse.Streams
	waits          waits
	regions        []*region
	holes          holes
	slabs          []*slabLists // by stream number
	mappings       []mapping
	unusedMappings []mref // mappings that are none
	pages          []page
	unusedPages    []pref // pages that are none
	idle           [maxOrder + 1]list
	undropped      int   // pages that the driver would not take back
	created        int64 // granules of pages
	used           int64 // granules of pages in use
	mostUsed       int64
	limit          int64 // granules that may be created; 0: no limit
	maxGranules    int64 // the same, or all that the device has
	stats          mem.Stats
	allocated      tally // blocks that left for a processor cache or a caller,
	freed          sums  // and came back
	peak           sums  // the most that was live

	nowAtReset, allocatedAtReset sums // live, and lent in all, when accumulated statistics were reset
	stalls                       int64
	observer                     mem.Observer
	pieces                       []driver.Page // scratch of back
	taken                        []mref
	chosen                       []pref

	checks atomic.Uint64 // how often verify was called
}

// New makes an allocator of dev's memory, which Close gives back. The error says what is wrong with cfg, matches
// driver.ErrUnsupported if the device has no virtual memory, or is the driver's.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	cfg, err := cfg.complete(dev)
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		dev: dev, vm: peers.Of(dev), cfg: cfg, granule: dev.Info().Granularity,
		shift:    uint(bits.TrailingZeros64(uint64(dev.Info().Granularity))),
		streams:  reuse.New(dev, "paged"),
		mappings: make([]mapping, 1, 64), pages: make([]page, 1, 64), // 0 is none
	}
	a.waits.dev, a.waits.streams = dev, a.streams
	a.caches.init(&a.mu)
	a.limit = cfg.Limit / a.granule
	if a.maxGranules = a.limit; a.maxGranules == 0 {
		a.maxGranules = dev.Info().TotalMemory / a.granule
	}
	if _, err := a.reserve(0); err != nil {
		return nil, err
	}
	return a, nil
}

const tooLarge = 1 << 40 // bytes: more than any device has, and than a span can be

// Alloc implements mem.Allocator. The error is a *mem.OutOfMemory if there is no room, and the driver's if a call failed;
// then nothing was allocated.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry nothing is waited for and nothing given back to the device to make room.
func (a *Allocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("paged: Alloc", s)
	size, o = o.Rounded(size)
	switch {
	case size < 0:
		panic(fmt.Sprintf("paged: Alloc of %d bytes", size))
	case size == 0:
		return mem.Block{}, nil
	case size > tooLarge:
		if size < 1<<60 && !o.Tentative {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.stats.NumOOMs++
		}
		return mem.Block{}, &mem.OutOfMemory{Requested: size, TooLarge: true}
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
	a.lockShared(pc)
	a.releaseAll(pc.drain())
	if !a.isFirst(pc) {
		pc.mu.Unlock()
	}
	b, err := a.allocShared(s, id, size, o)
	a.mu.Unlock()
	return b, err
}

// allocShared takes a block from below the processor caches, one of which is empty. The caller holds mu.
func (a *Allocator) allocShared(s driver.Stream, id driver.StreamID, size int64, o mem.AllocOptions) (mem.Block, error) {
	var r request // in one piece it would be copied, which waits for each field
	r.stream, r.id, r.noWait = s, id, o.NoRetry
	r.requested, r.units = size, uint32(uint64(size+unit-1)/unit)
	r.mayCallDriver = a.caches.mask.Load() == 0 // else what other processor caches hold may be just what is missing
	at, err := a.alloc(&r)
	if err == errFlushFirst {
		a.flushCaches()
		r.mayCallDriver = true
		at, err = a.alloc(&r)
	}
	if err != nil {
		return mem.Block{}, a.explain(r, err, o.Tentative)
	}
	block := a.spans.at(at)
	b := block.markAllocated(at, size)
	a.countAlloc(block)
	a.notify(mem.ActionAlloc, r.id, b.Ptr, size)
	a.verify()
	return b, nil
}

// explain makes an error of a shortage that says more. It has a request of its own, for that goes to Go's heap.
func (a *Allocator) explain(r request, err error, tentative bool) error {
	var short *shortage
	switch {
	case !errors.As(err, &short):
		return err
	case tentative:
		return fmt.Errorf("paged: no room for %s: %w", mem.FormatSize(r.requested), mem.ErrNoMemory)
	}
	return a.outOfMemory(&r, short)
}

// A request is a call of Alloc.
type request struct {
	stream        driver.Stream
	own           reuse.Set // that of the stream
	id            driver.StreamID
	requested     int64
	units         uint32
	noWait        bool      // nothing may be waited for
	avoid         avoidance // streams whose memory it cannot have, since there is a capture
	mayCallDriver bool      // it may ask the driver
	stale         bool      // a mapping was in its way whose page is in use elsewhere
}

// errFlushFirst says that the processor caches must be emptied before the driver is asked for memory.
var errFlushFirst = errors.New("paged: racks hold blocks")

// alloc takes a block from a slab or a hole. The caller holds mu.
func (a *Allocator) alloc(r *request) (ref, error) {
	if a.closed {
		return 0, closedError("Alloc")
	}
	r.own = a.streams.Register(r.stream)
	if r.units <= slabUnits {
		return a.allocSlot(r)
	}
	return a.place(r, r.units)
}

// Free implements mem.Allocator. It makes no driver call, but where Config.Keep has memory given back at once, or a stream has
// the number of one that is closed.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	at, r := a.spans.find(b)
	check.Used("paged: Free", used)
	if !r.markFree(b.Tag) {
		panicForeign(b)
	}
	if len(used) == 0 && a.cache(at, r) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	stream, asked := r.stream, r.requested()
	a.freed.add(r)
	a.release(at, r, used)
	a.notify(mem.ActionFreeRequested, stream, b.Ptr, asked)
	a.notify(mem.ActionFreeCompleted, stream, b.Ptr, asked)
	if a.cfg.Keep != KeepAll {
		a.trimIdle()
	}
	a.verify()
}

// release gives a block back to its slab or makes a hole of it. The caller holds mu.
func (a *Allocator) release(at ref, r *span, used []driver.Stream) {
	users := r.deps.Users
	for _, s := range used {
		users = a.streams.Union(users, a.streams.Register(s))
	}
	a.waits.clock++
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

// notify tells the observer. The caller holds mu.
func (a *Allocator) notify(action mem.Action, stream driver.StreamID, p driver.Pointer, size int64) {
	if a.observer != nil {
		a.observer(mem.Event{Action: action, Stream: stream, Ptr: p, Size: size})
	}
}

// Observe implements mem.Observable. While there is an observer every request goes past the processor caches, so that it hears of each.
// Memory that comes to an address, and leaves one, are segments that are mapped and unmapped.
func (a *Allocator) Observe(observer mem.Observer) {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.caches.setSuspended(observer != nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushCaches()
	a.observer = observer
}

// AddPeer implements mem.PeerAdder: pages are mapped for dev too, wherever they are and will be.
func (a *Allocator) AddPeer(dev driver.Device) error {
	if err := a.vm.Add(dev); err != nil {
		return fmt.Errorf("paged: AddPeer: %w", err)
	}
	return nil
}

// ExportPages implements mem.PageExporter. A block has pages behind it for as long as it is live.
func (a *Allocator) ExportPages(p driver.Pointer, size int64) (base driver.Pointer, pages []driver.PageFile, err error) {
	if base, pages, err = a.vm.Export(p, size); err != nil {
		err = fmt.Errorf("paged: ExportPages: %w", err)
	}
	return base, pages, err
}

func closedError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the allocator is closed"}
}

func panicForeign(b mem.Block) {
	panic(fmt.Sprintf("paged: Free of a block that is not live (address %#x, %d bytes): "+
		"it was freed already, changed since Alloc, or another allocator made it", uint64(b.Ptr), b.Size))
}
