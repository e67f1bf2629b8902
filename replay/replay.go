// Package replay runs recorded work on any allocator over any device, compares allocators on it, and finds the minimum
// memory that each needs.
//
// A trace.Program is the work of a recording, without addresses. Run executes it on an allocator, op by op in one
// goroutine, and returns peaks, failures and time:
//
//	p, err := trace.ToProgram(t, trace.ProgramOptions{})
//	...
//	result, err := replay.Run(p, a, dev, replay.Options{})
//
// Works and ScriptWork prepare the work of a snapshot or a script for Compare, which runs it on several allocators (see
// ParseSpec), and for SmallestLimit. A ScriptRun executes scripts of package trace command by command and returns their
// output. Package replay/verify checks that mem/caching follows a recording exactly.
//
// Sizes are bytes. Functions may be called from several goroutines at once, with different allocators and devices; a
// Work may be shared.
//
// # Streams
//
// Each stream of a program becomes a stream of the device, in order, so that their IDs ascend as the recorded handles
// do; the first is the default stream. A deferred free (trace.OpFreeDeferred) names a stream that exists only in the
// replay: it has no work, and its marks are reached when the program completes the free, or at once when the allocator
// waits for them. So deferred frees need no kernels and work the same on every device. An allocator must use such a
// stream only by its methods Mark, Reached and Sync, and must not pass it to a device.
//
// An allocator without pending frees cannot handle these streams: one that reuses freed memory at once and makes
// streams wait for each other on the device (mem/arena), or that waits for the whole device (mem/direct). Wrap it with
// AtOnce. Blocks that were pending in the recording are then free as soon as their free is requested, so the reserved
// peak may be less than Result.RequestedPeak.
//
// # Moving
//
// An allocator that moves blocks (mem.Mover) may move each block at any request, except blocks of private pools, whose
// addresses are in captured graphs. Contents are moved with their blocks and checked at the new address.
//
// # Private pools
//
// An op of a private pool is executed between BeginAllocateToPool and EndAllocateToPool if the allocator has them
// (Pools); other allocators serve it as any other request. Consecutive allocations of one pool share a pair of calls.
package replay

// The only work on streams is that of Contents, so Run does not test the order of work on streams. In a comparison on
// simulated devices, streams count as busy while their blocks are in use, which shows the calls that must wait
// (DriverUse.Stalls). Recorded pauses are not repeated. The streams of deferred frees are internal/deferredfree; there
// are as few as the order of completions allows.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
	"github.com/ashlar-go/ashlar/trace"
)

// Options configure Run. The zero value stops at the first request without room, and measures no time.
type Options struct {
	// Streams are the program's streams on the device, at least as many as the program has. If nil, Run uses the
	// default stream and creates the others, which stay open until the device is closed because the allocator may still
	// refer to them.
	Streams []driver.Stream

	// SkipOOM continues after a request without room, as if its block had never been requested.
	SkipOOM bool

	// Contents writes a pattern into every block, and checks it before the block is freed.
	Contents Contents

	// Drain completes and frees all remaining blocks at the end of the run.
	Drain bool

	// Now returns the current time, for Result.Elapsed. Nil measures no time.
	Now func() time.Time

	// Progress is called after every ProgressOps ops, with the number of ops done. An error ends the run.
	Progress func(ops int) error

	gauge    *gauge // nil: the driver use is not measured
	occupied bool   // on a simulated device, work of the streams uses the blocks: see DriverUse.Stalls
}

// ProgressOps is the number of ops between two calls of Options.Progress.
const ProgressOps = 1 << 16

// A Result is the outcome of a run.
type Result struct {
	Completed bool // every op was run, and every allocation had room, not counting attempts (trace.OpTry)

	Ops         int // ops that were run, including one that failed
	Allocs      int // successful allocations, without attempts
	Frees       int // frees of allocated blocks, including deferred ones
	EmptyCaches int // number of times that the cache was emptied
	Skipped     int // allocations without room, with SkipOOM

	RequestedPeak int64 // requested bytes of active blocks: a block is active until its free completes
	AllocatedPeak int64 // bytes of allocated blocks: a block is allocated until its free is requested
	ReservedPeak  int64 // bytes in segments, if the allocator reports it, otherwise -1

	NumOOMs int   // requests without room, including attempts
	OOMs    []OOM // the first MaxOOMs failures

	Elapsed time.Duration // time of the calls to the allocator, with the loop around them unless Contents is set
}

// MaxOOMs is the number of failures that a Result describes.
const MaxOOMs = 16

// An OOM is a request without room.
type OOM struct {
	Op      int // index into Program.Ops
	Entry   int // index into Trace.Events, or -1 if the op is not from a recording
	Size    int64
	Stream  uint32
	Attempt bool  // it also failed when it was recorded
	Err     error // matches mem.ErrNoMemory
}

