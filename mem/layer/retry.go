package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/waiting"
)

// A Step makes room for a request of size bytes on s that failed for lack of memory: it spills tensors to the host,
// compacts, or empties a cache. It returns an error if it could not. Several requests may run a step at once.
type Step func(s driver.Stream, size int64) error

// CompactStep returns a step that compacts the topmost Compactor of a, on the stream of the request. It panics if there
// is none.
func CompactStep(a mem.Allocator) Step {
	c, ok := mem.Find[mem.Compactor](a)
	if !ok {
		panic("layer: CompactStep of an allocator that does not compact")
	}
	return func(s driver.Stream, _ int64) error { return c.Compact(s) }
}

// TrimStep returns a step that empties the cache of the topmost Trimmer of a, which may be another allocator of the
// same device. It panics if there is none.
func TrimStep(a mem.Allocator) Step {
	t, ok := mem.Find[mem.Trimmer](a)
	if !ok {
		panic("layer: TrimStep of an allocator that is no Trimmer")
	}
	return func(driver.Stream, int64) error { return t.EmptyCache() }
}

// A WaitContext returns the context of a request that waits for memory: the request waits until the context ends. The
// CancelFunc is called after the wait.
type WaitContext func() (context.Context, context.CancelFunc)

// WaitTimeout returns a WaitContext that ends after limit. It calls context.WithTimeoutCause.
func WaitTimeout(limit time.Duration) WaitContext {
	return func() (context.Context, context.CancelFunc) {
		cause := fmt.Errorf("no room within %v: %w", limit, context.DeadlineExceeded)
		return context.WithTimeoutCause(context.Background(), limit, cause)
	}
}

// RetryOptions determine how a Retry makes room. The zero value does nothing.
type RetryOptions struct {
	// Steps run in order, each once for a request. After each that returns nil the allocator below is asked again. It
	// is RMM's failure_callback_resource_adaptor with a finite list.
	Steps []Step

	// Wait, if not nil, makes a request that finds no room even after the steps wait until other goroutines free
	// memory. The allocator below is asked again after each Free through the Retry, and a last time when the context
	// ends. It is TensorFlow's AllocatorRetry, which waits for 10 seconds: WaitTimeout(10 * time.Second).
	Wait WaitContext
}

// A Retry makes room or waits when the allocator below has no room, and then asks it again. See NewRetry.
type Retry struct {
	Pass
	opts RetryOptions
	gate waiting.Gate

	mu   sync.Mutex
	busy []uintptr // goroutines that run steps
}

// NewRetry returns an allocator that asks a again when a has no room (an error that matches mem.ErrNoMemory): after
// steps that make room, and then after each Free, as the options say. The error is the last one of a, joined with those
// of the steps and the end of the context.
//
// All attempts but the last use AllocOptions.Tentative, so a request that succeeds in the end does not count as out of
// memory. A request for more than the limit of a (see mem.LimitOf) or than 1 EiB does not wait. A request with
// AllocOptions.NoRetry neither runs steps nor waits.
//
// A step that allocates through the Retry itself, on the same goroutine, and finds no room, fails at once. A step must
// not wait for another goroutine that allocates through the Retry; let that one use the allocator below. No lock is
// held while steps run. A request that finds room has no additional cost.
func NewRetry(a mem.Allocator, o RetryOptions) *Retry {
	o.Steps = slices.Clone(o.Steps)
	return &Retry{Pass: Pass{a}, opts: o}
}

// Alloc implements mem.Allocator.
func (r *Retry) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return r.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator.
func (r *Retry) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	return r.alloc(s, size, o, r.opts.Wait)
}

// AllocWait is AllocWith that waits until ctx ends, instead of as long as RetryOptions.Wait says. If ctx ends, the
// error also matches its cause.
func (r *Retry) AllocWait(ctx context.Context, s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	return r.alloc(s, size, o, func() (context.Context, context.CancelFunc) { return ctx, func() {} })
}

