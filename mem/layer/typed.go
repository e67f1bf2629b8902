package layer

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// Typed allocates elements of one type: TensorFlow's Allocate<T> and Deallocate<T>, with its RunCtor and RunDtor. See
// NewTyped.
type Typed[T any] struct {
	a        mem.Allocator
	opts     TypedOptions[T]
	size     int64 // of an element
	pointers bool  // elements hold Go pointers
	visible  driver.Visible
	idle     bool // visible memory is idle when it is allocated
}

// TypedOptions say what becomes of elements. The zero value is for numbers: they are as the memory is.
type TypedOptions[T any] struct {
	// Visible is how Go code reaches the allocator's memory: Device.Visible() where that is the device's own. Nil is
	// the topmost layer of the allocator that is a driver.Visible, as allocators of host memory are, which allocate
	// what nobody uses; if there is none, Go code does not reach the memory.
	Visible driver.Visible

	// Construct makes one element, in the order of their numbers, and Destroy ends it, the last one first: once for
	// each, in Free, or in an Alloc that fails for those whose Construct has succeeded. Both need elements that Go code
	// reaches.
	Construct func(*T) error
	Destroy   func(*T)

	// ConstructBlock and DestroyBlock do that for all elements together, after Construct and before Destroy: by work
	// that they queue on the block's stream, for memory that Go code does not reach. What ConstructBlock did before it
	// failed is its own to undo.
	ConstructBlock func(driver.Stream, *Elements[T]) error
	DestroyBlock   func(driver.Stream, *Elements[T])
}

// NewTyped returns an allocator of elements over a. Elements lie in blocks of a, but for those of a type that holds Go
// pointers, strings and slices among them: Go's collector does not see what only a block points to, so these live on
// Go's heap, and a block of the same size, which nobody touches, stands for them in a. Limits, quotas and statistics of
// a hold for both. So does TensorFlow, which counts the array of its strings and not their text.
//
// It panics if Construct or Destroy are given for elements that Go code does not reach. Safe for concurrent use if the
// hooks are.
func NewTyped[T any](a mem.Allocator, opts TypedOptions[T]) *Typed[T] {
	kind := reflect.TypeFor[T]()
	t := &Typed[T]{a: a, opts: opts, size: int64(kind.Size()), pointers: holdsPointers(kind), visible: opts.Visible}
	if t.visible == nil {
		t.visible, _ = mem.Find[driver.Visible](a)
		_, t.idle = a.(driver.Visible) // with a layer above, blocks may have been kept there
	}
	if (opts.Construct != nil || opts.Destroy != nil) && !t.onHeap() && t.visible == nil {
		panic(fmt.Sprintf("layer: Typed: Construct or Destroy of %v in memory that Go code does not reach", kind))
	}
	return t
}

// onHeap reports whether elements live on Go's heap: those that have to, and those of no size.
func (t *Typed[T]) onHeap() bool { return t.pointers || t.size == 0 }

// holdsPointers reports whether values of a type hold what Go's collector must see.
func holdsPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && holdsPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.String, reflect.UnsafePointer:
		return true
	}
	return false
}

// Elements are n elements live from a Typed, at one place until their Free.
type Elements[T any] struct {
	owner  *Typed[T]
	stream driver.Stream
	block  mem.Block
	slice  []T
	n      int
	freed  atomic.Bool
}

// Len returns how many there are.
func (e *Elements[T]) Len() int { return e.n }

// Slice returns the elements, if Go code reaches them, and else nil. It is the memory itself, good until Free.
func (e *Elements[T]) Slice() []T { return e.slice }

// Block returns the block that they lie in; of elements on Go's heap, the one that stands for them; of none, the zero
// Block.
func (e *Elements[T]) Block() mem.Block { return e.block }

// Alloc returns n elements for work queued on s from now on. Where Go code reaches them, it waits, until ctx ends, for
// the work that is queued on s: their memory's last user may be among it. It does not if the allocator itself, with
// nothing on top, is a driver.Visible. The error is that of the allocator, of waiting, or of a hook; then all that was
// constructed has been destroyed, and the block is back. A negative n panics. So it is when a hook panics.
func (t *Typed[T]) Alloc(ctx context.Context, s driver.Stream, n int) (*Elements[T], error) {
	return t.AllocWith(ctx, s, n, mem.AllocOptions{})
}

// AllocWith is Alloc with wishes.
func (t *Typed[T]) AllocWith(ctx context.Context, s driver.Stream, n int, o mem.AllocOptions) (_ *Elements[T], err error) {
	if n < 0 {
		panic(fmt.Sprintf("layer: Typed: Alloc of %d elements", n))
	}
	high, size := bits.Mul64(uint64(n), uint64(t.size))
	if high != 0 || size > math.MaxInt64 {
		return nil, errTooLarge(math.MaxInt64)
	}
	e := &Elements[T]{owner: t, stream: s, n: n}
	if e.block, err = mem.AllocWith(t.a, s, int64(size), o); err != nil {
		return nil, err
	}
	made, done := 0, false
	defer func() {
		if !done {
			t.end(e, made)
		}
	}()
	if err := t.makeSlice(ctx, e); err != nil {
		return nil, err
	}
	if t.opts.Construct != nil {
		for i := range e.slice {
			if err := t.opts.Construct(&e.slice[i]); err != nil {
				return nil, fmt.Errorf("layer: Typed: construct element %d of %d: %w", i, n, err)
			}
			made++
		}
	}
	if t.opts.ConstructBlock != nil {
		if err := t.opts.ConstructBlock(s, e); err != nil {
			return nil, fmt.Errorf("layer: Typed: construct %d elements: %w", n, err)
		}
	}
	done = true
	return e, nil
}

// show makes the slice, if there is to be one.
func (t *Typed[T]) makeSlice(ctx context.Context, e *Elements[T]) error {
	if t.onHeap() || e.n == 0 {
		e.slice = make([]T, e.n)
		return nil
	}
	if t.visible == nil {
		return nil
	}
	if !t.idle {
		if err := e.stream.Sync(ctx); err != nil {
			return fmt.Errorf("layer: Typed: wait for what may still use the memory: %w", err)
		}
	}
	bytes, err := t.visible.Bytes(e.block.Ptr, int64(e.n)*t.size)
	if err != nil {
		return fmt.Errorf("layer: Typed: reach the memory: %w", err)
	}
	first := (*T)(unsafe.Pointer(unsafe.SliceData(bytes)))
	if align := unsafe.Alignof(*first); uintptr(unsafe.Pointer(first))%align != 0 {
		return fmt.Errorf("layer: Typed: the allocator returned %#x, which is no multiple of %d", uint64(e.block.Ptr), align)
	}
	e.slice = unsafe.Slice(first, e.n)
	return nil
}

// Free destroys the elements and takes them back. Work queued before this call on their stream, and on each in used,
// may still touch them; if they are to be destroyed by Go code, it waits for that work first, where it can: a stream
// that is closed has done its own, and one that captures, or whose device fails, is not waited for. Freeing twice
// panics, and what another Typed made. Nil is nothing. If Destroy panics, the elements before it are not destroyed; the
// block goes back whatever panics.
func (t *Typed[T]) Free(e *Elements[T], used ...driver.Stream) {
	if e == nil {
		return
	}
	check.Used("layer: Typed: Free", used)
	if e.owner != t || !e.freed.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("layer: Typed: Free of %d elements that are not live: they were freed already, or another made them", e.n))
	}
	if t.opts.Destroy != nil && !t.onHeap() && e.n > 0 {
		for _, s := range append([]driver.Stream{e.stream}, used...) {
			_ = s.Sync(context.Background())
		}
	}
	defer t.end(e, e.n, used...)
	if t.opts.DestroyBlock != nil {
		t.opts.DestroyBlock(e.stream, e)
	}
}

// end destroys the elements that were made, and frees the block.
func (t *Typed[T]) end(e *Elements[T], made int, used ...driver.Stream) {
	defer t.a.Free(e.block, used...)
	if t.opts.Destroy != nil {
		for i := made - 1; i >= 0; i-- {
			t.opts.Destroy(&e.slice[i])
		}
	}
	e.slice = nil
}
