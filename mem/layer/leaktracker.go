package layer

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/addrmap"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A LeakTracker knows which blocks allocated through it are live, and which code allocated them. See NewLeakTracker.
type LeakTracker struct {
	Pass
	opts   LeakTrackerOptions
	blocks addrmap.Map[trackedBlock]
	allocs atomic.Uint64
	sites  siteTable

	freedMu sync.Mutex
	freed   []freedBlock // a ring: the last blocks freed
	next    int
}

// LeakTrackerOptions determine how much a LeakTracker records. The zero value is for debugging: it records every call
// with up to 16 frames.
type LeakTrackerOptions struct {
	// Depth is the number of frames kept of a call stack, at most 32. 0 means 16, and a negative value none.
	Depth int
	// Every records the stack of one allocation in so many; 0 means each. Recording is most of the cost of tracking.
	// Other blocks are tracked without a site. With more than 1, frees record no stacks.
	Every int
	// Freed is the number of freed blocks that are remembered, so that the panic of a double free shows the first free.
	// 0 means 1024. A negative value means none; then frees record no stacks.
	Freed int
}

const maxTrackDepth = 32

// A trackedBlock is the data of an address: of a live block, or of one that was freed recently.
type trackedBlock struct {
	block     mem.Block
	requested int64
	number    uint64 // of the allocation, from 1
	stream    driver.StreamID
	site      siteID
	freed     bool
	freeAt    siteID
}

// A freedBlock is a remembered freed block, unless its address has a new block.
type freedBlock struct {
	ptr    driver.Pointer
	number uint64
}

// NewLeakTracker returns an allocator that records which blocks of a are live and where each was allocated: see Live
// and Leaks. Free panics, naming both places, if a block is freed twice, and if a block was changed since Alloc or did
// not come from this tracker; a does not see the call. Blocks allocated from a directly are not tracked.
//
// A call costs a lookup under a sharded lock, the recording of the stack (see LeakTrackerOptions), and, if freed blocks
// are remembered, a short lock that all frees share.
func NewLeakTracker(a mem.Allocator, opts LeakTrackerOptions) *LeakTracker {
	opts.Depth = orDefault(opts.Depth, 16)
	opts.Every = max(1, opts.Every)
	opts.Freed = orDefault(opts.Freed, 1024)
	opts.Depth = min(opts.Depth, maxTrackDepth)
	return &LeakTracker{Pass: Pass{a}, opts: opts, freed: make([]freedBlock, opts.Freed)}
}

// orDefault reads an option of which zero means the default and a negative value none.
func orDefault(n, whenZero int) int {
	if n == 0 {
		return whenZero
	}
	return max(0, n)
}

// Alloc implements mem.Allocator. It panics if the allocator below allocates an address that is live already.
func (t *LeakTracker) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := t.Below.Alloc(s, size)
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	number := t.allocs.Add(1)
	var site siteID
	if t.samples(number) {
		site = t.sites.here(t.opts.Depth)
	}
	t.add(trackedBlock{block: b, requested: size, stream: s.ID(), number: number, site: site}, "returned")
	return b, nil
}

// AllocWith implements mem.OptionsAllocator.
func (t *LeakTracker) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(t.Below, s, size, o)
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	number := t.allocs.Add(1)
	var site siteID
	if t.samples(number) { // not in a shared function: skipping its frame would take a quarter of the time
		site = t.sites.here(t.opts.Depth)
	}
	t.add(trackedBlock{block: b, requested: size, stream: s.ID(), number: number, site: site}, "returned")
	return b, nil
}

// samples reports whether an allocation records its stack.
func (t *LeakTracker) samples(number uint64) bool {
	return t.opts.Depth > 0 && number%uint64(t.opts.Every) == 0
}

// add adds a live block to the table. It panics if the address is live already, which is a bug of the allocator below.
func (t *LeakTracker) add(tb trackedBlock, did string) {
	b := tb.block
	shard := t.blocks.Lock(b.Ptr)
	old, known := shard.At[b.Ptr]
	if known && !old.freed {
		shard.Unlock()
		panic(fmt.Sprintf("layer: LeakTracker: the allocator below %s %s at %#x, where %s is live, allocated at:\n%s",
			did, bytesize.Format(b.Size), uint64(b.Ptr), bytesize.Format(old.block.Size), t.stack(old.site)))
	}
	shard.Put(b.Ptr, tb)
	shard.Unlock()
}

// Free implements mem.Allocator.
func (t *LeakTracker) Free(b mem.Block, used ...driver.Stream) {
	if b.Ptr == 0 {
		t.Below.Free(b, used...)
		return
	}
	check.Used("layer: LeakTracker: Free", used)
	var here siteID
	if t.opts.Depth > 0 && len(t.freed) > 0 && t.opts.Every == 1 {
		here = t.sites.here(t.opts.Depth)
	}
	// Remove the entry before the free: afterwards another goroutine may allocate the address.
	shard := t.blocks.Lock(b.Ptr)
	tb, known := shard.At[b.Ptr]
	if !known || tb.freed || tb.block != b {
		shard.Unlock()
		panic("layer: LeakTracker: " + t.explain(b, tb, known))
	}
	if len(t.freed) > 0 {
		tb.freed, tb.freeAt = true, here
		shard.At[b.Ptr] = tb
	} else {
		delete(shard.At, b.Ptr)
	}
	shard.Unlock()
	t.rememberFreed(freedBlock{b.Ptr, tb.number})
	t.Below.Free(b, used...)
}

