// Package remat runs a program of tensors in less memory than it needs, by rematerialization: tensors are evicted when
// memory runs out, and made again, by the operations that made them, when they are read.
//
// A [Runtime] has a budget of device memory. Operations run through it: those of package compute ([Apply], [Apply2]),
// and any function of tensors ([Runtime.Call]). They take and return handles, of type [Tensor], whose memory may be
// evicted. [Runtime.Constant] makes a handle of a tensor that stays, such as a weight.
//
//	r, err := remat.New(place, remat.Config{Budget: 8 << 30})
//	defer r.Close()
//	w, err := r.Constant(weights)
//	y, err := remat.Apply2(r, compute.MatMul, x, w)
//	y, err = remat.Apply(r, compute.Relu, y)
//	numbers, err := remat.ToSlice[float32](y) // y is made again if it was evicted
//
// The numbers are equal, bit for bit, to those of the same program without a budget, if each function makes the same
// results whenever it is called with the same inputs. Random functions say which generators they draw from, and
// functions that change an input say which: see [Op].
//
// The budget limits the memory of all tensors made at [Runtime.Place], also the temporary ones of operations, and the
// constants. It is never exceeded: an allocation first evicts tensors, and fails if that does not make room. The error
// then matches mem.ErrNoMemory. If the allocator itself has no room, the allocation evicts tensors too and tries again;
// so a Runtime without a budget uses the whole device.
//
// Releases matter more than elsewhere: a tensor that is released needs no memory, unless others are made of it again.
// Constants and locked tensors are not evicted, and neither are tensors made by an operation that runs only once (see
// [Op]).
//
// [Runtime.Step] runs one repetition of a program that repeats, such as a training step: once one was recorded, the
// runtime knows when each tensor is read next, and plans by it if that is faster. With [Config.Spill] tensors are also
// copied to the host's memory, where that is faster than making them again.
//
// A Runtime is safe for concurrent use; its calls run one at a time. Work that captures graphs must not run through it.
package remat

// Structure:
//
// Package remat/internal/schedule decides what to evict and what to make again; it knows numbers only. This package has
// the memory. A content is the memory of one storage of the schedule, or nothing while that is evicted. A variable is a
// storage as users see it: an operation that changes it in place replaces its content by a new one. A Tensor is a
// handle: a variable and a view of it, so views need no operations. A work is what the schedule needs to run an
// operation again: its function and its inputs, each a content and a view.
//
// Operations in place: the first run changes the memory of the old content, which the new content takes over. The old
// content counts as evicted; its own operation can make it again for others. To make the new one again, the function
// changes a copy. A constant has no operation, so everything that depends on its old contents is first made and then
// stays (schedule.Engine.Settle).
//
// Copies to the host have streams of their own (spiller). The runtime's stream waits for a copy before it uses,
// changes or frees the memory, so that all frees are in its order. Operations, copies and steps are timed by stamps on
// the streams (costs, linkTimer, trial), which are read when they are reached: nothing waits for them.
//
// Locks: Runtime.mu is held during every call, also while functions run. The functions allocate memory at the runtime's
// place, whose layer (memory) calls back to evict. It knows by the goroutine that the lock is held. A plan is made on
// another goroutine (planning), which has a recording of its own and needs no lock.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/ashlar-go/ashlar/tensor"
)

// Config has the settings of a Runtime.
type Config struct {
	// Budget is the most device memory, in bytes, that tensors may take at a time: those made at the runtime's place
	// and the constants. 0 means no budget: only an allocator without room evicts.
	Budget int64
	// Policy is the name of the policy that chooses the tensors to evict: see Policies. Empty means the best of them.
	Policy string
	// Spill copies tensors to the host's memory, if that is faster than to make them again.
	Spill Spill
}

// A Runtime runs operations within a budget of memory. See the documentation of the package.
type Runtime struct {
	*core
	scope *Scope // of the results; nil: the caller releases them
}

// A core is what a Runtime and its scopes share.
type core struct {
	place *tensor.Place // the place that New was given, with memory as its allocator
	mem   *memory
	costs *costs

	mu     sync.Mutex
	holder atomic.Uintptr // the goroutine that holds mu, as goroutine.ID tells it; 0 if none does

	engine     *schedule.Engine
	contents   map[schedule.Storage]*content
	works      map[schedule.Op]*work
	constants  map[*tensor.Storage]*variable
	spill      *spiller // nil without spilling
	steps      steps
	operations int64
	closed     bool
}

