// Package arena keeps device memory in one region and moves blocks within it, so that free memory can always become one
// hole.
//
// It is BMEngine's memory manager, the one that runs inference on every byte of a GPU: first fit in the order of addresses,
// defragmentation, weights that are frozen at the front, child arenas cut from the end. What stood in its way there is
// done otherwise: see "What differs" below.
//
// # Structure
//
// The region (internal/region) is got once: by one Device.Alloc, or as addresses that pages are mapped to as the front of
// the region grows. Offsets from its start are what this package calculates with. A record (block.go) stands for each
// block; its number and generation are the block's tag. The free spans are a fit.FirstFit, the holes.
//
//	free       in a hole
//	live       live, and in Arena.order: it may have a holder, who lets it be moved
//	frozen     live, in no order: not looked at again, never moved
//	child      live to a child arena: it stays where it is
//
//	live, frozen and child blocks and the holes tile [lo, hi); no two holes touch
//
// A block moves only if mem.Movable was called for it and its holder, asked each time, says yes. All other blocks are
// obstacles that the rest slides around.
//
// # Streams
//
// Memory is allocated in stream order, and across streams at once: a hole has the set of streams whose work, queued
// before its free, may still touch it, and Alloc makes the stream that it allocates for wait for those: its past
// (mem/internal/reuse). Free makes no driver call, nor does Alloc where no other stream used the memory. A stream that is
// closed has done its work. Where a wait cannot be had, because a stream captures a graph, Alloc takes another hole; if there
// is none it returns the driver's error, and nothing has changed.
//
// Compact moves in stream order too, and waits for nothing (but with large pages: see there): the stream that moves waits
// for all that use the blocks and the holes, and whoever uses them later waits for it: the holders, told by EndMove, for the
// blocks, Alloc for the holes.
//
// # Graphs
//
// A captured graph has addresses in it, and an arena does not know whose. Whoever launches one keeps the blocks that it uses
// still, as package tensor does of itself, and live: what was freed during the capture, scratch of operations as well, is
// allocated again, and a launch writes there all the same. So a capture gets its memory from a child that is pinned
// (Pin) and closed after the graph. While a stream captures, a compaction that would have to wait for it fails.
//
// # Locks
//
// An Arena's mutex, then a holder's own, then the region's, then those inside the device. Holders are called under the
// arena's mutex, and every BeginMove that said yes is followed by one EndMove before it is unlocked, whatever the device says, and
// though another holder panics. A child has a mutex of its own, and never holds it together with its parent's.
//
// # What differs from BMEngine
//
// A child is cut from a hole, never from under live blocks. A limit bounds the live bytes, and what moving needs lies
// beside the region, so neither shrinks the other. Compaction runs under the lock. Holds count, so they nest. A block is freed
// by its tag, not by its address among others. Moving by copies needs no synchronisation.
//
// It keeps no separate pools of sizes and does not grow its addresses.
package arena

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/fit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// An Arena is one region of a device's memory, or a child's part of one. Safe for concurrent use.
type Arena struct {
	dev       driver.Device
	cfg       Config
	region    *sharedRegion // shared with children
	lo, hi    int64         // its part of the region
	parent    *Arena        // nil of a region's owner
	index     uint32        // of a child: its record in the parent
	from      mem.Allocator // whose block the region is; nil if the region is the device's
	fromBlock mem.Block     // that block
	sizeSet   bool          // the caller chose the size; else it is what the device had free

	mu      sync.Mutex // guards what follows
	closed  bool       // hands nothing out any more
	holes   *fit.FirstFit[reuse.Dependencies]
	blocks  []block
	unused  []uint32 // records that stand for no block
	order   []uint32 // records of live blocks and children; in the order of their addresses after plan alone
	streams *reuse.Streams
	limit   int64 // live bytes at most; 0: none
	pins    int
	stats   mem.Stats // the large pool's are those of all: see Stats
	moves   MoveStats
	backed  int64 // with pages: what is below has memory behind it
	gaps    []gap // scratch of plan
}

// New makes an arena of dev's memory, which Close gives back. The error says what is wrong with cfg, or matches
// mem.ErrNoMemory if the device has no room for the region, or is the driver's.
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

// Alloc implements mem.Allocator: the lowest hole that fits, in which s waits for other streams that used the memory, or
// while one of those captures a graph the next that fits. If the free memory would do but no hole does, blocks are moved
// together first, on s. The error is a *mem.OutOfMemory if there is no room, and the driver's if a wait or a move failed;
// then nothing was allocated.
func (a *Arena) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With NoRetry no blocks are moved to make room.
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

// takeUsable takes memory from the lowest hole in which s may wait for what is to be waited for: where a stream captures a graph
// that may be another than the lowest that fits.
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
		a.holes.Give(f.at, f.size, f.deps) // as it was
		if !errors.Is(err, driver.ErrCapturing) {
			return taken{}, err
		}
		refused = err
		hole, p, _ := a.holes.Find(f.at)
		a.holes.TakeAt(hole.At, hole.Size)
		passed = append(passed, gap{hole, p})
	}
}

// A taken is memory out of a hole.
type taken struct {
	at, size int64
	deps     reuse.Dependencies
}

// take takes size bytes, rounded up, from a hole, as take chooses it, with memory behind it. What has to be moved for that
// is moved on s, unless the request is not to be retried.
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

// Free implements mem.Allocator. It makes no driver call, but where a stream has the number of one that is closed. It panics
// if b is not a live block of this arena as it was last told: a block that was moved is freed as its holder was told by EndMove.
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

// sets visits every set of streams that the arena has.
func (a *Arena) sets(yield func(reuse.Set) bool) {
	for _, p := range a.holes.All() {
		if !yield(p.Users) {
			return
		}
	}
	for i := range a.blocks { // of one stream each
		if r := &a.blocks[i]; !yield(r.origin) || !yield(r.mover) {
			return
		}
	}
}

// freeBlock makes a hole of a block that these streams may still use.
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
