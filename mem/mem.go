// Package mem is what every allocator of Ashlar has in common: the Allocator interface, blocks, statistics, events, the
// out-of-memory error, and adaptors that wrap any allocator in another.
//
// An allocator allocates blocks of one device's memory in stream order: a block may be used at once by work queued on
// the stream it was allocated for, and freeing it does not wait for anything. Work on other streams is the caller's to
// order, except that Free is told which streams still use the block.
//
// Bugs of the caller (a nil stream, double free, a block of another allocator, a negative size) panic with the prefix
// of the package that found them, and change nothing. A full device is an *OutOfMemory.
package mem

import (
	"errors"
	"iter"

	"github.com/ashlar-go/ashlar/driver"
)

// ErrNoMemory is matched by every error that means "no room": errors.Is(err, mem.ErrNoMemory).
var ErrNoMemory = errors.New("mem: out of memory")

// An Allocator allocates blocks of one device's memory in stream order. Safe for concurrent use.
type Allocator interface {
	// Alloc returns a block of at least size bytes for work queued on s from now on. A size of zero gives the zero
	// Block and changes nothing; a negative size and a nil stream panic. The error matches ErrNoMemory if there is no
	// room.
	Alloc(s driver.Stream, size int64) (Block, error)

	// Free takes b back. Work queued before this call on b's stream, and on each stream in used, may still touch it.
	// Freeing the zero Block does nothing. Free panics if b is not a live block of this allocator or a stream is nil.
	Free(b Block, used ...driver.Stream)
}

// A Block is memory live from an allocator. It is a value: copies are the same block.
type Block struct {
	Ptr  driver.Pointer
	Size int64  // usable bytes, at least what was asked for
	Tag  uint64 // private to the allocator that made it: finds its own record without a map
}

// A PoolID names a pool of segments. The zero ID is the default pool; (n, 0) are pools of captured graphs and (0, n)
// pools that a user made, as PyTorch numbers them.
type PoolID [2]uint64

// A Trimmer gives cached memory back to the device.
type Trimmer interface {
	// EmptyCache waits for pending frees, then returns every segment that holds no live block.
	EmptyCache() error
}

// A Snapshotter describes all memory that it holds, segment by segment, in the order of their addresses.
type Snapshotter interface {
	Snapshot() []SegmentInfo
}

// A StatsReporter counts what it does.
type StatsReporter interface {
	Stats() Stats
	ResetPeakStats()
	ResetAccumulatedStats()
}

// A Wrapper is an allocator on top of another.
type Wrapper interface {
	Unwrap() Allocator
}

// Layers visits a and then, as long as there are wrappers, what is below.
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

// Find returns the topmost layer of a that is a T, such as a Trimmer or a StatsReporter.
func Find[T any](a Allocator) (T, bool) {
	for layer := range Layers(a) {
		if t, ok := layer.(T); ok {
			return t, true
		}
	}
	var none T
	return none, false
}

// A SegmentInfo describes what an allocator got from its driver in one piece (or, of an expandable segment, one run of
// mapped pages).
type SegmentInfo struct {
	Ptr           driver.Pointer
	TotalSize     int64
	AllocatedSize int64 // bytes in live blocks
	ActiveSize    int64 // and in blocks whose free waits for other streams
	RequestedSize int64 // what was asked for, of the active blocks
	Stream        driver.StreamID
	Pool          PoolID
	Large         bool // of the pool of blocks over 1 MiB
	Expandable    bool
	Blocks        []BlockInfo // without gaps, in the order of their addresses
}

// A BlockInfo is one block of a segment.
type BlockInfo struct {
	Ptr           driver.Pointer
	Size          int64
	RequestedSize int64 // of an inactive block: what its last user asked for, or 0
	State         BlockState
	// GCCount is the age of an inactive block of mem/caching: the searches of its pool since it became free, while
	// garbage collection was on (PyTorch's gc_counter).
	GCCount int64
}

// A BlockState says whether a block is live.
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
