// Package pinned is PyTorch's caching allocator for page-locked host memory.
//
// Page-locking is slow (0.3 s for 1 GiB) and unlocking waits for the whole device, so blocks that were freed are kept
// for reuse. Sizes are rounded up to powers of two, and blocks are never split. The policy is that of PyTorch's
// aten/src/ATen/core/CachingHostAllocator.h as of 2026.
//
// # Structure
//
// A record is one piece of memory: what the driver gave in one call, or a part of the reserved segment. It is in one of
// these states:
//
//	live      live; Record notes the streams that use it
//	pending   freed, but a stream that was recorded has not reached the mark taken at Free
//	kept      freed, but a captured graph may read or write it whenever it is launched; see ReleaseCaptured
//	cached    on its pool's shelf of its bucket, the logarithm of its size
//	leaving   being given back to the driver
//	gone      given back; only stale Blocks still point to it
//
// Records belong to pools: the default one, and private ones for captured graphs (BeginAllocateToPool) or for a user
// (NewPool). A record that is cached serves requests to its pool alone. A private pool is forgotten once it has neither
// users nor records, and no request is on its way to it.
//
// A Block points to its record and carries the record's generation, which each loan raises: a stale Block is recognised
// without a map. A shelf is ordered by size. Below the rounding threshold all its blocks are equally large; above it
// the smallest that fits is taken. All records but those leaving or gone are in byAddress, which Find searches.
//
// Frees that wait are in one list for each stream, oldest first: a stream that is busy holds up nothing but what it
// uses itself. They are looked at by each Alloc or, with Config.BackgroundThreads, by a goroutine that runs as long as
// something waits.
//
// # Locks
//
// Each may be taken while those before it are held: closing (Close), waiting (the lists of frees that wait), mu (the
// rest). A warm Alloc or Free of a block that no stream was recorded for takes mu alone, makes no driver call and no
// heap allocation. Under waiting the driver is asked for marks, which does not block. Everything slow in the driver
// (AllocHost, FreeHost, Register, Unregister, Sync) runs without a lock, but for Close. Filters of scopes run under mu.
//
// # What differs from PyTorch
//
// Requests that are not rounded to a power of two are rounded to 4 KiB. A request is only rounded up if the result is
// small enough to be cached. Peaks are exact. Memory that runs out is asked for again once the cache is empty. The
// reserved segment is cut anew after EmptyCache found all of it unused. A free cannot fail: see Err. Of several scopes
// that catch a request the last begun wins, as for a device's memory; PyTorch takes the first. What a capture used
// comes back once its pool's graphs are gone, or with ReleaseCaptured; PyTorch never reuses it.
//
// It takes memory of one NUMA node at most (Config.Node), does not split or merge blocks, and does not copy.
package pinned

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// ErrClosed is returned by calls on a closed allocator.
var ErrClosed = errors.New("pinned: the allocator is closed")

// ErrNotLive means that a block, or the block behind an address, is not live from this allocator.
var ErrNotLive = errors.New("pinned: not a live block of this allocator")

// An Allocator caches page-locked host memory of one device. Safe for concurrent use.
type Allocator struct {
	cfg    Config
	pinned driver.Pinned
	graphs driver.Graphs // nil if the device captures nothing
	stream driver.Stream // of requests that name none

	closing sync.Mutex
	stop    chan struct{} // closed by Close
	poller  sync.WaitGroup

	waiting struct {
		sync.Mutex
		lists   []*waitList
		polling bool // the goroutine runs
	}
	busy atomic.Bool // something waits

	mu          sync.Mutex
	closed      bool
	defaultPool pool
	private     map[mem.PoolID]*pool
	scopes      poolscope.Scopes[*pool]
	byAddress   []*piece
	reserve     reserve
	stats       Stats // but for BucketAllocation
	buckets     [maxBits + 1]BucketStats
	failed      error // the first driver error that no call has returned yet
}

// New returns an allocator of page-locked memory of dev. The error matches driver.ErrUnsupported if dev has no such
// memory; otherwise it says which setting is out of its range, or why the reserved segment could not be had.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		cfg: cfg, pinned: dev.Pinned(), graphs: dev.Graphs(), stream: dev.DefaultStream(), stop: make(chan struct{}),
		private: map[mem.PoolID]*pool{},
	}
	if a.pinned == nil {
		return nil, &driver.Error{
			Call: "Pinned", Code: driver.ErrUnsupported,
			Detail: dev.Info().Name + " cannot copy from page-locked host memory",
		}
	}
	if size := cfg.ReserveSegment; size > 0 {
		if a.reserve.segment, err = a.obtain(size); err != nil {
			return nil, fmt.Errorf("pinned: reserve a segment of %d bytes: %w", size, err)
		}
	}
	return a, nil
}

// Alloc returns a block of page-locked memory whose Bytes are size long, with undefined contents. A size of zero gives
// the zero Block and changes nothing; a negative size panics. The error matches mem.ErrNoMemory if there is no room,
// even with the cache given back, and ErrClosed after Close.
func (a *Allocator) Alloc(size int64) (Block, error) { return a.alloc(request{size: size}) }