// NsPerOp returns the time of an op in nanoseconds, or 0 if it was not measured.
func (r *Result) NsPerOp() float64 {
	if r.Ops == 0 {
		return 0
	}
	return float64(r.Elapsed) / float64(r.Ops)
}

// Pools are the methods of an allocator with private pools, such as mem/caching. From Begin to End, requests on the
// streams for which filter returns true go to the pool. Each Begin adds a user of the pool, which ReleasePool removes.
type Pools interface {
	BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool)
	EndAllocateToPool(id mem.PoolID)
	ReleasePool(id mem.PoolID)
}

// Run executes p on a, an allocator of dev that is not used otherwise during the run. For the peaks to be those of the
// program, a must be new, or must have no allocated blocks and its peaks reset. Private pools keep one user afterwards,
// like a captured graph that still exists.
//
// A request without room is not an error but part of the Result. Errors are an invalid program (*trace.ProgramError),
// contents that changed (*verify.ContentsError), an error of Options.Progress, a failed call of the device, and other
// errors of the allocator; the Result then describes the ops before it.
func Run(p *trace.Program, a mem.Allocator, dev driver.Device, opts Options) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{ReservedPeak: -1}, err
	}
	r := &runner{p: p, a: a, opts: opts, slots: make([]slot, p.Blocks), result: Result{ReservedPeak: -1}}
	if err := r.open(dev); err != nil {
		return r.result, err
	}
	err := r.run()
	r.endPool()
	if opts.gauge != nil {
		opts.gauge.all = opts.gauge.now()
	}
	if err == nil && opts.Drain {
		err = r.drain()
	}
	if r.contents != nil {
		if closed := r.contents.painter.Close(); err == nil {
			err = closed
		}
	}
	r.finish(err)
	return r.result, err
}

// open sets up the streams and finds the optional methods of the allocator.
func (r *runner) open(dev driver.Device) error {
	r.streams = r.opts.Streams
	if r.streams != nil && len(r.streams) < r.p.Streams {
		panic(fmt.Sprintf("replay: Options.Streams has %d streams, the program %d", len(r.streams), r.p.Streams))
	}
	if r.streams == nil {
		r.streams = []driver.Stream{dev.DefaultStream()}
		for len(r.streams) < r.p.Streams {
			s, err := dev.NewStream(driver.StreamOptions{})
			if err != nil {
				return fmt.Errorf("replay: make stream %d of %d: %w", len(r.streams), r.p.Streams, err)
			}
			r.streams = append(r.streams, s)
		}
	}
	var sides int
	r.plan, sides = deferredfree.Plan(r.p)
	var waits *atomic.Int64
	if r.opts.gauge != nil {
		waits = &r.opts.gauge.waits
	}
	r.sides = deferredfree.NewStreams(sides, waits)
	if r.opts.occupied {
		if r.working = occupiable(r.streams); r.working != nil {
			r.users = make([]*sim.Stream, r.p.Blocks)
		}
	}
	r.used = make([]driver.Stream, 1)
	r.trimmer, _ = mem.Find[mem.Trimmer](r.a)
	r.pools, _ = mem.Find[Pools](r.a)
	if r.opts.Contents != NoContents {
		var err error
		if r.contents, err = newContents(r.a, dev, r.opts); err != nil {
			return err
		}
		r.a = r.contents
	}
	r.mover, _ = r.a.(mem.Mover)
	return nil
}

// finish completes the result after the last op.
func (r *runner) finish(err error) {
	res := &r.result
	res.RequestedPeak, res.AllocatedPeak = r.requested.peak, r.allocated.peak
	res.Completed = res.Ops == len(r.p.Ops) && !r.failed && err == nil
	if s, ok := mem.Find[mem.StatsReporter](r.a); ok {
		stats := s.Stats()
		res.ReservedPeak = stats.ReservedBytes.All.Peak
	}
	if r.contents != nil {
		res.Elapsed = r.contents.elapsed
	}
}

// noRoom records that the request of op i failed. It returns errStop if the run ends there.
func (r *runner) noRoom(i int, err error) error {
	op := &r.p.Ops[i]
	if !errors.Is(err, mem.ErrNoMemory) {
		return fmt.Errorf("replay: op %d: allocate %d bytes: %w", i, op.Size, err)
	}
	res := &r.result
	if res.NumOOMs++; res.NumOOMs <= MaxOOMs {
		oom := OOM{Op: i, Entry: -1, Size: op.Size, Stream: op.Stream, Attempt: op.Kind == trace.OpTry, Err: err}
		if r.p.Entries != nil && r.p.Entries[i] != trace.NoEntry {
			oom.Entry = int(r.p.Entries[i])
		}
		res.OOMs = append(res.OOMs, oom)
	}
	if op.Kind == trace.OpTry {
		return nil
	}
	r.failed = true
	if !r.opts.SkipOOM {
		return errStop
	}
	res.Skipped++
	return nil
}

// errStop ends a run early. It is not returned as an error.
var errStop = errors.New("replay: stopped")
