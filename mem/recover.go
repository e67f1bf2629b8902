package mem

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// A Step makes room for a request of size bytes on s that found none: it spills tensors to the host, compacts, or empties
// a cache. It says with an error that it could do nothing. Many requests may take a step at once.
type Step func(s driver.Stream, size int64) error

// CompactStep returns a step that moves the blocks of the topmost layer of a that is a Compactor together, on the
// stream of the request. It panics if there is none.
func CompactStep(a Allocator) Step {
	c, ok := Find[Compactor](a)
	if !ok {
		panic("mem: CompactStep of an allocator that does not compact")
	}
	return func(s driver.Stream, _ int64) error { return c.Compact(s) }
}

// TrimStep returns a step that empties the cache of the topmost layer of a that is a Trimmer, which may be another
// allocator of the same device. It panics if there is none.
func TrimStep(a Allocator) Step {
	t, ok := Find[Trimmer](a)
	if !ok {
		panic("mem: TrimStep of an allocator that is no Trimmer")
	}
	return func(driver.Stream, int64) error { return t.EmptyCache() }
}

// A Recovering allocator makes room and asks again. See Recover.
type Recovering struct {
	inner Allocator
	steps []Step

	mu   sync.Mutex
	busy []uintptr // goroutines that take steps
}

// Recover returns an allocator that, when a has no room (an error that matches ErrNoMemory; no other), takes the steps in
// their order, each once for a request, and asks a again after each that did not fail, until the request succeeds. It
// is RMM's failure_callback_resource_adaptor, with a list that ends. If nothing helped, the error is that of the last time
// a was asked, joined with those of the steps.
//
// A step that allocates through here itself, on the goroutine that called it, and finds no room, is told so at once: steps
// do not recover for steps. One that has another goroutine allocate, and waits for it, asks for endless depth; let it
// allocate from the layer below. No lock is held while steps run. A request that finds room costs nothing more.
func Recover(a Allocator, steps ...Step) *Recovering {
	return &Recovering{inner: a, steps: slices.Clone(steps)}
}

// Alloc implements Allocator.
func (r *Recovering) Alloc(s driver.Stream, size int64) (Block, error) {
	b, err := r.inner.Alloc(s, size)
	if err == nil || !errors.Is(err, ErrNoMemory) {
		return b, err
	}
	return r.recover(s, size, AllocOptions{}, err)
}

// AllocWith implements Optioned. With NoRetry no step is taken.
func (r *Recovering) AllocWith(s driver.Stream, size int64, o AllocOptions) (Block, error) {
	b, err := AllocWith(r.inner, s, size, o)
	if err == nil || o.NoRetry || !errors.Is(err, ErrNoMemory) {
		return b, err
	}
	return r.recover(s, size, o, err)
}

func (r *Recovering) recover(s driver.Stream, size int64, o AllocOptions, err error) (Block, error) {
	self := goroutine.ID()
	r.mu.Lock()
	nested := slices.Contains(r.busy, self)
	if !nested {
		r.busy = append(r.busy, self)
	}
	r.mu.Unlock()
	if nested {
		return Block{}, err
	}
	defer func() { // a step may panic
		r.mu.Lock()
		i := slices.Index(r.busy, self)
		r.busy = slices.Delete(r.busy, i, i+1)
		r.mu.Unlock()
	}()
	var failed []error
	for i, step := range r.steps {
		if wrong := step(s, size); wrong != nil {
			failed = append(failed, fmt.Errorf("mem: Recover: step %d of %d: %w", i+1, len(r.steps), wrong))
			continue
		}
		var b Block
		if b, err = AllocWith(r.inner, s, size, o); err == nil {
			return b, nil
		}
		if !errors.Is(err, ErrNoMemory) { // alone: joined with what a step said it might pass for want of memory
			return Block{}, err
		}
	}
	if failed == nil {
		return Block{}, err
	}
	return Block{}, errors.Join(append([]error{err}, failed...)...)
}

// Free implements Allocator.
func (r *Recovering) Free(b Block, used ...driver.Stream) { r.inner.Free(b, used...) }

// Movable implements Mover: blocks are those of the layer below.
func (r *Recovering) Movable(b Block, h Holder) bool { return Movable(r.inner, b, h) }

// Unwrap implements Wrapper.
func (r *Recovering) Unwrap() Allocator { return r.inner }
