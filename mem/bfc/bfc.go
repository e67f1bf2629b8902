// Package bfc is TensorFlow's allocator for device memory: best fit with coalescing.
//
// Memory comes from the driver in segments, each twice as large as the one before. A request, rounded up to 256 bytes,
// gets the smallest free block that fits, and the lowest address among equals. The end of a block is split off if that
// at least halves the block, or if 128 MiB would be wasted. A freed block merges with its free neighbours at once.
// Addresses depend only on the requests and the addresses of segments, not on streams. The policy is that of
// tsl/framework/bfc_allocator.cc, written from its description. A second, simple implementation gives the same
// addresses (model_test.go); neither was compared with a running TensorFlow. TensorFlow says chunk for block and
// region for segment.
//
// Make an allocator with New; ParseConfig reads its settings from text. An Allocator is safe for concurrent use. Sizes
// are bytes. Memory is allocated in stream order and across streams: Alloc makes its stream wait for other streams
// that used the memory. If a stream to wait for captures a graph, Alloc takes the next block that fits. A captured
// graph contains addresses, so its blocks must stay live as long as it is launched. Errors begin with "bfc:"; a
// request for which there is no room returns a *mem.OutOfMemory.
//
// The allocator differs from TensorFlow: if the device refuses ever smaller segments, the last attempt is exactly as
// large as the request (TensorFlow stops up to a tenth above it, and for requests below 2.5 KiB never stops); the size
// of segments stops doubling at the limit (TensorFlow's overflows after 64 segments); the rest of a stamped block that
// was split, and stamped blocks that were merged by force, merge later (TensorFlow's do not); a request over the limit
// does not wait; and settings that cannot be parsed are errors. The allocator does not place large and small blocks at
// different ends of a region, and does not move blocks.
package bfc

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
	"github.com/ashlar-go/ashlar/mem/internal/stats"
	"github.com/ashlar-go/ashlar/mem/internal/waiting"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// # Structure
//
// A block (block.go) is live or free; its index and the number of its allocations are its tag. The blocks of a segment
// are linked in address order and cover it. Free blocks are in bins (bin.go), 21 trees by size and address; bin b
// holds sizes from 256<<b.
//
// No two neighbours are both free, unless Config.Counter stamps the frees (timed.go): then a freed block merges only
// after the safe frontier has passed its stamp.
//
// A request that no free block fits gets a new segment. If the limit or the device prevents that, blocks above the
// safe frontier are merged until one fits; then unused segments, except Config.Initial, are released for a larger one
// (allocate.go, segment.go). With Config.Virtual there is one segment, in one range of addresses that pages are mapped
// to (virtual.go).
//
// # Streams
//
// A free block keeps dependencies (mem/internal/reuse): the streams whose work, queued before its free, may still
// access it. Neither Free nor an Alloc of memory that no other stream used makes a driver call. A closed stream has
// done its work. The safe frontier serves callers that know more than the order of streams: it bounds which blocks a
// request takes (Options.FreedBefore), and replaces no wait.
//
// # Locks
//
// Allocator.mu guards everything and is held during driver calls, as in TensorFlow; then come the locks inside the
// device. It is not held while a request waits for memory, nor while Options.FreedBefore and Config.Retry run.

// An Allocator caches segments of a device's memory and allocates blocks from them. It is safe for concurrent use.
type Allocator struct {
	dev      driver.Device
	cfg      Config
	limitSet bool  // the caller chose the limit; otherwise it is the device's free memory
	waste    int64 // bytes at the end of a block that are always split off

	mu          sync.Mutex // guards the fields below
	closed      bool
	blocks      []block // [0] stands for no block
	unused      []ref
	bins        bins
	segments    []segment // by address
	pages       *pages    // source of segments with Config.Virtual; otherwise nil
	nextSegment int64     // bytes of the next segment
	streams     *reuse.Streams
	timed       []ref  // stamped free blocks, in the order of their frees, and some that are no longer stamped
	frontier    uint64 // see SetSafeFrontier
	merged      uint64 // the frontier at the last mergeTimed
	refused     int64  // bytes, rounded, of the last request that failed; 0: none

	stats    mem.Stats // the large pool holds the sums over all: see Stats
	observer mem.Observer
	metadata func(string)

	gate waiting.Gate // where requests wait for memory; has a lock of its own
}

