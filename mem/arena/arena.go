// Package arena keeps device memory in one region and moves blocks within it, so that free memory can always become
// one hole. It is BMEngine's memory manager, which runs inference on nearly every byte of a GPU: first fit in address
// order, defragmentation, weights that are frozen at the front, and child arenas cut from the end.
//
// Make an arena with New, or with NewFrom in a block of another allocator; ParseConfig reads its settings from text.
// An Arena is safe for concurrent use. Sizes are bytes. A block moves only if mem.Movable was called for it and its
// holder, asked each time, agrees. Memory is allocated in stream order and across streams: Alloc makes its stream wait
// for other streams that used the memory. If a stream to wait for captures a graph, Alloc takes another hole; if there
// is none it returns the driver's error, and nothing has changed. Errors begin with "arena:"; a request for which
// there is no room returns a *mem.OutOfMemory.
//
// A captured graph contains addresses. The caller that launches it must keep its blocks pinned and live, as package
// tensor does; this includes blocks freed during the capture, which a launch still writes. So capture with a child
// arena that is pinned (Pin), and close the child after the graph. While a stream captures, a compaction that would
// have to wait for it fails.
//
// The arena differs from BMEngine: a child is cut from a hole, never from under live blocks; a limit bounds the live
// bytes, and the memory that moving needs is beside the region, so neither shrinks the other; compaction runs under the
// lock; several pins may be held at once; a block is freed by its tag; and moving by copies needs no synchronization.
// It has no separate pools for sizes and does not grow its address range.
package arena

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/fit"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// # Structure
//
// The region (internal/region) is allocated once: by one Device.Alloc, or as addresses that pages are mapped to as the
// front of the region fills. This package computes with offsets from its start. A block has an entry in Arena.blocks;
// its index and generation are the block's tag. The free spans are a fit.FirstFit, the holes.
//
//	free       in a hole
//	live       allocated, and in Arena.order: it may have a holder, who permits moves
//	frozen     allocated, not in order: skipped by compactions
//	child      allocated to a child arena: it does not move
//
//	live, frozen and child blocks and the holes cover [lo, hi); no two holes touch
//
// Blocks that do not move are obstacles; the others slide around them.
//
// # Streams
//
// A hole keeps dependencies (mem/internal/reuse): the streams whose work, queued before its free, may still access it.
// Neither Free nor an Alloc of memory that no other stream used makes a driver call. A closed stream has done its
// work.
//
// Compact moves in stream order too, and the host does not wait (except with large pages: see Compact). The stream that
// moves waits for all users of the blocks and holes, and later users wait for it: the holders of the blocks, informed
// by EndMove, and Alloc for the holes.
//
// # Locks
//
// An Arena's mutex, then a holder's own, then the region's, then those inside the device. Holders are called under the
// arena's mutex. Every BeginMove that agreed is followed by one EndMove before the mutex is unlocked, even if the
// device fails or another holder panics. A child has a mutex of its own, and never holds it together with its
// parent's.

// An Arena is a region of a device's memory, or a child's part of one. It is safe for concurrent use.
type Arena struct {
	dev       driver.Device
	cfg       Config
	region    *sharedRegion // shared with children
	lo, hi    int64         // its part of the region
	parent    *Arena        // nil for the owner of a region
	index     uint32        // of a child: index of its block in the parent
	from      mem.Allocator // the allocator of the region's block; nil if the region is the device's memory
	fromBlock mem.Block     // that block
	sizeSet   bool          // the caller chose the size; otherwise it is the device's free memory

	mu      sync.Mutex // guards the fields below
	closed  bool       // every Alloc fails
	holes   *fit.FirstFit[reuse.Dependencies]
	blocks  []block
	unused  []uint32 // indices of unused entries of blocks
	order   []uint32 // indices of live blocks and children; sorted by address only after plan
	streams *reuse.Streams
	limit   int64 // maximum of live bytes; 0: no limit
	pins    int
	stats   mem.Stats // the large pool holds the sums of all: see Stats
	moves   MoveStats
	backed  int64 // with pages: offset below which memory is mapped
	gaps    []gap // scratch space of plan
}

// New makes an arena of dev's memory, which Close frees. The error names the wrong setting, matches mem.ErrNoMemory if
// the device has no room for the region, or is an error of the driver.
func New(dev driver.Device, cfg Config) (*Arena, error) {
	chosen := cfg.Size > 0
	cfg, err := cfg.complete(dev)
	if err != nil {
		return nil, err
	}
	g, err := openRegion(dev, cfg)
	if err != nil {
		return nil, err
	}
	a := newArena(dev, cfg, g, 0, g.size()/cfg.Round*cfg.Round)
	a.sizeSet = chosen
	a.begin()
	return a, nil
}

// newArena makes an arena of part of a region, all of it free. Its caller calls begin.
func newArena(dev driver.Device, cfg Config, g *sharedRegion, lo, hi int64) *Arena {
	a := &Arena{dev: dev, cfg: cfg, region: g, lo: lo, hi: hi, limit: cfg.Limit, streams: reuse.New(dev, "arena")}
	a.holes = fit.NewFirstFit(1, a.streams.Merge) // all offsets and sizes are multiples of Round
	a.holes.Give(lo, hi-lo, reuse.Dependencies{})
	return a
}

