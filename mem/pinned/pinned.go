// Package pinned is PyTorch's caching allocator of page-locked host memory.
//
// Page-locking is slow (0.3 s for 1 GiB), and unlocking waits for the whole device, so an [Allocator] caches freed
// blocks. It rounds sizes up to powers of two, and never splits blocks. Asynchronous copies need page-locked memory;
// call [Allocator.RecordStream] after queuing one, so that the block is not reused before the copy is done. [Mem]
// returns a mem.Allocator of the memory, and [Arrow] an allocator for Apache Arrow. All types are safe for concurrent
// use. The policy is that of PyTorch's aten/src/ATen/core/CachingHostAllocator.h as of 2026, except:
//
//   - Requests that are not rounded to a power of two are rounded to 4 KiB, and a request is rounded up only if the
//     result is small enough to be cached.
//   - Peaks are exact.
//   - A request without room is repeated once the cache is empty.
//   - After EmptyCache has found all of the reserved segment unused, blocks are cut from its start again.
//   - A free cannot fail: see [Allocator.Err].
//   - If several scopes match, the last begun wins, as for device memory. In PyTorch the first wins.
//   - Blocks that a capture used are reused once its pool's graphs are destroyed, or after ReleaseCaptured. PyTorch
//     never reuses them.
package pinned

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/internal/slots"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/poolscope"
)

// Structure:
//
// A piece is memory that the driver allocated in one call, or a part of the reserved segment. It is in one of these
// states:
//
//	live      allocated; RecordStream notes the streams that use it
//	pending   freed, but a stream that was recorded has not reached the mark taken at Free
//	captured  freed, but a captured graph may read or write it whenever it is launched; see ReleaseCaptured
//	cached    in its pool's list of its bucket, the logarithm of its size
//	returning being freed to the driver
//	returned  freed to the driver
//
// Pieces belong to pools: the default one, and private ones for captured graphs (BeginAllocateToPool) or for a user
// (NewPool). A piece that is cached serves requests to its pool alone. A private pool is forgotten once it has neither
// users nor pieces, and no request is on its way to it.
//
// The tag of a block finds its piece in the table active from Alloc until the piece is cached or freed to the driver,
// so a stale block is recognised without a map. The list of a bucket is ordered by size. Below the rounding threshold
// all its blocks are equally large; above it the smallest that fits is taken. All pieces but those returning or
// returned are in byAddress, which Find searches.
//
// Frees that wait are in one list for each stream, oldest first, so a busy stream delays only pieces that it uses
// itself. Each Alloc checks the lists or, with Config.BackgroundThreads, a goroutine that runs as long as a free waits.
//
// Locks:
//
// Each may be taken while those before it are held: closing (Close), waiting (the lists of frees that wait), mu (the
// rest). A warm Alloc, or a warm Free of a block without recorded streams, takes only mu, makes no driver call and no
// heap allocation. Marks are taken and queried under waiting, which does not block. Slow driver calls (AllocHost,
// FreeHost, Register, Unregister, Sync) run without a lock, except in Close. Filters of scopes run under mu.

// ErrClosed is returned by calls on a closed allocator.
var ErrClosed = errors.New("pinned: the allocator is closed")

// ErrNotLive means that a block, or the block at an address, is not live in this allocator.
var ErrNotLive = errors.New("pinned: not a live block of this allocator")

// An Allocator caches page-locked host memory of one device. It is safe for concurrent use.
type Allocator struct {
	cfg    Config
	pinned driver.Pinned
	graphs driver.Graphs // nil if the device has no graphs
	stream driver.Stream // stream of requests that name none

	closing sync.Mutex
	stop    chan struct{} // closed by Close
	poller  sync.WaitGroup

	waiting struct {
		sync.Mutex
		lists   []*waitList
		polling bool // the goroutine runs
	}
	busy atomic.Bool // a free waits

	mu          sync.Mutex
	closed      bool
	defaultPool pool
	private     map[mem.PoolID]*pool
	scopes      poolscope.Scopes[*pool]
	active      slots.Table[*piece] // live, pending and captured ones, by the tags of their blocks
	byAddress   []*piece
	byStart     map[uintptr]*piece // the same, by their first addresses
	reserve     reserve
	stats       Stats // except BucketAllocation
	buckets     [maxBits + 1]BucketStats
	failed      error // the first driver error that no call has returned yet
}

