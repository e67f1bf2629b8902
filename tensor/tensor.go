// Package tensor provides tensors on devices. Their memory comes from an allocator and is released explicitly.
//
// A [Place] is a device, an allocator of its memory, a backend that computes, and the stream to which work is queued.
// Package compute opens one; [NewPlace] makes one from parts. A [Storage] is one block of the allocator, or memory from
// elsewhere, with a count of its owners. A [Tensor] is a view of a storage: an element type, a shape, strides and an
// offset. Many tensors may share a storage.
//
// # Ownership
//
// A function that allocates returns an owner: a tensor that keeps its storage until Release. A function that returns a
// view (a slice, a transpose) returns a borrower. A borrower costs nothing to make or to drop, is never released, and
// is valid as long as its storage. Retain makes any tensor an owner, or adds one more count. A function that copies
// only if it must (Contiguous, To, Cast) always returns an owner. A [Scope] releases all owners that were made in it.
//
// The use of a tensor after its release, or of a borrower after the release of the last owner, panics. The message
// names the call and the place of the release.
//
// Go's garbage collector does not see device memory: a tensor that is dropped without Release keeps its block. When an
// allocation finds no room, the place runs the collector, frees the storages that became unreachable, and tries again
// (see Place.Reclaim). Place.Leaks lists these storages and all live ones.
//
// # Streams
//
// A storage records the stream that wrote it last and the streams that have read it since. Work on another stream waits
// where it must: a read for the last write, a write for every earlier use. Tensors may therefore be used on any stream
// of their device, in the order in which the program queues the work. With a single stream this costs one comparison.
// Two streams that write different parts of one storage run one after the other. A release passes to the allocator the
// streams that may still use the memory.
//
// # Concurrency
//
// A Place and a Storage are safe for concurrent use. The shape of a Tensor never changes, so several goroutines may
// inspect it and queue work that reads it. A goroutine that writes memory which another goroutine uses must order the
// two calls.
//
// Package compute has the operations on tensors.
package tensor

// Invariants:
//
//   - The owners of a storage are the counts that its tensors hold plus those added by Storage.Retain. Its memory is freed
//     when, and only when, that number becomes zero or the storage is reclaimed.
//   - Every element of a tensor lies inside its storage.
//
// Locks: the lock that serializes reclaiming is held while the collector runs and blocks are freed, and is taken before
// the allocator's. A storage's lock is held while streams mark and wait for each other. An allocator that moves blocks
// takes it in BeginMove, under its own locks; the allocator is never called under it. A scope's lock and that of the
// live storages are leaves. Deleters run without locks.

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/callsite"
)

// A Tensor is a view of a storage. A nil *Tensor is the undefined tensor: only Defined, Brief and the printing methods
// accept it; every other method panics.
type Tensor struct {
	storage *Storage
	place   *Place // where it was made: device and stream, without a scope
	dtype   dtype.DType
	shape   []int
	strides []int // in elements
	offset  int   // in elements

	owned    atomic.Int32 // counts of the storage that this tensor holds
	released atomic.Pointer[site]
}

// Defined reports whether t is not nil.
func (t *Tensor) Defined() bool { return t != nil }

// DType returns the type of the elements.
func (t *Tensor) DType() dtype.DType { return t.mustBeDefined("DType").dtype }

// Shape returns the lengths of the axes, none for a scalar tensor. The caller may change the slice.
func (t *Tensor) Shape() []int { return slices.Clone(t.mustBeDefined("Shape").shape) }

// Strides returns, for each axis, the distance between neighbouring elements in the storage, in elements (not bytes).
// The caller may change the slice.
func (t *Tensor) Strides() []int { return slices.Clone(t.mustBeDefined("Strides").strides) }

// Offset returns the position of the first element in the storage, in elements.
func (t *Tensor) Offset() int { return t.mustBeDefined("Offset").offset }

// Rank returns the number of axes.
func (t *Tensor) Rank() int { return len(t.mustBeDefined("Rank").shape) }

// Dim returns the length of an axis; a negative one counts from the last. It panics if there is no such axis.
func (t *Tensor) Dim(axis int) int {
	n := len(t.mustBeDefined("Dim").shape)
	if axis < -n || axis >= n {
		panic(fmt.Sprintf("tensor: Dim of axis %d: the shape is %v", axis, t.shape))
	}
	return t.shape[(axis+n)%n]
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return elements(t.mustBeDefined("Len").shape) }

// Size returns the number of elements times the size of one, in bytes. The storage may be larger or, for a broadcast
// view, smaller.
func (t *Tensor) Size() int64 { return int64(t.Len()) * int64(t.dtype.Size()) }

// Storage returns the storage of t without adding an owner: see Storage.Retain.
func (t *Tensor) Storage() *Storage { return t.mustBeDefined("Storage").storage }

// Place returns the place at which t was made, without its scope and its allocation options. Operations on t that are
// given no place work there, and the caller must release their results.
func (t *Tensor) Place() *Place { return t.mustBeDefined("Place").place }

// Pointer returns the device address of the first element, for use by other libraries, or 0 if the memory is Go's own.
// From then on the memory never moves. Call Use after Pointer and before the other library queues its work. For a short
// use of the address, take it from Array between Pin and Unpin, which lets the memory move again.
func (t *Tensor) Pointer() driver.Pointer {
	ptr, _ := t.alive("Pointer").storage.state.exposeAddress("Pointer")
	return t.first(ptr)
}

