// Package tensor is tensors that live on a device, on storages that an allocator owns.
//
// # Structure
//
// A Place is where tensors are made: a device, an allocator of its memory, what computes there, and a stream that work is
// queued to. A Storage owns memory, one block of the allocator or memory from elsewhere, and counts its owners. A Tensor is
// a view of a storage: a type, a shape, strides and an offset. Many tensors may look into one storage.
//
// # Ownership
//
// Lifetime is explicit. What allocates returns an owner: a tensor that holds its storage until Release. What only looks (a
// slice, a transpose) returns a borrower: it costs nothing to make or to drop, nobody releases it, and it may be used as
// long as its storage is alive. Retain makes any tensor an owner (once more). Where a function may have to copy and may
// not (Contiguous, To, Cast), its result is an owner in any case. A Scope releases what was made in it.
//
// Using a tensor after its release, or a borrower after that of the last owner, panics and names the place of both.
//
// A tensor that is dropped without Release keeps its memory: Go's collector knows nothing of devices. But an allocation
// that finds no room has the collector run once, and takes the memory of storages that nobody can reach any more, before
// it fails; Place.Leaks tells of them, and of all that is alive.
//
// # Streams
//
// A storage knows which stream wrote it last and which have read it since. Work that is queued on another stream waits for
// what it must: reads for the last write, writes for every use. So tensors may be used on any stream of their device, in
// the order in which the program queues the work; with one stream it costs a comparison. Two streams that write different
// parts of one storage take turns. A release tells the allocator which streams may still use the memory.
//
// Invariants: a storage's count is the sum of what its tensors own and what Storage.Retain added; its memory is given back
// when, and only when, that becomes zero (or nobody can reach it any more). Every element of a tensor lies inside its
// storage.
//
// # Concurrency
//
// A Place and a Storage are safe for concurrent use. A Tensor's shape never changes, so it may be looked at, and read by
// queued work, from several goroutines; who writes to memory that another goroutine uses must order the two calls.
//
// It does not differentiate, and does not compute: package compute does, by what a Place was given.
package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// A Tensor is a view of a storage. A nil *Tensor is the undefined tensor: Defined and String may be asked of it, and
// everything else panics.
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

// Defined reports whether t is a tensor at all.
func (t *Tensor) Defined() bool { return t != nil }

// DType returns the type of the elements.
func (t *Tensor) DType() dtype.DType { return t.known("DType").dtype }

// Shape returns the lengths of the axes; none for a single element. The caller may keep and change it.
func (t *Tensor) Shape() []int { return slices.Clone(t.known("Shape").shape) }

// Strides returns, for each axis, by how many elements (not bytes) neighbours along it lie apart in the storage. The caller
// may keep and change it.
func (t *Tensor) Strides() []int { return slices.Clone(t.known("Strides").strides) }

// Offset returns how many elements from the start of the storage the first element lies.
func (t *Tensor) Offset() int { return t.known("Offset").offset }

// Rank returns the number of axes.
func (t *Tensor) Rank() int { return len(t.known("Rank").shape) }

// Dim returns the length of an axis; a negative one counts from the last. It panics if there is no such axis.
func (t *Tensor) Dim(axis int) int {
	n := len(t.known("Dim").shape)
	if axis < -n || axis >= n {
		panic(fmt.Sprintf("tensor: Dim of axis %d: the shape is %v", axis, t.shape))
	}
	return t.shape[(axis+n)%n]
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return elements(t.known("Len").shape) }

// Size returns the bytes that the elements take: their number times the size of one. The storage may be larger or, of a
// broadcast view, smaller.
func (t *Tensor) Size() int64 { return int64(t.Len()) * int64(t.dtype.Size()) }

// Storage returns what t looks into. It is borrowed: see Storage.Retain.
func (t *Tensor) Storage() *Storage { return t.known("Storage").storage }

// Place returns the place that t was made at, without its scope and its options: its device, and the stream of what is made from t where no
// other place is given. What is made there is its maker's to release.
func (t *Tensor) Place() *Place { return t.known("Place").place }

// Pointer returns the device address of the first element, for other libraries; 0 if it is Go's own memory. Work that they
// queue to a stream must be told of, after asking for the address: see Use. From then on the memory stays where it is, also
// where the allocator moves blocks; who wants the address for a moment takes it from Array, between Pin and Unpin.
func (t *Tensor) Pointer() driver.Pointer {
	ptr, _ := t.alive("Pointer").storage.r.giveAway("Pointer")
	return t.first(ptr)
}

// first returns the address of the first element in memory that begins at ptr.
func (t *Tensor) first(ptr driver.Pointer) driver.Pointer {
	if ptr == 0 {
		return 0
	}
	return ptr + driver.Pointer(t.offset*t.dtype.Size())
}