// New returns a runtime for work at p: on its device and stream, with memory of its allocator. Close the runtime before
// p.
func New(p *tensor.Place, c Config) (*Runtime, error) {
	if c.Budget < 0 {
		return nil, fmt.Errorf("remat: New: a budget of %d bytes: want 0 or more", c.Budget)
	}
	policy := schedule.Default()
	if c.Policy != "" {
		var err error
		if policy, err = schedule.NewPolicy(c.Policy); err != nil {
			return nil, err
		}
	}
	r := &core{
		costs:    newCosts(p),
		contents: map[schedule.Storage]*content{}, works: map[schedule.Op]*work{},
		constants: map[*tensor.Storage]*variable{},
	}
	r.mem = newMemory(p.Allocator(), cmp.Or(c.Budget, math.MaxInt64), r.makeRoom)
	r.place = p.Unscoped().WithAllocator(r.mem)
	config := schedule.Config{Budget: c.Budget, Policy: policy}
	if c.Spill.Limit > 0 {
		var err error
		if r.spill, err = newSpiller(r.place, c.Spill); err != nil {
			return nil, err
		}
		config.Link.BytesPerSecond, config.HostLimit = cmp.Or(c.Spill.Bandwidth, usualLink), c.Spill.Limit
	}
	r.engine = schedule.New(config, (*executor)(r))
	return &Runtime{core: r}, nil
}

// Place returns the place at which operations run: that of New, with the memory of the budget. Constants that are made
// there count once.
func (r *core) Place() *tensor.Place { return r.place }

// Evict evicts tensors of at least size bytes, or as many as it can, and returns their bytes. Allocations at the
// runtime's place do it themselves. For others of the same device it can be a step of layer.NewRetry.
func (r *core) Evict(size int64) int64 { return r.makeRoom(size) }

// makeRoom is Evict, also inside of operations.
func (r *core) makeRoom(size int64) int64 {
	if r.holder.Load() != goroutine.ID() {
		r.lock("an allocation")
		defer r.unlock()
	}
	return r.engine.Reclaim(size)
}

// lock begins a call. It panics if the runtime is closed, or if a function of an operation makes the call.
func (r *core) lock(call string) {
	if r.holder.Load() == goroutine.ID() {
		panic("remat: " + call + " inside an operation: its function must use the tensors it is given only")
	}
	r.mu.Lock()
	r.holder.Store(goroutine.ID())
	if r.closed && call != "Close" && call != "Release" {
		r.unlock()
		panic("remat: " + call + " of a closed runtime")
	}
}

func (r *core) unlock() {
	r.holder.Store(0)
	r.mu.Unlock()
}

// Close releases the memory of all tensors, and ends a plan that is being made. Tensors of the runtime may be released
// afterwards, and not used otherwise.
// A second Close is a no-op.
func (r *core) Close() error {
	r.lock("Close")
	defer r.unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	for s, c := range r.contents {
		r.forget(c)
		delete(r.contents, s)
	}
	clear(r.constants)
	err := errors.Join(r.steps.making.cancel(), r.costs.close(), r.steps.trial.discard(r.costs.timing))
	if r.spill != nil {
		err = errors.Join(err, r.spill.close())
	}
	return err
}

// Stats are the figures of a Runtime.
type Stats struct {
	Budget int64 // bytes; 0 if there is none
	Used   int64 // bytes of memory in use, with the constants
	Peak   int64 // the largest Used

	Operations   int64 // that were announced
	Planned      int64 // steps that followed a plan: see Runtime.Step
	Evictions    int64 // storages that were evicted
	EvictedBytes int64
	Remade       int64 // operations that were run again
	RemadeNs     int64 // time that they took
	CopiedOut    int64 // bytes copied to the host
	CopiedIn     int64 // bytes copied back
	StallNs      int64 // time that work waited for copies, as estimated from Spill.Bandwidth
	Host         int64 // bytes of copies on the host now
	HostPeak     int64 // the largest Host
	ComputeNs    int64 // time of all operations, these included
}

// Stats returns the figures of the runtime so far. Times are known once the device has done the work.
func (r *core) Stats() Stats {
	r.lock("Stats")
	defer r.unlock()
	r.poll()
	s := r.engine.Stats()
	return Stats{
		Budget: s.Budget, Used: r.mem.used(), Peak: r.mem.peak.Load(),
		Operations: r.operations, Planned: r.steps.planned, Evictions: s.Evictions, EvictedBytes: s.EvictedBytes,
		Remade: s.Recomputes, RemadeNs: s.RecomputeNs,
		CopiedOut: s.CopiedOut, CopiedIn: s.CopiedIn, StallNs: s.StallNs, Host: s.Host, HostPeak: s.HostPeak,
		ComputeNs: s.ComputeNs,
	}
}

// poll takes the times of operations and copies that are done.
func (r *core) poll() {
	r.costs.poll(r.engine)
	if r.spill != nil {
		r.spill.timer.poll(r.engine)
	}
}

// A budgetError is an operation that does not fit. It matches mem.ErrNoMemory.
type budgetError struct{ *schedule.NoMemory }

func (budgetError) Is(target error) bool { return target == mem.ErrNoMemory }

// wrap adds the context of a call to an error of the schedule.
func wrap(call string, err error) error {
	var full *schedule.NoMemory
	switch {
	case err == nil:
		return nil
	case errors.As(err, &full):
		return budgetError{full}
	}
	return fmt.Errorf("remat: %s: %w", call, err)
}
