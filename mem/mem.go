// Package mem is the contract of Ashlar's allocators: the Allocator interface, blocks, statistics, events and the
// out-of-memory error. Open makes an allocator by name; Find finds a capability, such as statistics, in a stack of
// layers. Package mem/layer has the layers.
//
// An allocator allocates blocks of one device's memory in stream order: a block may be used at once by work queued on
// the stream it was allocated for, and Free does not wait for that work. The caller orders work on other streams, and
// tells Free which of them still use the block.
//
// Allocators are safe for concurrent use. Sizes are bytes. Bugs of the caller (a nil stream, a double free, a block of
// another allocator, a negative size) panic with the prefix of the package that found them, and change nothing. A full
// device is an *OutOfMemory error.
package mem

import (
	"errors"
	"fmt"
	"iter"

	"github.com/ashlar-go/ashlar/driver"
)

// ErrNoMemory is matched by every error that means out of memory: errors.Is(err, mem.ErrNoMemory).
var ErrNoMemory = errors.New("mem: out of memory")

// An Allocator allocates blocks of one device's memory in stream order. It is safe for concurrent use.
type Allocator interface {
	// Alloc returns a block of at least size bytes for work queued on s from now on. A size of zero returns the zero
	// Block and changes nothing; a negative size or a nil stream panics. The error matches ErrNoMemory if there is no
	// room.
	Alloc(s driver.Stream, size int64) (Block, error)

	// Free frees b. Work queued before this call on b's stream, and on each stream in used, may still access it.
	// Freeing the zero Block is a no-op. Free panics if b is not a live block of this allocator or a stream is nil.
	Free(b Block, used ...driver.Stream)
}

// A Block is memory that an allocator allocated. It is a value: copies are the same block.
type Block struct {
	Ptr  driver.Pointer
	Size int64  // usable bytes, at least those requested
	Tag  uint64 // private to the allocator: finds the block's entry without a map
}

// A PoolID names a pool of segments. The zero ID is the default pool; (n, 0) are pools of captured graphs and (0, n)
// pools made by users, as in PyTorch.
type PoolID [2]uint64

// String returns "default" or, as PyTorch prints it, for example "(0, 1)".
func (id PoolID) String() string {
	if id == (PoolID{}) {
		return "default"
	}
	return fmt.Sprintf("(%d, %d)", id[0], id[1])
}

// A Trimmer is an allocator that returns cached memory to the device.
type Trimmer interface {
	// EmptyCache waits for pending frees, then returns every segment that holds no live block.
	EmptyCache() error
}

// A Snapshotter describes all memory that it holds, segment by segment, in address order.
type Snapshotter interface {
	Snapshot() []SegmentInfo
}

// A StatsReporter reports its statistics.
type StatsReporter interface {
	Stats() Stats
	ResetPeakStats()
	ResetAccumulatedStats()
}

// A Wrapper is an allocator on top of another.
type Wrapper interface {
	Unwrap() Allocator
}

// Layers visits a and then each allocator below it, as long as there are Wrappers.
func Layers(a Allocator) iter.Seq[Allocator] {
	return func(yield func(Allocator) bool) {
		for a != nil && yield(a) {
			w, ok := a.(Wrapper)
			if !ok {
				return
			}
			a = w.Unwrap()
		}
	}
}

// Find returns the topmost layer of a that implements T, such as a Trimmer or a StatsReporter.
func Find[T any](a Allocator) (T, bool) {
	for layer := range Layers(a) {
		if t, ok := layer.(T); ok {
			return t, true
		}
	}
	var none T
	return none, false
}

// A SegmentInfo describes memory that an allocator allocated from its driver in one call, or one run of mapped pages of
// an expandable segment.
type SegmentInfo struct {
	Ptr           driver.Pointer
	TotalSize     int64
	AllocatedSize int64 // bytes in live blocks
	ActiveSize    int64 // AllocatedSize, plus blocks whose free waits for other streams
	RequestedSize int64 // requested bytes of the active blocks
	Stream        driver.StreamID
	Pool          PoolID
	Large         bool // in the pool for blocks over 1 MiB
	Expandable    bool
	Paused        bool        // its memory was given back to the driver: see mem/paged's Pause
	Blocks        []BlockInfo // without gaps, in the order of their addresses
}

// A BlockInfo is one block of a segment.
type BlockInfo struct {
	Ptr           driver.Pointer
	Size          int64
	RequestedSize int64 // of an inactive block: the requested bytes of its last user, or 0
	State         BlockState
	// GCCount is the age of an inactive block of mem/caching: the searches of its pool since it became free, while
	// garbage collection was on (PyTorch's gc_counter).
	GCCount int64
}

// A BlockState is the state of a block in a snapshot.
type BlockState uint8

const (
	Inactive          BlockState = iota // cached
	ActiveAllocated                     // live
	ActivePendingFree                   // freed, but other streams may still use it
)

// String returns the name that PyTorch's snapshots use.
func (s BlockState) String() string {
	switch s {
	case Inactive:
		return "inactive"
	case ActiveAllocated:
		return "active_allocated"
	case ActivePendingFree:
		return "active_pending_free"
	}
	return "unknown"
}