// New returns an allocator of page-locked memory of dev. The error matches driver.ErrUnsupported if dev has no such
// memory; otherwise it names the invalid setting, or is an error of the driver for the reserved segment.
func New(dev driver.Device, cfg Config) (*Allocator, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		cfg: cfg, pinned: dev.Pinned(), graphs: dev.Graphs(), stream: dev.DefaultStream(), stop: make(chan struct{}),
		private: map[mem.PoolID]*pool{}, byStart: map[uintptr]*piece{},
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

// Alloc returns a block of page-locked memory of size bytes, with undefined contents. A size of zero returns the zero
// Block and changes nothing; a negative size panics. The error matches mem.ErrNoMemory if there is no room even with an
// empty cache, and ErrClosed after Close.
func (a *Allocator) Alloc(size int64) (mem.Block, error) { return a.alloc(request{size: size}) }

// AllocOn is Alloc for work on s, with options. The stream and the options' Key decide which private pool serves the
// request if scopes are open (BeginAllocateToPool, Pool.Begin); the block is not recorded for s. With NoRetry it does
// not wait for frees, and does not free cached blocks.
func (a *Allocator) AllocOn(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	check.Stream("pinned: AllocOn", s)
	poolscope.CheckKey("pinned: AllocOn", o.Key)
	size, o = o.Rounded(size)
	return a.alloc(request{size: size, noRetry: o.NoRetry, stream: s, key: o.Key})
}

// A request is a call of Alloc.
type request struct {
	size    int64
	rounded int64
	noRetry bool          // do not wait and do not free cached blocks
	stream  driver.Stream // for scopes; nil: Allocator.stream
	key     any           // for scopes
	fixed   *pool         // the pool to use; nil: that of the open scopes
	pool    *pool         // set when it is known
	counted bool          // in pool.blocks
}

func (a *Allocator) alloc(r request) (mem.Block, error) {
	if r.size <= 0 {
		if r.size < 0 {
			panic(fmt.Sprintf("pinned: Alloc of %d bytes", r.size))
		}
		return mem.Block{}, nil
	}
	if r.size > 1<<maxBits {
		return mem.Block{}, fmt.Errorf("pinned: Alloc of %d bytes: %w: no device reaches so many", r.size,
			mem.ErrNoMemory)
	}
	r.rounded = a.cfg.round(r.size)
	if r.stream == nil {
		r.stream = a.stream
	}
	b, err := a.serve(&r)
	if a.cfg.WipeBetweenKeys && err == nil && b.Tag != 0 {
		a.wipe(b, r.key)
	}
	if r.counted {
		a.mu.Lock()
		r.pool.blocks--
		a.forget(r.pool)
		a.mu.Unlock()
	}
	return b, err
}

func (a *Allocator) serve(r *request) (mem.Block, error) {
	if a.busy.Load() && !a.cfg.BackgroundThreads {
		a.reclaimFinished()
	}
	if b, err := a.reuse(r); b.Tag != 0 || err != nil {
		return b, err
	}
	if a.busy.Load() && a.cfg.BackgroundThreads {
		a.reclaimFinished()
		if b, err := a.reuse(r); b.Tag != 0 || err != nil {
			return b, err
		}
	}
	return a.grow(r)
}

// reuse allocates a cached block or a new part of the reserved segment. It returns the zero Block if there is none.
func (a *Allocator) reuse(r *request) (_ mem.Block, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return mem.Block{}, ErrClosed
	}
	if r.pool == nil {
		if r.pool, err = a.poolFor(r); err != nil {
			return mem.Block{}, err
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
	return mem.Block{}, nil
}

// markAllocated makes a piece live that is in no list. The caller holds mu.
func (a *Allocator) markAllocated(r *piece, size int64) mem.Block {
	tag, entry := a.active.Add()
	*entry, r.tag = r, tag
	r.state = live
	r.requested = size
	a.countActive(r, 1)
	a.stats.LargestAlloc = max(a.stats.LargestAlloc, r.size())
	a.checkInvariants()
	return r.block()
}

// Free frees b. Work queued before this call on the streams that were recorded for b may still use it. Freeing the zero
// Block is a no-op. Free panics if b is not a live block of this allocator. It takes a mark on each recorded stream,
// and frees a block that is too large to be cached to the device; Err returns errors of both.
func (a *Allocator) Free(b mem.Block) {
	if b == (mem.Block{}) {
		return
	}
	a.mu.Lock()
	r := a.live(b)
	if r == nil {
		a.mu.Unlock()
		panic(fmt.Sprintf("pinned: Free of a block that is not live (%d bytes at %#x): "+
			"it was freed already, or another allocator made it", b.Size, uint64(b.Ptr)))
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

// retire caches or keeps a freed piece that no stream uses, and reports whether it must be freed to the driver
// instead. The caller holds mu.
func (a *Allocator) retire(r *piece) (leaves bool) {
	if r.captured {
		r.state = captured
		return false
	}
	a.active.Remove(r.tag)
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

// cache adds a piece to its bucket's list. The caller holds mu.
func (a *Allocator) cache(r *piece) {
	r.state = cached
	r.pool.buckets[bucket(r.size())].put(r)
}

// Err returns the first driver error since the last call of Err that no other call could return: of a mark that Free
// could not take (the block waits until it can), of asking whether a mark is reached, or of freeing a block that is too
// large to be cached (it is cached nonetheless). With Config.FreeCatchAll it returns nil.
func (a *Allocator) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.failed
	a.failed = nil
	return err
}

// recordError keeps an error for Err.
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

// checkInvariants checks the invariants under the build tag invariants. The caller holds mu.
func (a *Allocator) checkInvariants() {
	if invariants.Enabled {
		invariants.Check(a.check)
	}
}
