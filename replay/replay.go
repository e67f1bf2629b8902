// Package replay runs recorded work on any allocator over any device, and says what came of it.
//
// A trace.Program is what a recording asked for, without addresses. Run gives it to an allocator in one goroutine, op by
// op, and measures: peaks, failures, time. A ScriptRun does the same for the text form of package trace, one command at
// a time, and prints what the commands say.
//
// # Streams
//
// Each stream of a program becomes a stream of the device, in order, so that their IDs ascend as the recorded handles
// do; the first is the default stream. A free that waits for other streams (trace.OpFreeDeferred) names a side stream
// (sideStream), which exists only here: no work is queued on it, its marks are reached when the program says so, and
// Sync completes them at once, as an allocator that waits for everything expects. So deferred frees need no kernels, and
// replay the same on every device. Side streams are as few as the order of completions allows: frees that complete in
// the order in which they were requested share one (sidePlan).
//
// An allocator may hand a side stream to no device: it must ask it for marks and wait for them by Reached and Sync.
//
// An allocator that hands freed memory out at once, and has streams wait for each other on the device (mem/arena) or waits
// for the whole device (mem/direct), knows no pending frees, nor what to do with a side stream: AtOnce stands between. What
// the recording kept waiting is then free for others as soon as its free was requested, so that less may be reserved than
// Result.RequestedPeak.
//
// # Moving
//
// An allocator that moves blocks (mem.Mover) may move each at any request, but those of private pools: their addresses are
// in captured graphs. Contents follow their blocks, and are checked where those lie last.
//
// # Pools
//
// An op of a private pool is run between BeginAllocateToPool and EndAllocateToPool, if the allocator has them (Pools);
// other allocators serve it like any other. Consecutive allocations of one pool share a pair of calls.
//
// # What it does not do
//
// It queues no work but what Contents asks for, so the order of work on streams is not tested; in a comparison on simulated
// devices streams are said to have work as long as blocks are in use, which tells who must wait for it (DriverUse.Stalls). It
// does not repeat the recorded pauses; it does not compare with recorded addresses.
package replay

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

// Options say how Run runs a program. The zero value stops at the first request without room, and measures no time.
type Options struct {
	// Streams are the program's streams on the device, at least as many as the program has. If nil, Run takes the
	// default stream and makes the others; they stay open until the device is closed, since the allocator knows them.
	Streams []driver.Stream

	// SkipOOM goes on after a request for which there is no room, as though its block had never been asked for.
	SkipOOM bool

	// Contents writes a pattern into every block, and checks it before the block is freed.
	Contents Contents

	// Drain ends the run by completing and freeing all that the program leaves.
	Drain bool

	// Now tells the time, for Result.Elapsed. Nil measures none.
	Now func() time.Time

	// Progress is called after every ProgressOps ops, with the number of ops done. An error ends the run.
	Progress func(ops int) error

	gauge    *gauge // nil: nobody wants to know
	occupied bool   // blocks are in use by work of their streams, of a simulated device: see DriverUse.Stalls
}

// ProgressOps is how many ops lie between two calls of Options.Progress.
const ProgressOps = 1 << 16

// A Result says what came of a run.
type Result struct {
	Completed bool // every op was run, and every allocation had room; attempts (trace.OpTry) aside

	Ops         int // run, the one that failed included
	Allocs      int // that succeeded, attempts aside
	Frees       int // deferred ones too, of blocks that were allocated
	EmptyCaches int // by an allocator that caches; others have nothing to give back
	Skipped     int // allocations without room that the run went on without

	RequestedPeak int64 // bytes asked for, of active blocks: a block is active until its free completes
	AllocatedPeak int64 // bytes of allocated blocks: a block is allocated until its free is requested
	ReservedPeak  int64 // bytes in segments, if the allocator reports it, otherwise -1

	NumOOMs int   // requests without room, attempts included
	OOMs    []OOM // the first MaxOOMs of them

	Elapsed time.Duration // of the calls to the allocator, with the loop around them unless Contents is set
}

// MaxOOMs is how many failures a Result describes.
const MaxOOMs = 16

// An OOM is a request for which there was no room.
type OOM struct {
	Op      int // index into Program.Ops
	Entry   int // index into Trace.Events, or -1 if the op is not from a recording
	Size    int64
	Stream  uint32
	Attempt bool  // it failed when it was recorded too
	Err     error // matches mem.ErrNoMemory
}

// NsPerOp is the time of an op in nanoseconds, or 0 if none was measured.
func (r *Result) NsPerOp() float64 {
	if r.Ops == 0 {
		return 0
	}
	return float64(r.Elapsed) / float64(r.Ops)
}

// Pools is what an allocator with private pools has, as mem/caching does: requests on the streams for which filter says
// true go to the pool from Begin to End; each Begin makes a user of the pool, which ReleasePool takes away.
type Pools interface {
	BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool)
	EndAllocateToPool(id mem.PoolID)
	ReleasePool(id mem.PoolID)
}

// Run runs p on a, an allocator of dev that nothing else uses meanwhile. For the peaks to be the program's, a must be
// fresh, or its peaks reset and nothing allocated. Private pools keep one user afterwards, as a captured graph that is
// still there.
//
// A request without room is no error but part of the Result. The error is that of a program that asks for the
// impossible (*trace.ProgramError), contents that changed (*ContentsError), Options.Progress, a failed call to the
// device, or whatever else the allocator reports; the Result then tells of the ops before it.
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

// open finds the streams, and what a can do beside allocating.
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

// noRoom notes that the request of op i failed. It returns errStop if the run ends there.
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

// errStop ends a run early, without being an error of it.
var errStop = errors.New("replay: stopped")