// Wake makes the waiting requests ask again. Call it when memory was freed other than by a Free through r: when a cache
// was emptied, a block was freed through the allocator below, or another program freed memory.
func (r *Retry) Wake() { r.gate.Wake() }

func (r *Retry) alloc(s driver.Stream, size int64, o mem.AllocOptions, wait WaitContext) (mem.Block, error) {
	if o.NoRetry || len(r.opts.Steps) == 0 && wait == nil {
		return mem.AllocWith(r.Below, s, size, o)
	}
	tentative := o
	tentative.Tentative = true
	b, err := mem.AllocWith(r.Below, s, size, tentative)
	if err == nil || !errors.Is(err, mem.ErrNoMemory) {
		return b, err
	}
	return r.retry(&attempt{r: r, s: s, size: size, o: o, err: err, tentative: true}, wait)
}

// An attempt is a request that found no room.
type attempt struct {
	r    *Retry
	s    driver.Stream
	size int64
	o    mem.AllocOptions

	b         mem.Block // result of the last ask
	err       error
	tentative bool // whether the last ask was tentative
}

// ask asks once more, tentatively or for good, and reports whether the request has ended.
func (t *attempt) ask(tentative bool) bool {
	o := t.o
	o.Tentative = o.Tentative || tentative
	t.tentative = tentative
	t.b, t.err = mem.AllocWith(t.r.Below, t.s, t.size, o)
	return t.err == nil || !errors.Is(t.err, mem.ErrNoMemory)
}

// retry makes room and waits. It then asks a last time, without AllocOptions.Tentative.
func (r *Retry) retry(t *attempt, wait WaitContext) (mem.Block, error) {
	failed, ended := r.makeRoom(t, wait)
	if ended || t.tentative && t.ask(false) {
		return t.b, t.err
	}
	if failed == nil {
		return mem.Block{}, t.err
	}
	return mem.Block{}, errors.Join(append([]error{t.err}, failed...)...)
}

// makeRoom runs the steps and waits. It returns their errors, and whether the request has ended.
func (r *Retry) makeRoom(t *attempt, wait WaitContext) (failed []error, ended bool) {
	if !r.enter() {
		return nil, false
	}
	defer r.leave() // a step may panic
	steps := r.opts.Steps
	for i, step := range steps {
		if wrong := step(t.s, t.size); wrong != nil {
			failed = append(failed, fmt.Errorf("layer: Retry: step %d of %d: %w", i+1, len(steps), wrong))
		} else if t.ask(wait != nil || i+1 < len(steps)) {
			return nil, true
		}
	}
	if wait == nil || r.cannotFit(t) {
		return failed, false
	}
	ctx, cancel := wait()
	defer cancel()
	if cause := r.gate.Wait(ctx, func() bool { return t.ask(true) }); cause != nil {
		return append(failed, fmt.Errorf("layer: Retry: waited for memory: %w", cause)), false
	}
	return nil, true
}

// cannotFit reports whether no Free can make room for a request.
func (r *Retry) cannotFit(t *attempt) bool {
	var oom *mem.OutOfMemory
	if errors.As(t.err, &oom) && oom.TooLarge {
		return true
	}
	_, two := mem.Find[*Fallback](r.Below)
	_, many := mem.Find[*Binning](r.Below)
	limit, limited := mem.LimitOf(r.Below)
	return limited && t.size > limit && !two && !many // other allocators may have no limit
}

// enter records that this goroutine runs steps. It reports false if the goroutine already does.
func (r *Retry) enter() bool {
	self := goroutine.ID()
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.busy, self) {
		return false
	}
	r.busy = append(r.busy, self)
	return true
}

// leave undoes enter.
func (r *Retry) leave() {
	self := goroutine.ID()
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.busy, self)
	r.busy = slices.Delete(r.busy, i, i+1)
}

// Free implements mem.Allocator.
func (r *Retry) Free(b mem.Block, used ...driver.Stream) {
	r.Below.Free(b, used...)
	r.gate.Wake()
}