// first returns the address of the first element in memory that begins at ptr.
func (t *Tensor) first(ptr driver.Pointer) driver.Pointer {
	if ptr == 0 {
		return 0
	}
	return ptr + driver.Pointer(t.offset*t.dtype.Size())
}

// IsContiguous reports whether the elements are consecutive in memory, in row-major order. A tensor with at most one
// element is contiguous.
func (t *Tensor) IsContiguous() bool {
	t.mustBeDefined("IsContiguous")
	want := 1
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] == 0 {
			return true
		}
		if t.shape[i] != 1 && t.strides[i] != want {
			return t.Len() == 0
		}
		want *= t.shape[i]
	}
	return true
}

// SameStorage reports whether both tensors share one storage.
func (t *Tensor) SameStorage(other *Tensor) bool {
	return t.mustBeDefined("SameStorage").storage == other.mustBeDefined("SameStorage").storage
}

// Retain adds a count of the storage's owners that t holds, and returns t. Each Retain needs a Release. It panics if
// the storage was released.
func (t *Tensor) Retain() *Tensor {
	t.alive("Retain").storage.state.retain()
	t.owned.Add(1)
	return t
}

// Release ends one ownership of t, which an allocating function or Retain gave to it. The last owner's Release frees
// the memory; work that was queued before may still use it. It panics if t owns nothing.
func (t *Tensor) Release() {
	t.mustBeDefined("Release")
	left := t.owned.Add(-1)
	if left < 0 {
		t.owned.Add(1)
		if at := t.released.Load(); at != nil {
			panic(fmt.Sprintf("tensor: Release at %v of a tensor %v that was released at %v", callsite.Here(),
				t.brief(), at))
		}
		panic(fmt.Sprintf("tensor: Release at %v of a tensor %v that owns nothing: a view borrows, see Retain",
			callsite.Here(), t.brief()))
	}
	at := shortCallSite()
	if left == 0 {
		t.released.Store(at)
	}
	t.storage.state.release(at)
	runtime.KeepAlive(t)
}

// Owns reports whether t holds its storage and so needs a Release.
func (t *Tensor) Owns() bool { return t.mustBeDefined("Owns").owned.Load() > 0 }

// mustBeDefined panics if t is undefined.
func (t *Tensor) mustBeDefined(call string) *Tensor {
	if t == nil {
		panic("tensor: " + call + " of the undefined tensor")
	}
	return t
}

// alive panics if t is undefined or must not be used any more.
func (t *Tensor) alive(call string) *Tensor {
	t.mustBeDefined(call)
	if at := t.releasedAt(); at != nil {
		panic(fmt.Sprintf("tensor: %s at %v of a tensor %v whose memory was released at %v", call, callsite.Here(),
			t.brief(), at))
	}
	return t
}

// MustLive panics, in the name of a call, if t is undefined or was released. Callers use it before they allocate.
func (t *Tensor) MustLive(call string) { t.alive(call) }

// releasedAt returns the call site of t's release, or nil if t may be used.
func (t *Tensor) releasedAt() *site {
	at := t.storage.state.releasedAt()
	if at == nil && t.owned.Load() == 0 {
		at = t.released.Load()
	}
	return at
}

// brief returns the type and the shape: float32[2 3].
func (t *Tensor) brief() string { return fmt.Sprintf("%v%v", t.dtype, t.shape) }

// Brief returns the type and the shape for messages: "float32[2 3]"; "undefined" for the undefined tensor.
func (t *Tensor) Brief() string {
	if t == nil {
		return "undefined"
	}
	return t.brief()
}

// Array returns t as an operand for the backend of its device. The result shares t's shape and strides, which must not
// be changed. To queue work on it, call Pin, then Use, then Array, and Unpin after the work is queued. Otherwise an
// allocator that moves blocks may move the memory, or the memory may be reclaimed if t is unreachable.
func (t *Tensor) Array() backend.Array {
	ptr, bytes := t.alive("Array").storage.state.address()
	return backend.Array{Ptr: ptr, Bytes: bytes, DType: t.dtype, Offset: t.offset, Shape: t.shape, Strides: t.strides}
}

// Use orders the work that is queued on s from now on after earlier uses of the memory: after the last write and, if
// writes is true, after all reads. A move of the memory counts as a read and a write. The storage then counts s among
// its users. Packages tensor and compute call Use themselves; a program that passes Pointer to another library calls it
// after Pointer and before it queues that library's work. s must be a stream of t's device.
//
// While s captures a graph, Use also fixes the memory for the rest of its life, since the graph keeps the address. Each
// launch of the graph is a separate use of the memory, on the stream of the launch, and the memory must not be released
// while the graph may be launched.
func (t *Tensor) Use(s driver.Stream, writes bool) error {
	return t.alive("Use").storage.state.use(s, writes)
}

// view returns a borrower of t's storage.
func (t *Tensor) view(shape, strides []int, offset int) *Tensor {
	return &Tensor{storage: t.storage, place: t.place, dtype: t.dtype, shape: shape, strides: strides, offset: offset}
}

// share returns an owner of t's storage with t's shape, at place p.
func (t *Tensor) share(p *Place) *Tensor {
	p.mustBeOpen("sharing " + t.brief())
	v := t.view(t.shape, t.strides, t.offset)
	v.place = p.strip()
	v.Retain()
	p.addToScope(v)
	return v
}

// elements returns the product of the lengths. They were checked when the tensor was made.
func elements(shape []int) int {
	n := 1
	for _, length := range shape {
		n *= length
	}
	return n
}