// AllocOn is Alloc for a caller who works on s, with options. The stream and the options' Key decide which private pool
// serves the request if scopes are open (BeginAllocateToPool, Pool.Begin); the block is not recorded for s. With
// NoRetry it waits for no frees, and nothing cached is given back.
func (a *Allocator) AllocOn(s driver.Stream, size int64, o mem.AllocOptions) (Block, error) {
	check.Stream("pinned: AllocOn", s)
	poolscope.CheckKey("pinned: AllocOn", o.Key)
	size, o = o.Rounded(size)
	return a.alloc(request{size: size, noRetry: o.NoRetry, stream: s, key: o.Key})
}

// A request is a call of Alloc.
type request struct {
	size    int64
	rounded int64
	noRetry bool          // it waits for nothing and gives nothing back
	stream  driver.Stream // for scopes; nil: Allocator.stream
	key     any           // for scopes
	fixed   *pool         // whatever scopes are open; nil: to the pool that they say
	pool    *pool         // once it is known
	counted bool          // in pool.blocks
}

func (a *Allocator) alloc(r request) (Block, error) {
	if r.size <= 0 {
		if r.size < 0 {
			panic(fmt.Sprintf("pinned: Alloc of %d bytes", r.size))
		}
		return Block{}, nil
	}
	if r.size > 1<<maxBits {
		return Block{}, fmt.Errorf("pinned: Alloc of %d bytes: %w: no device reaches so many", r.size, mem.ErrNoMemory)
	}
	r.rounded = a.cfg.round(r.size)
	if r.stream == nil {
		r.stream = a.stream
	}
	b, err := a.serve(&r)
	if r.counted {
		a.mu.Lock()
		r.pool.blocks--
		a.forget(r.pool)
		a.mu.Unlock()
	}
	return b, err
}

func (a *Allocator) serve(r *request) (Block, error) {
	if a.busy.Load() && !a.cfg.BackgroundThreads {
		a.reclaimFinished()
	}
	if b, err := a.reuse(r); b.rec != nil || err != nil {
		return b, err
	}
	if a.busy.Load() && a.cfg.BackgroundThreads {
		a.reclaimFinished()
		if b, err := a.reuse(r); b.rec != nil || err != nil {
			return b, err
		}
	}
	return a.grow(r)
}

// reuse lends a cached block or a new part of the reserved segment. The zero Block means that there is none.
func (a *Allocator) reuse(r *request) (_ Block, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return Block{}, ErrClosed
	}
	if r.pool == nil {
		if r.pool, err = a.poolFor(r); err != nil {
			return Block{}, err
		}
	}
	rec := r.pool.buckets[bucket(r.rounded)].take(r.rounded)
	if rec == nil {
		rec = a.cut(r)
	}
	if rec != nil {
		return a.markAllocated(rec, r.size), nil
	}
	if !r.counted {
		r.pool.blocks++
		r.counted = true
	}
	return Block{}, nil
}

// lend allocates a record that is on no shelf. The caller holds mu.
func (a *Allocator) markAllocated(r *piece, size int64) Block {
	r.generation++
	r.state = live
	r.requested = size
	a.countActive(r, 1)
	a.stats.LargestAlloc = max(a.stats.LargestAlloc, r.size())
	a.checkInvariants()
	return r.block()
}

// Free takes b back. Work queued before this call on the streams that were recorded for b may still touch it; the
// caller must not. Freeing the zero Block does nothing. Free panics if b is not a live block of this allocator. It
// takes a mark on each recorded stream, and gives a block that is too large to be cached back to the device; for what
// fails in either, see Err.
func (a *Allocator) Free(b Block) {
	r := b.rec
	if r == nil {
		return
	}
	a.mu.Lock()
	if !a.isLive(b) {
		a.mu.Unlock()
		panic(fmt.Sprintf("pinned: Free of a block that is not live (%d bytes at %#x): "+
			"it was freed already, or another allocator made it", b.Size(), address(b.bytes)))
	}
	if len(r.uses) > 0 {
		r.state = pending
		a.mu.Unlock()
		a.addWaits(r)
		return
	}
	leaves := a.retire(r)
	a.mu.Unlock()
	if leaves {
		a.recordError(a.giveBack(r))
	}
}

// retire puts a freed record, which no stream uses any more, where it belongs, and reports whether that is the driver.
// The caller holds mu.
func (a *Allocator) retire(r *piece) (leaves bool) {
	if r.captured {
		r.state = captured
		return false
	}
	a.countActive(r, -1)
	if r.size() > a.cfg.maxCached() && !r.pool.inGraphs() {
		a.remove(r)
		a.checkInvariants()
		return true
	}
	a.cache(r)
	a.checkInvariants()
	return false
}

// cache puts a record on its shelf. The caller holds mu.
func (a *Allocator) cache(r *piece) {
	r.state = cached
	r.pool.buckets[bucket(r.size())].put(r)
}

// Err returns the first error of the driver that no call could return since Err was called last: of a mark that Free
// could not take (the block waits until it can be), of asking whether it is reached, or of giving back a block that is
// too large to be cached (it is cached nonetheless). With Config.FreeCatchAll there is none.
func (a *Allocator) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.failed
	a.failed = nil
	return err
}

// note keeps an error for Err.
func (a *Allocator) recordError(err error) {
	if err == nil || a.cfg.FreeCatchAll {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = err
	}
}

// verify checks the invariants in builds that do. The caller holds mu.
func (a *Allocator) checkInvariants() {
	if invariants.Enabled {
		invariants.Check(a.check)
	}
}
