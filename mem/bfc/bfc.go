// Package bfc is TensorFlow's allocator for device memory: best fit with coalescing.
//
// Memory comes from the driver in segments, each twice as large as the one before. A request, rounded up to 256 bytes, gets
// the smallest free block that fits, the lowest address among equals; the end of a block is cut off if that at least halves
// it, or would waste 128 MiB. A freed block merges with its free neighbours at once. Addresses follow
// from the requests and the addresses of segments alone, whatever the streams: the policy is that of
// tsl/framework/bfc_allocator.cc, written from its description. A second, plain writing of it gives the same addresses
// (model_test.go); they were not held against a running TensorFlow.
//
// TensorFlow says chunk for block and region for segment; a bin is a bin.
//
// # Structure
//
// A record (block.go) stands for each block, live or free; its number and the count of its loans are the block's tag. The
// blocks of a segment are linked in the order of their addresses and tile it. Free blocks are in bins (bin.go), 21 trees by
// size and address, of which bin b holds sizes from 256<<b.
//
// No two neighbours are both free, but where Config.Counter stamps the frees (timed.go): what was freed merges only once the
// safe frontier has passed its stamp.
//
// A request that no free block fits gets a new segment; if the limit or the device is in the way, blocks above the safe
// frontier are merged until one fits; then unused segments are given back, but for Config.Initial, for a larger one
// (allocate.go, segment.go). With Config.Virtual all segments are one, in one range of addresses that pages are mapped to
// (virtual.go).
//
// # Streams
//
// TensorFlow has one stream, or users that know when memory is safe. Here memory is allocated in stream order, and across
// streams at once: a free block has the set of streams whose work, queued before its free, may still touch it, and Alloc
// makes the stream that it allocates for wait for those: the dependencies of the memory (mem/internal/reuse). So placement does not depend on
// streams. Free makes no driver call, nor does Alloc where no other stream used the memory. A stream that is closed has done
// its work. Where a wait cannot be had, because a stream captures a graph, Alloc takes the next block that fits.
//
// The safe frontier is for who knows more than streams: it bounds which blocks a request takes (Options.FreedBefore). It
// replaces no wait.
//
// A captured graph has addresses in it. Whoever launches one keeps the blocks that it uses live.
//
// # Locks
//
// One, over everything, held while the device works, as in TensorFlow: then those inside the device. It is not held while a
// request waits for memory, nor while Options.FreedBefore and Config.Retry run.
//
// # What differs from TensorFlow
//
// Where the device refuses ever smaller segments, the last that is asked for is as large as the request, and then it ends:
// there up to a tenth is never asked for, and below 2.5 KiB rounding keeps the asking from ending. The size of segments stops
// doubling at the limit; there it overflows after 64. The rest of a stamped block that was cut, and what stamped blocks
// became by force, merge later; there they do not. A request over the limit waits for nobody. Settings that cannot be read
// are errors.
//
// It has no partition by size at two ends of a region, and does not move blocks.
package bfc

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
	"github.com/ashlar-go/ashlar/mem/internal/waiting"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// An Allocator keeps segments of a device's memory and allocates blocks of them. Safe for concurrent use.
type Allocator struct {
	dev      driver.Device
	cfg      Config
	limitSet bool  // the caller chose the limit; else it is what the device had free
	waste    int64 // bytes at the end of a block that are always cut off

	mu          sync.Mutex // guards what follows
	closed      bool
	blocks      []block // [0] stands for no block
	unused      []ref
	bins        bins
	segments    []segment // by address
	pages       *pages    // where segments come from, with Config.Virtual; else nil, and the device's Alloc
	nextSegment int64     // bytes of the next segment
	streams     *reuse.Streams
	timed       []ref  // free blocks whose stamps the frontier has not passed, in the order of their frees, and others
	frontier    uint64 // see SetSafeFrontier
	merged      uint64 // the frontier that timed was last held against
	refused     int64  // bytes, rounded, of the last request that failed; 0: none

	stats    mem.Stats // the large pool's are those of all: see Stats
	observer mem.Observer
	metadata func(string)

	gate waiting.Gate // where requests wait for memory; it has a lock of its own
}

// New makes an allocator of dev's memory, which takes Config.Initial, and else none before the first request. The error says
// what is wrong with cfg, or matches mem.ErrNoMemory if the device has no room for that, or is the driver's.
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

// Alloc implements mem.Allocator: the smallest free block that fits, for which s waits for other streams that used the
// memory, or a block of a new segment. The error is a *mem.OutOfMemory if there is no room, with Config.Retry only after
// waiting for some, and the driver's if a wait failed, or a segment was refused for another reason than want of memory.
func (a *Allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.serve(request{stream: s, requested: size}, a.cfg.Retry)
}

const tooLarge = 1 << 60 // bytes: no device has so many

// serve is Alloc. With patience, if not nil, it waits for memory.
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
		a.describeProcesses(err)
	}
	return b, err
}

// errNoRoom is the answer to a tentative attempt.
var errNoRoom = errors.New("bfc: no room")

// tryAlloc asks once. If there is no room and it is tentative, nothing is counted or told, and the error is errNoRoom.
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

// allocWaiting asks again whenever memory came back, and a last time when the context ends.
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

// Free implements mem.Allocator. It makes no driver call, but where a stream has the number of one that is closed. It panics
// if b is not a live block of this allocator.
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
	a.countFree(r)
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

// sets visits every set of streams that the allocator has.
func (a *Allocator) sets(yield func(reuse.Set) bool) {
	for i := range a.blocks {
		if !yield(a.blocks[i].deps.Users) {
			return
		}
	}
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }
