package layer

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A SizeTracker knows the requested size of each live block, and outlives its owner until the last block is freed. See
// NewSizeTracker.
type SizeTracker struct {
	inner mem.Allocator
	opts  SizeTrackerOptions
	blockTable[trackedSize]
	ids     atomic.Uint64
	refs    atomic.Int64
	retired atomic.Bool
	last    sync.Once
	done    func() // set by Retire

	mu    sync.Mutex // a leaf: guards what follows
	usage mem.Usage

	aligned [63]atomic.Pointer[Aligner] // over inner, by the logarithm of the alignment; made on demand
}

// SizeTrackerOptions are options of NewSizeTracker. The zero value is valid.
type SizeTrackerOptions struct {
	// From is the alignment of the allocator below, in bytes, a power of two; 0 means 256, as CUDA has. See AllocRaw.
	From int64
	// Empty makes a request of zero bytes return a block with an address of its own: TensorFlow's
	// ShouldAllocateEmptyTensors. The allocator below is asked for one byte.
	Empty bool
}

type trackedSize struct {
	id   uint64
	from mem.Allocator // the block's allocator: the allocator below, or an Aligner over it
}

// NewSizeTracker returns an allocator that records the requested size of each block of a, numbers the blocks, counts
// their sizes, and serves alignments that a does not. It is TensorFlow's TrackingAllocator. Use NewLeakTracker for call
// stacks. A warm call takes two short locks, of which one is common to all streams.
func NewSizeTracker(a mem.Allocator, opts SizeTrackerOptions) *SizeTracker {
	opts.From = cmp.Or(opts.From, 256)
	if opts.From < 0 || opts.From&(opts.From-1) != 0 {
		panic(fmt.Sprintf("layer: SizeTracker over an alignment of %d bytes: want a power of two", opts.From))
	}
	t := &SizeTracker{inner: a, opts: opts, blockTable: blockTable[trackedSize]{name: "SizeTracker"}}
	t.refs.Store(1)
	return t
}

// Alloc implements mem.Allocator. The error is that of the allocator below. It panics after Retire.
func (t *SizeTracker) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return t.alloc(t.inner, s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (t *SizeTracker) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	return t.alloc(t.inner, s, size, o)
}

// AllocRaw is Alloc of a block that starts at a multiple of alignment bytes, a power of two: TensorFlow's AllocateRaw.
// An alignment up to SizeTrackerOptions.From is that of Alloc. For a larger one the block is cut from a larger block,
// as by an Aligner, and is not moved. An alignment that is not a power of two panics.
func (t *SizeTracker) AllocRaw(s driver.Stream, alignment, size int64, o mem.AllocOptions) (mem.Block, error) {
	if alignment <= 0 || alignment&(alignment-1) != 0 {
		panic(fmt.Sprintf("layer: SizeTracker: AllocRaw at a multiple of %d: want a power of two", alignment))
	}
	if alignment <= t.opts.From {
		return t.alloc(t.inner, s, size, o)
	}
	slot := &t.aligned[bits.TrailingZeros64(uint64(alignment))]
	if slot.Load() == nil {
		slot.CompareAndSwap(nil, NewAligner(t.inner, alignment, AlignerOptions{From: t.opts.From}))
	}
	return t.alloc(slot.Load(), s, size, o)
}

func (t *SizeTracker) alloc(from mem.Allocator, s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	ask := size
	if size == 0 && t.opts.Empty {
		ask = 1
	}
	t.refs.Add(1)
	allocated := false
	defer func() { // the allocator below may panic, too
		if !allocated {
			t.drop()
		}
	}()
	if t.retired.Load() {
		panic(fmt.Sprintf("layer: SizeTracker: Alloc of %d bytes after Retire", size))
	}
	b, err := mem.AllocWith(from, s, ask, o)
	if err != nil || b.Ptr == 0 {
		return mem.Block{}, err
	}
	b = t.add(s.ID(), size, b, b, trackedSize{id: t.ids.Add(1), from: from})
	t.mu.Lock()
	t.usage.Alloc(b.Size)
	t.mu.Unlock()
	allocated = true
	return b, nil
}

// Free implements mem.Allocator.
func (t *SizeTracker) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	rec := t.remove(b, used)
	rec.value.from.Free(rec.below, used...)
	t.mu.Lock()
	t.usage.Free(b.Size)
	t.mu.Unlock()
	t.drop()
}

// drop removes one reference.
func (t *SizeTracker) drop() {
	if t.refs.Add(-1) == 0 {
		t.last.Do(t.done)
	}
}

