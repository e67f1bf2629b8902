package remat

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/ashlar-go/ashlar/tensor"
)

// A Tensor is a handle of a tensor whose memory may be evicted. It is released explicitly, by Release, by its [Scope],
// or with the runtime. Its shape never changes. A nil *Tensor is not valid.
type Tensor struct {
	r        *core
	variable *variable
	view     view
	released bool

	locks  int
	locked *tensor.Tensor // while locks is positive
}

// A variable is a storage as users see it. Tensors that are views of each other share one.
type variable struct {
	now   *content
	views int // tensors that are not released
	locks int // of all of them
}

// A content is the memory of a storage of the schedule.
type content struct {
	value    schedule.Value
	storage  schedule.Storage
	size     int64           // bytes of its block
	foreign  int64           // bytes of a constant outside of the runtime's memory
	constant *tensor.Storage // not nil for a constant
	data     *tensor.Storage // nil while it is evicted; the content is one owner
	copy     *hostCopy       // nil unless there is a copy on the host, or one is being made
}

// drop releases the memory.
func (r *core) drop(c *content) {
	if r.spill != nil {
		r.spill.finish(c) // if that fails the copy keeps the memory until it is forgotten
	}
	if c.data != nil {
		c.data.Release()
		c.data = nil
	}
}

// A view is a view of a storage.
type view struct {
	dtype   dtype.DType
	offset  int
	shape   []int
	strides []int
}

func viewOf(t *tensor.Tensor) view {
	return view{t.DType(), t.Offset(), t.Shape(), t.Strides()}
}

// of returns the view of a storage as a tensor at p, which its caller or p's scope owns.
func (v view) of(p *tensor.Place, s *tensor.Storage) (*tensor.Tensor, error) {
	return tensor.FromStorage(p, s, v.dtype, v.offset, v.shape, v.strides)
}

// Constant returns a handle of t that is never evicted. The handle keeps t's memory; the caller still releases t. The
// memory counts in the budget. The error matches mem.ErrNoMemory if there is no room for it. Only operations of the
// runtime may write the memory from now on.
func (r *Runtime) Constant(t *tensor.Tensor) (*Tensor, error) {
	t.MustLive("remat: Constant")
	r.lock("Constant")
	defer r.unlock()
	if !t.Place().SameDevice(r.place) {
		return nil, fmt.Errorf("remat: Constant: %s is on %v, the runtime on %v", t.Brief(), t.Place(), r.place)
	}
	s := t.Storage()
	v := r.constants[s]
	if v == nil {
		c, err := r.newConstant(s)
		if err != nil {
			return nil, err
		}
		v = &variable{now: c}
		r.constants[s] = v
	}
	return r.handle(v, viewOf(t)), nil
}

// newConstant enters a storage that stays.
func (r *core) newConstant(s *tensor.Storage) (*content, error) {
	c := &content{constant: s, size: max(s.BlockSize(), s.Size())}
	if s.Allocator() != r.mem {
		if !r.mem.addForeign(c.size) {
			return nil, fmt.Errorf("remat: Constant: %w", &mem.LimitError{
				Want: c.size, Block: c.size, Live: r.mem.limit.Live(), Limit: r.mem.limit.Limit(),
			})
		}
		c.foreign = c.size
	}
	v, err := r.engine.Constant(c.size)
	if err != nil {
		r.mem.removeForeign(c.foreign)
		return nil, wrap("Constant", err)
	}
	c.data = s.Retain()
	r.enter(c, v)
	return c, nil
}

// enter gives a content its ids.
func (r *core) enter(c *content, v schedule.Value) {
	c.value, c.storage = v, r.engine.Storage(v)
	r.contents[c.storage] = c
}

// handle returns a new handle of a variable, in the runtime's scope.
func (r *Runtime) handle(v *variable, at view) *Tensor {
	v.views++
	t := &Tensor{r: r.core, variable: v, view: at}
	if r.scope != nil {
		r.scope.made = append(r.scope.made, t)
	}
	return t
}

// Release ends the use of t. The memory is freed at once if t was the last of its views and not locked; it may be made
// again later to make others again. It panics if t was released or is locked.
func (t *Tensor) Release() {
	t.r.lock("Release")
	defer t.r.unlock()
	t.mustLive("Release")
	if t.locks > 0 {
		panic(fmt.Sprintf("remat: Release of a tensor %s that is locked", t.Brief()))
	}
	t.release()
}

func (t *Tensor) release() {
	t.released = true
	v := t.variable
	if v.views--; v.views > 0 || t.r.closed {
		return
	}
	if v.now.constant != nil {
		delete(t.r.constants, v.now.constant)
	}
	t.r.engine.Release(v.now.value)
}

// mustLive panics if t was released.
func (t *Tensor) mustLive(call string) {
	if t.released {
		panic(fmt.Sprintf("remat: %s of a tensor %s that was released", call, t.Brief()))
	}
}

// DType returns the type of the elements.
func (t *Tensor) DType() dtype.DType { return t.view.dtype }

// Shape returns the lengths of the axes. The caller may change the slice.
func (t *Tensor) Shape() []int { return slices.Clone(t.view.shape) }