// Alloc implements mem.Allocator. It takes the lowest hole that fits, in which s waits for other streams that used the
// memory; if one of those captures a graph, it takes the next hole that fits. If the free memory suffices but no hole
// does, it first compacts, on s. The error is a *mem.OutOfMemory if there is no room, and the driver's if a wait or a
// move failed; then nothing has been allocated.
func (a *Arena) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry it does not compact.
func (a *Arena) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("arena: Alloc", s)
	size, o = o.Rounded(size)
	switch {
	case size < 0:
		panic(fmt.Sprintf("arena: Alloc of %d bytes", size))
	case size == 0:
		return mem.Block{}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b, err := a.alloc(s, size, o)
	a.verify()
	return b, err
}

const tooLarge = 1 << 60 // bytes: no device has so many

func (a *Arena) alloc(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if a.closed {
		return mem.Block{}, closedError("Alloc")
	}
	f, err := a.takeUsable(s, size, o)
	if err != nil {
		return mem.Block{}, err
	}
	i := a.addBlock(block{at: f.at, size: f.size, requested: size, state: live, origin: a.streams.Register(s)})
	return a.handle(i), nil
}

// takeUsable takes memory from the lowest hole for which s can wait for the users. Holes whose users capture are set
// aside, and returned at the end.
func (a *Arena) takeUsable(s driver.Stream, size int64, o mem.AllocOptions) (taken, error) {
	var passed []gap
	var refused error
	defer func() {
		for _, g := range passed {
			a.holes.Give(g.At, g.Size, g.deps)
		}
	}()
	for {
		ooms := a.stats.NumOOMs
		f, err := a.take(s, size, o, a.holes.Take)
		if err != nil && refused != nil {
			a.stats.NumOOMs = ooms // there is room
			return taken{}, refused
		}
		if err != nil {
			return taken{}, err
		}
		if err = a.streams.Wait(s, f.deps); err == nil {
			return f, nil
		}
		a.holes.Give(f.at, f.size, f.deps) // unchanged
		if !errors.Is(err, driver.ErrCapturing) {
			return taken{}, err
		}
		refused = err
		hole, p, _ := a.holes.Find(f.at)
		a.holes.TakeAt(hole.At, hole.Size)
		passed = append(passed, gap{hole, p})
	}
}

// A taken is memory taken from a hole.
type taken struct {
	at, size int64
	deps     reuse.Dependencies
}

// take takes size bytes, rounded up, from the hole that take chooses, and gets memory behind it. It compacts on s if
// no hole fits, unless the request has NoRetry.
func (a *Arena) take(
	s driver.Stream, size int64, o mem.AllocOptions, take func(int64) (int64, reuse.Dependencies, bool),
) (taken, error) {
	if size > tooLarge {
		return taken{}, &mem.OutOfMemory{Requested: size, TooLarge: true}
	}
	rounded := roundUp(size, a.cfg.Round)
	short := shortage{stream: s, requested: size, size: rounded, noRetry: o.NoRetry, tentative: o.Tentative}
	if a.limit > 0 && rounded > a.limit-a.stats.AllocatedBytes.All.Current {
		short.limited = true
		return taken{}, a.refuse(short)
	}
	for compacted := false; ; compacted = true {
		at, p, ok := take(rounded)
		if ok {
			if short.cause = a.extend(at + rounded); short.cause == nil {
				return taken{at, rounded, p}, nil
			}
			a.holes.Give(at, rounded, p)
			if !errors.Is(short.cause, driver.ErrNoMemory) {
				return taken{}, short.cause
			}
		}
		moved, err := false, error(nil)
		if !compacted && !o.NoRetry && a.holes.Free() >= rounded {
			moved, err = a.compact(s, rounded)
		}
		switch {
		case err != nil && !refusal(err) && !errors.Is(err, driver.ErrNoMemory):
			return taken{}, fmt.Errorf("arena: make room for %d bytes: %w", size, err)
		case err != nil && short.cause == nil:
			short.cause = err
		}
		if !moved {
			return taken{}, a.refuse(short)
		}
	}
}

// Free implements mem.Allocator. It makes no driver call, unless a stream has the number of a closed one. It panics if
// b is not a live block as last reported: after a move, that is the block that EndMove passed to the holder.
func (a *Arena) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.find("Free", b)
	r := &a.blocks[i]
	users := a.streams.Union(r.origin, r.mover)
	for _, s := range used {
		users = a.streams.Union(users, a.streams.Register(s))
	}
	a.freeBlock(i, users)
	if a.streams.NeedsCollect() {
		a.streams.Collect(a.sets)
	}
	a.verify()
}

// sets visits every set of streams that the arena holds.
func (a *Arena) sets(yield func(reuse.Set) bool) {
	for _, p := range a.holes.All() {
		if !yield(p.Users) {
			return
		}
	}
	for i := range a.blocks { // each set has one stream
		if r := &a.blocks[i]; !yield(r.origin) || !yield(r.mover) {
			return
		}
	}
}

// freeBlock makes a hole of a block that users may still use.
func (a *Arena) freeBlock(i uint32, users reuse.Set) {
	r := &a.blocks[i]
	a.holes.Give(r.at, r.size, a.streams.Freed(users))
	a.removeBlock(i)
}

// Base returns the first address of the arena's part of the region.
func (a *Arena) Base() driver.Pointer { return a.pointer(a.lo) }

// Size returns the bytes of the arena's part of the region: with pages, of its addresses.
func (a *Arena) Size() int64 { return a.hi - a.lo }

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

func closedError(call string) error {
	return &driver.Error{Call: call, Code: driver.ErrClosed, Detail: "the arena is closed"}
}