// RequestedSize implements mem.SizeTracker.
func (t *SizeTracker) RequestedSize(b mem.Block) int64 {
	return t.get("RequestedSize", b).requested
}

// AllocatedSize implements mem.SizeTracker.
func (t *SizeTracker) AllocatedSize(b mem.Block) int64 {
	return t.get("AllocatedSize", b).block.Size
}

// AllocationID implements mem.SizeTracker.
func (t *SizeTracker) AllocationID(b mem.Block) uint64 {
	return t.get("AllocationID", b).value.id
}

// Usage returns the blocks so far, by Block.Size: the total, the high watermark and the live bytes of TensorFlow's
// GetSizes.
func (t *SizeTracker) Usage() mem.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.usage
}

// Retire ends the owner's use: Alloc panics from now on, and live blocks stay valid. Once the last of them is freed, or
// now if there is none, done is called once with the usage. TensorFlow's TrackingAllocator deletes itself at that
// point. done may close the allocator below; it runs on the goroutine of the last Free, without a lock. A nil done is
// ignored. Retiring twice panics.
func (t *SizeTracker) Retire(done func(mem.Usage)) {
	if !t.retired.CompareAndSwap(false, true) {
		panic("layer: SizeTracker: Retire after Retire")
	}
	t.done = func() { // not called before the drop below
		if done != nil {
			done(t.Usage())
		}
	}
	t.drop()
}

// Movable implements mem.Mover. It returns false for blocks that AllocRaw cut from larger ones.
func (t *SizeTracker) Movable(b mem.Block, h mem.Holder) bool {
	return t.movable(b, h, func(s trackedSize) mem.Allocator { return s.from })
}

// Unwrap implements mem.Wrapper. A snapshot found below has the larger, unaligned blocks from which AllocRaw cut.
func (t *SizeTracker) Unwrap() mem.Allocator { return t.inner }

// A SlowSizer is a layer that finds the sizes of its blocks by address. All layers of this package whose blocks differ
// from those of the allocator below are SlowSizers.
type SlowSizer interface {
	mem.Allocator

	// SlowSizes returns the requested size and the size of the live block that starts at p, in bytes. It reports false
	// if no live block of this layer starts at p. It may visit every block. It is safe for concurrent use.
	SlowSizes(p driver.Pointer) (requested, allocated int64, ok bool)
}

// SlowSizes returns the requested and the allocated size, in bytes, of the block of a that starts at p: TensorFlow's
// AllocatedSizeSlow, for callers that have only an address. The topmost layer that is a SlowSizer or a mem.Snapshotter
// answers. It takes time in proportion to the number of blocks. It reports false if there is no such layer, or no live
// block at p.
func SlowSizes(a mem.Allocator, p driver.Pointer) (requested, allocated int64, ok bool) {
	for layer := range mem.Layers(a) {
		switch l := layer.(type) {
		case SlowSizer:
			return l.SlowSizes(p)
		case mem.Snapshotter:
			return sizesIn(l.Snapshot(), p)
		}
	}
	return 0, 0, false
}

// sizesIn finds the live block that starts at p in a snapshot.
func sizesIn(segments []mem.SegmentInfo, p driver.Pointer) (requested, allocated int64, ok bool) {
	for _, seg := range segments {
		if p < seg.Ptr || uint64(p-seg.Ptr) >= uint64(seg.TotalSize) {
			continue
		}
		for _, b := range seg.Blocks {
			if b.Ptr == p && b.State == mem.ActiveAllocated {
				return b.RequestedSize, b.Size, true
			}
		}
	}
	return 0, 0, false
}

// FrameworkStats implements mem.FrameworkReporter. It returns the statistics of the layers below or, if they have none,
// those of this tracker.
func (t *SizeTracker) FrameworkStats() mem.FrameworkStats {
	if s, ok := mem.FrameworkStatsOf(t.inner); ok {
		return s
	}
	return t.Usage().FrameworkStats(mem.Stat{})
}

func init() {
	mem.RegisterSizeTracking(func(a mem.Allocator) mem.SizeTracker {
		t := NewSizeTracker(a, SizeTrackerOptions{})
		if c, ok := a.(io.Closer); ok {
			return closingTracked{t, c}
		}
		return t
	})
}

// A closingTracked closes what is below it.
type closingTracked struct {
	*SizeTracker
	io.Closer
}

// Unwrap implements mem.Wrapper, so that mem.Find finds the SizeTracker.
func (c closingTracked) Unwrap() mem.Allocator { return c.SizeTracker }