// IsContiguous reports whether the elements lie one behind the other in row-major order. Tensors of no element or one are
// contiguous.
func (t *Tensor) IsContiguous() bool {
	t.known("IsContiguous")
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

// SameStorage reports whether both look into one storage.
func (t *Tensor) SameStorage(other *Tensor) bool {
	return t.known("SameStorage").storage == other.known("SameStorage").storage
}

// Retain makes t hold its storage once more than it does, and returns t. Each Retain wants a Release. It panics if the
// storage is gone.
func (t *Tensor) Retain() *Tensor {
	t.alive("Retain").storage.r.retain()
	t.owned.Add(1)
	return t
}

// Release gives back what an allocating function or a Retain gave to t. The memory is freed with the last owner, and may
// still be used by work queued before. It panics if t owns nothing.
func (t *Tensor) Release() {
	t.known("Release")
	left := t.owned.Add(-1)
	if left < 0 {
		t.owned.Add(1)
		if at := t.released.Load(); at != nil {
			panic(fmt.Sprintf("tensor: Release at %v of a tensor %v that was released at %v", here(), t.brief(), at))
		}
		panic(fmt.Sprintf("tensor: Release at %v of a tensor %v that owns nothing: a view borrows, see Retain", here(), t.brief()))
	}
	at := nearby()
	if left == 0 {
		t.released.Store(at)
	}
	t.storage.r.release(at)
	runtime.KeepAlive(t)
}

// Owns reports whether t holds its storage: whether somebody has to Release it.
func (t *Tensor) Owns() bool { return t.known("Owns").owned.Load() > 0 }

// known panics if t is undefined.
func (t *Tensor) known(call string) *Tensor {
	if t == nil {
		panic("tensor: " + call + " of the undefined tensor")
	}
	return t
}

// alive panics if t is undefined or must not be used any more.
func (t *Tensor) alive(call string) *Tensor {
	t.known(call)
	if at := t.end(); at != nil {
		panic(fmt.Sprintf("tensor: %s at %v of a tensor %v whose memory was released at %v", call, here(), t.brief(), at))
	}
	return t
}

// MustLive panics, in the name of a call, if t is undefined or must not be used any more: before a caller makes something
// that it would have to give back.
func (t *Tensor) MustLive(call string) { t.alive(call) }

// end returns where t was released, or nil if it may be used.
func (t *Tensor) end() *site {
	at := t.storage.r.gone()
	if at == nil && t.owned.Load() == 0 {
		at = t.released.Load()
	}
	return at
}

// brief is the type and the shape: float32[2 3].
func (t *Tensor) brief() string { return fmt.Sprintf("%v%v", t.dtype, t.shape) }

// Brief returns the type and the shape for messages: "float32[2 3]"; "undefined" of the undefined tensor.
func (t *Tensor) Brief() string {
	if t == nil {
		return "undefined"
	}
	return t.brief()
}

// Array returns t as an operand of what computes on its device. It shares t's shape and strides: nobody may change them.
// Whoever queues work on it calls Pin and then Use first, and Unpin once the work is queued: without, the memory may
// be moved where the allocator does that, or taken back if nobody can reach t any more.
func (t *Tensor) Array() backend.Array {
	ptr, bytes := t.alive("Array").storage.r.where()
	return backend.Array{Ptr: ptr, Bytes: bytes, DType: t.dtype, Offset: t.offset, Shape: t.shape, Strides: t.strides}
}

// Use makes work that is queued on s from now on come after the work that it must not overtake: the last write, and if it
// writes itself, all uses; a move of the memory counts as both. It tells the storage that s uses it until then. Everything in
// packages tensor and compute calls it; who hands Pointer to other libraries does so after asking for it, and before
// queueing their work. The stream is one of t's device.
//
// While s captures a graph, Use also keeps the memory where it is for the rest of its life: the graph has the address. Each
// launch of the graph is a use of its own, on the stream that it is launched on, and the memory must not be released as
// long as the graph may be launched.
func (t *Tensor) Use(s driver.Stream, writes bool) error {
	return t.alive("Use").storage.r.use(s, writes)
}

// view returns a borrower of t's storage.
func (t *Tensor) view(shape, strides []int, offset int) *Tensor {
	return &Tensor{storage: t.storage, place: t.place, dtype: t.dtype, shape: shape, strides: strides, offset: offset}
}

// share returns an owner of t's storage that looks as t does, made at p.
func (t *Tensor) share(p *Place) *Tensor {
	p.open("sharing " + t.brief())
	v := t.view(t.shape, t.strides, t.offset)
	v.place = p.base()
	v.Retain()
	p.adopt(v)
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