// Dim returns the length of an axis; a negative one counts from the last. It panics if there is no such axis.
func (t *Tensor) Dim(axis int) int {
	n := len(t.view.shape)
	if axis < -n || axis >= n {
		panic(fmt.Sprintf("remat: Dim of axis %d: the shape is %v", axis, t.view.shape))
	}
	return t.view.shape[(axis+n)%n]
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, length := range t.view.shape {
		n *= length
	}
	return n
}

// Brief returns the type and the shape for messages: "float32[2 3]".
func (t *Tensor) Brief() string { return fmt.Sprintf("%v%v", t.view.dtype, t.view.shape) }

// String returns the same as Brief.
func (t *Tensor) String() string { return t.Brief() }

// Resident reports whether t is in memory now.
func (t *Tensor) Resident() bool {
	t.r.lock("Resident")
	defer t.r.unlock()
	t.mustLive("Resident")
	return t.variable.now.data != nil
}

// Lock makes t again if it was evicted, and keeps it in memory until Unlock. The tensor that it returns belongs to t:
// the caller must neither release nor change it. Locks are counted.
func (t *Tensor) Lock() (*tensor.Tensor, error) {
	t.r.lock("Lock")
	defer t.r.unlock()
	t.mustLive("Lock")
	return t.lock()
}

func (t *Tensor) lock() (*tensor.Tensor, error) {
	v := t.variable
	if t.locks == 0 {
		if err := t.r.engine.Lock(v.now.value); err != nil {
			return nil, wrap("Lock of "+t.Brief(), err)
		}
		err := t.r.ready(v.now, false)
		var x *tensor.Tensor
		if err == nil {
			x, err = t.view.of(t.r.place, v.now.data)
		}
		if err != nil {
			t.r.engine.Unlock(v.now.value)
			return nil, wrap("Lock of "+t.Brief(), err)
		}
		t.locked = x
		v.locks++
	}
	t.locks++
	return t.locked, nil
}

// Unlock undoes a Lock. It panics if there is none.
func (t *Tensor) Unlock() {
	t.r.lock("Unlock")
	defer t.r.unlock()
	if t.locks == 0 {
		panic(fmt.Sprintf("remat: Unlock of a tensor %s that is not locked", t.Brief()))
	}
	t.unlock()
}

func (t *Tensor) unlock() {
	if t.locks--; t.locks > 0 {
		return
	}
	t.locked.Release()
	t.locked = nil
	t.variable.locks--
	t.r.engine.Unlock(t.variable.now.value)
}

// View returns a view of t: f is called with t's tensor and returns a view of it, such as (*tensor.Tensor).MT. Views
// are evicted and made again together. t is made again for that if it was evicted.
func (r *Runtime) View(t *Tensor, f func(*tensor.Tensor) (*tensor.Tensor, error)) (*Tensor, error) {
	r.lock("View")
	defer r.unlock()
	if err := r.own("View", t); err != nil {
		return nil, err
	}
	x, err := t.lock()
	if err != nil {
		return nil, err
	}
	defer t.unlock()
	y, err := f(x)
	if err != nil {
		return nil, wrap("View", err)
	}
	if y == nil || !y.SameStorage(x) {
		return nil, fmt.Errorf("remat: View of %s: the function returned %s, which is not a view of it", t.Brief(),
			y.Brief())
	}
	return r.handle(t.variable, viewOf(y)), nil
}

// own returns an error if t is nil or of another runtime, and panics if it was released.
func (r *core) own(call string, t *Tensor) error {
	if t == nil || t.r != r {
		return fmt.Errorf("remat: %s: a tensor is nil or of another runtime", call)
	}
	t.mustLive(call)
	return nil
}

// ToSlice makes t again if it was evicted, waits for it, and returns a copy of its elements, in row-major order. T must
// be the element type of t.
func ToSlice[T dtype.Element](t *Tensor) ([]T, error) {
	x, err := t.Lock()
	if err != nil {
		return nil, err
	}
	defer t.Unlock()
	return tensor.ToSlice[T](x)
}

// A Scope is a runtime that releases the tensors made with it. See Runtime.Scope.
type Scope struct {
	*Runtime
	outer *Scope // nil if the caller of Runtime.Scope has none
	made  []*Tensor
}

// Scope opens a scope. Its Close releases the tensors that were made with its Runtime and are not released yet.
func (r *Runtime) Scope() *Scope {
	s := &Scope{outer: r.scope}
	s.Runtime = &Runtime{core: r.core, scope: s}
	return s
}

// Close releases the tensors of the scope, the last first. A second Close is a no-op. It panics if one is locked.
func (s *Scope) Close() {
	s.lock("Release")
	made := s.made
	s.made = nil
	s.unlock()
	for _, t := range slices.Backward(made) {
		if !t.released {
			t.Release()
		}
	}
}

// Keep removes t from the scope and returns it. The enclosing scope releases it, or the caller if there is none.
func (s *Scope) Keep(t *Tensor) *Tensor {
	s.lock("Keep")
	defer s.unlock()
	if i := slices.Index(s.made, t); i >= 0 {
		s.made = slices.Delete(s.made, i, i+1)
		if s.outer != nil {
			s.outer.made = append(s.outer.made, t)
		}
	}
	return t
}