// rememberFreed remembers a freed block and forgets the oldest remembered one.
func (t *LeakTracker) rememberFreed(g freedBlock) {
	if len(t.freed) == 0 {
		return
	}
	t.freedMu.Lock()
	oldest := t.freed[t.next]
	t.freed[t.next] = g
	t.next = (t.next + 1) % len(t.freed)
	t.freedMu.Unlock()
	if oldest.number == 0 {
		return
	}
	shard := t.blocks.Lock(oldest.ptr)
	if tb, ok := shard.At[oldest.ptr]; ok && tb.freed && tb.number == oldest.number {
		delete(shard.At, oldest.ptr)
	}
	shard.Unlock()
}

// explain describes the error in freeing b, from the data of its address.
func (t *LeakTracker) explain(b mem.Block, tb trackedBlock, known bool) string {
	at := uint64(b.Ptr)
	switch {
	case !known:
		return fmt.Sprintf("Free of %d bytes at %#x, which is not a block of this tracker, or was freed long ago",
			b.Size, at)
	case tb.freed:
		return fmt.Sprintf("double free of %d bytes at %#x, allocated at:\n%sand first freed at:\n%s",
			tb.block.Size, at, t.stack(tb.site), t.stack(tb.freeAt))
	case tb.block.Size != b.Size:
		return fmt.Sprintf("Free of %d bytes at %#x, where the live block has %d bytes, allocated at:\n%s",
			b.Size, at, tb.block.Size, t.stack(tb.site))
	}
	return fmt.Sprintf("Free of a block at %#x that has been freed: its address is now another block's, allocated "+
		"at:\n%s",
		at, t.stack(tb.site))
}

// Movable implements mem.Mover: the tracker follows the block. It panics if b is not live through it.
func (t *LeakTracker) Movable(b mem.Block, h mem.Holder) bool {
	if b.Ptr == 0 {
		return false
	}
	shard := t.blocks.Lock(b.Ptr)
	tb, known := shard.At[b.Ptr]
	shard.Unlock()
	if !known || tb.freed || tb.block != b {
		panic(fmt.Sprintf("layer: LeakTracker: Movable of %d bytes at %#x, which is not a live block", b.Size,
			uint64(b.Ptr)))
	}
	return mem.Movable(t.Below, b, &trackedHolder{tracker: t, holder: h, block: tb})
}

// A trackedHolder stands between a block's holder and the allocator below, which moves the block, and updates the
// tracker. Between BeginMove and EndMove the entry is here and not in the table, because another block may move to its
// old address before its EndMove. The locks of the calling allocator guard its fields.
type trackedHolder struct {
	tracker *LeakTracker
	holder  mem.Holder
	block   trackedBlock
}

// BeginMove implements mem.Holder.
func (k *trackedHolder) BeginMove() ([]driver.Stream, bool) {
	used, ok := k.holder.BeginMove()
	if !ok {
		return nil, false
	}
	at := k.block.block.Ptr
	shard := k.tracker.blocks.Lock(at)
	tb := shard.At[at]
	live := tb.number == k.block.number && !tb.freed
	if live {
		delete(shard.At, at)
	}
	shard.Unlock()
	if !live { // its Free has begun
		k.holder.EndMove(k.block.block, nil)
		return nil, false
	}
	return used, true
}

// EndMove implements mem.Holder. It updates the table before it calls the holder, and so before any Free.
func (k *trackedHolder) EndMove(b mem.Block, s driver.Stream) {
	k.block.block = b
	k.tracker.add(k.block, "moved")
	k.holder.EndMove(b, s)
}

// A siteID finds a call stack in a siteTable. Zero is no stack.
type siteID uint32

// A siteTable holds call stacks, as program counters, once each.
type siteTable struct {
	mu  sync.RWMutex
	ids map[[maxTrackDepth]uintptr]siteID
	pcs [][maxTrackDepth]uintptr // pcs[id-1]
}

// here returns the stack of the caller's caller, of at most depth frames.
func (t *siteTable) here(depth int) siteID {
	var pcs [maxTrackDepth]uintptr
	runtime.Callers(3, pcs[:depth])
	t.mu.RLock()
	id, ok := t.ids[pcs]
	t.mu.RUnlock()
	if ok {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[pcs]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = make(map[[maxTrackDepth]uintptr]siteID)
	}
	t.pcs = append(t.pcs, pcs)
	id = siteID(len(t.pcs))
	t.ids[pcs] = id
	return id
}

// frames returns the lines of a stack, innermost first, from where the program called Ashlar.
func (t *siteTable) frames(id siteID) []runtime.Frame {
	if id == 0 {
		return nil
	}
	t.mu.RLock()
	pcs := t.pcs[id-1]
	t.mu.RUnlock()
	n := 0
	for n < len(pcs) && pcs[n] != 0 {
		n++
	}
	return callsite.Frames(pcs[:n])
}