// New makes an allocator of dev's memory. It allocates Config.Initial, and otherwise nothing before the first request.
// The error names the wrong setting, matches mem.ErrNoMemory if the device has no room, or is an error of the driver.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	own := cfg.Limit > 0
	cfg, err := cfg.complete(dev)
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		dev: dev, cfg: cfg, limitSet: own, waste: maxWaste, streams: reuse.New(dev, "bfc"),
		blocks: make([]block, 1), nextSegment: roundUp(cfg.Limit, unit),
	}
	if cfg.Fragmentation > 0 {
		a.waste = int64(cfg.Fragmentation * float64(cfg.Limit))
	}
	if !cfg.NoGrowth {
		a.nextSegment = min(a.nextSegment, firstSize)
	}
	if cfg.Virtual {
		if a.pages, err = openPages(dev, cfg.Limit); err != nil {
			return nil, err
		}
	}
	if cfg.Initial > 0 {
		if err := a.allocInitial(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Alloc implements mem.Allocator. It takes the smallest free block that fits, for which s waits for other streams that
// used the memory, or a block of a new segment. The error is a *mem.OutOfMemory if there is no room; with Config.Retry,
// Alloc first waits for memory. It is an error of the driver if a wait failed, or if the driver refused a segment for a
// reason other than a lack of memory.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.serve(request{stream: s, requested: size}, a.cfg.Retry)
}

const tooLarge = 1 << 60 // bytes, more than any device has

// serve is Alloc. With patience it waits for memory.
func (a *Allocator) serve(w request, patience layer.WaitContext) (mem.Block, error) {
	check.Stream("bfc: Alloc", w.stream)
	switch {
	case w.requested < 0:
		panic(fmt.Sprintf("bfc: Alloc of %d bytes", w.requested))
	case w.requested == 0:
		return mem.Block{}, nil
	case w.requested > tooLarge:
		return mem.Block{}, &mem.OutOfMemory{Requested: w.requested, TooLarge: true}
	}
	w.size = roundUp(w.requested, unit)
	if step := a.step(); w.size > a.cfg.Limit/step*step {
		patience = nil
	}
	b, err := a.tryAlloc(&w, w.tentative || patience != nil)
	if err == errNoRoom && patience != nil {
		b, err = a.allocWaiting(&w, patience)
	}
	switch {
	case err == errNoRoom:
		err = fmt.Errorf("bfc: no room for %s: %w", mem.FormatSize(w.requested), mem.ErrNoMemory)
	case err != nil:
		if oom := (*mem.OutOfMemory)(nil); errors.As(err, &oom) {
			oom.AddProcesses(a.dev)
		}
	}
	return b, err
}

// errNoRoom is the error of a tentative attempt.
var errNoRoom = errors.New("bfc: no room")

// tryAlloc makes one attempt. If there is no room and it is tentative, nothing is counted or reported, and the error
// is errNoRoom.
func (a *Allocator) tryAlloc(w *request, tentative bool) (mem.Block, error) {
	w.bound = 0
	if w.freedBefore != nil {
		w.bound = w.freedBefore()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return mem.Block{}, &driver.Error{Call: "Alloc", Code: driver.ErrClosed, Detail: "the allocator is closed"}
	}
	defer a.verify()
	n, err := a.findOrGrow(w)
	switch {
	case n != 0:
		return a.blocks[n].handle(n), nil
	case err == nil && tentative:
		err = errNoRoom
	case err == nil:
		err = a.outOfMemory(w)
	}
	return mem.Block{}, err
}

// allocWaiting makes an attempt whenever memory is freed, and a last one when the context ends.
func (a *Allocator) allocWaiting(w *request, patience layer.WaitContext) (b mem.Block, err error) {
	ctx, cancel := patience()
	defer cancel()
	cause := a.gate.Wait(ctx, func() bool {
		b, err = a.tryAlloc(w, true)
		return err != errNoRoom
	})
	if cause == nil {
		return b, err
	}
	if b, err = a.tryAlloc(w, w.tentative); err != nil && err != errNoRoom {
		err = fmt.Errorf("bfc: waited for memory: %w: %w", cause, err)
	}
	return b, err
}

// Free implements mem.Allocator. It makes no driver call, unless a stream has the number of a closed one. It panics if
// b is not a live block of this allocator.
func (a *Allocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.lookup(b)
	r := &a.blocks[n]
	users := r.deps.Users
	for _, s := range used {
		users = a.streams.Union(users, a.streams.Register(s))
	}
	r.deps = a.streams.Freed(users)
	r.state = free
	stats.CountFree(&a.stats, r.size, r.requested)
	a.notify(mem.ActionFreeRequested, r.stream, r.ptr, r.requested)
	a.notify(mem.ActionFreeCompleted, r.stream, r.ptr, r.requested)
	was := *r
	if a.cfg.Counter != nil {
		r.freedAt = a.cfg.Counter.Next()
		a.addToBin(n)
		a.queue(n)
	} else {
		a.addToBin(a.coalesce(n, false))
	}
	a.notifyMetadata("MemoryDeallocation", &was, Note{})
	a.gate.Wake()
	if a.streams.NeedsCollect() {
		a.streams.Collect(a.sets)
	}
	a.verify()
}

// sets visits every set of streams that the allocator holds.
func (a *Allocator) sets(yield func(reuse.Set) bool) {
	for i := range a.blocks {
		if !yield(a.blocks[i].deps.Users) {
			return
		}
	}
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }
