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

// TypedOptions configure a Typed. The zero value is for numbers: elements have the contents of the memory.
type TypedOptions[T any] struct {
	// Visible gives Go code access to the allocator's memory: Device.Visible() where that is the device's own. Nil
	// means the topmost layer of the allocator that is a driver.Visible. Allocators of host memory are one, and no
	// queued work accesses their blocks. If there is none, Go code cannot access the memory.
	Visible driver.Visible

	// Construct makes one element, in the order of their numbers, and Destroy ends it, the last one first. Destroy is
	// called once for each element: in Free, or in an Alloc that fails, for the elements whose Construct has succeeded.
	// Both need elements that Go code can access.
	Construct func(*T) error
	Destroy   func(*T)

	// ConstructBlock and DestroyBlock do that for all elements together, after Construct and before Destroy: by work
	// that they queue on the block's stream, for memory that Go code cannot access. A ConstructBlock that fails must
	// undo its own work.
	ConstructBlock func(driver.Stream, *Elements[T]) error
	DestroyBlock   func(driver.Stream, *Elements[T])
}

// NewTyped returns an allocator of elements over a. Elements lie in blocks of a, unless their type has Go pointers,
// strings or slices. Go's collector does not see pointers in a block, so such elements live on Go's heap, with an
// unused block of the same size from a. Limits, quotas and statistics of a thus count both kinds. TensorFlow too counts
// the array of its strings and not their text.
//
// It panics if Construct or Destroy are given for elements that Go code cannot access. It is safe for concurrent use if
// the hooks are.
func NewTyped[T any](a mem.Allocator, opts TypedOptions[T]) *Typed[T] {
	kind := reflect.TypeFor[T]()
	t := &Typed[T]{a: a, opts: opts, size: int64(kind.Size()), pointers: holdsPointers(kind), visible: opts.Visible}
	if t.visible == nil {
		t.visible, _ = mem.Find[driver.Visible](a)
		_, t.idle = a.(driver.Visible) // not through a layer, which may have kept blocks
	}
	if (opts.Construct != nil || opts.Destroy != nil) && !t.onHeap() && t.visible == nil {
		panic(fmt.Sprintf("layer: Typed: Construct or Destroy of %v in memory that Go code cannot access", kind))
	}
	return t
}

// onHeap reports whether elements live on Go's heap: those with pointers, and those of size 0.
func (t *Typed[T]) onHeap() bool { return t.pointers || t.size == 0 }

// holdsPointers reports whether values of a type contain pointers that Go's collector must see.
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
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.String,
		reflect.UnsafePointer:
		return true
	}
	return false
}

// Elements are n live elements of a Typed. They do not move.
type Elements[T any] struct {
	owner  *Typed[T]
	stream driver.Stream
	block  mem.Block
	slice  []T
	n      int
	freed  atomic.Bool
}

// Len returns the number of elements.
func (e *Elements[T]) Len() int { return e.n }

// Slice returns the elements, or nil if Go code cannot access them. The slice is the memory itself, and is valid until
// Free.
func (e *Elements[T]) Slice() []T { return e.slice }

// Block returns the block that holds the elements. For elements on Go's heap it is the unused block of the same size,
// and without elements the zero Block.
func (e *Elements[T]) Block() mem.Block { return e.block }

// Alloc returns n elements for work queued on s from now on. Where Go code can access them, it waits, until ctx ends,
// for the work queued on s, which may include the memory's last user. It does not wait if the allocator itself is a
// driver.Visible. The error is that of the allocator, of waiting, or of a hook; then all constructed elements have been
// destroyed and the block is freed. The same holds if a hook panics. A negative n panics.
func (t *Typed[T]) Alloc(ctx context.Context, s driver.Stream, n int) (*Elements[T], error) {
	return t.AllocWith(ctx, s, n, mem.AllocOptions{})
}

// AllocWith is Alloc with options.
func (t *Typed[T]) AllocWith(
	ctx context.Context, s driver.Stream, n int, o mem.AllocOptions,
) (_ *Elements[T], err error) {
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

// makeSlice makes the slice of elements that Go code can access.
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
			return fmt.Errorf("layer: Typed: wait for work that may still use the memory: %w", err)
		}
	}
	bytes, err := t.visible.Bytes(e.block.Ptr, int64(e.n)*t.size)
	if err != nil {
		return fmt.Errorf("layer: Typed: access the memory: %w", err)
	}
	first := (*T)(unsafe.Pointer(unsafe.SliceData(bytes)))
	if align := unsafe.Alignof(*first); uintptr(unsafe.Pointer(first))%align != 0 {
		return fmt.Errorf("layer: Typed: the allocator returned %#x, which is no multiple of %d", uint64(e.block.Ptr),
			align)
	}
	e.slice = unsafe.Slice(first, e.n)
	return nil
}

// Free destroys the elements and frees their block. Work queued before this call on their stream, and on each in used,
// may still access them. If Go code destroys them, Free first waits for that work, except on streams that are closed,
// capture, or whose device fails. A double free panics, as do elements of another Typed. Nil is ignored. If Destroy
// panics, the elements before it are not destroyed; the block is freed in any case.
func (t *Typed[T]) Free(e *Elements[T], used ...driver.Stream) {
	if e == nil {
		return
	}
	check.Used("layer: Typed: Free", used)
	if e.owner != t || !e.freed.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("layer: Typed: Free of %d elements that are not live: "+
			"they were freed already, or another Typed made them", e.n))
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
