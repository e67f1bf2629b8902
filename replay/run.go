package replay

import (
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
	"github.com/ashlar-go/ashlar/trace"
)

// A runner is the state of Run.
type runner struct {
	p    *trace.Program
	a    mem.Allocator
	opts Options

	streams []driver.Stream
	working []*sim.Stream // the same streams, if work uses the blocks; otherwise nil
	slots   []slot        // by block number
	users   []*sim.Stream // by block number: the stream whose work uses it; nil if working is nil
	trimmer mem.Trimmer
	pools   Pools
	mover   mem.Mover // nil if the allocator does not move blocks

	plan  []deferredfree.Mark // of each OpFreeDeferred and OpComplete, in order; consumed from the front
	sides []*deferredfree.Stream
	used  []driver.Stream // of length 1, so that Free's variable arguments allocate nothing

	pool      uint16 // pool of the next requests; 0 for the default
	poolBegun []bool // by index: the pool has a user

	contents  *contents
	requested level
	allocated level
	failed    bool
	result    Result
}

// A slot is a block of the program. It is zero if the block was skipped or is not allocated yet.
type slot struct {
	block     mem.Block
	requested int64
}

// BeginMove implements mem.Holder. Between two ops the address of a block is not in use, except by work of its own
// stream.
func (s *slot) BeginMove() (used []driver.Stream, ok bool) { return nil, true }

// EndMove implements mem.Holder. Later work is that of the allocator and of contents, which wait for the move
// themselves.
func (s *slot) EndMove(b mem.Block, _ driver.Stream) { s.block = b }

// A level is a quantity and its peak.
type level struct{ now, peak int64 }

func (l *level) add(n int64) { l.now += n; l.peak = max(l.peak, l.now) }

// run runs the ops, span by span.
func (r *runner) run() error {
	span := ProgressOps
	if r.contents != nil {
		span = 1 // so that changed contents are found at their op
	}
	for from := 0; from < len(r.p.Ops); {
		to := min(from+span-from%span, len(r.p.Ops))
		if r.opts.gauge != nil {
			to = r.opts.gauge.before(from, to)
		}
		var start time.Time
		if r.opts.Now != nil {
			start = r.opts.Now()
		}
		done, err := r.span(from, to)
		if r.opts.Now != nil {
			r.result.Elapsed += r.opts.Now().Sub(start)
		}
		r.result.Ops += done
		if r.contents != nil && err == nil {
			err = r.contents.failure(from)
		}
		if err == errStop {
			return nil
		}
		if err != nil {
			return err
		}
		from = to
		if r.opts.Progress != nil && (from%ProgressOps == 0 || from == len(r.p.Ops)) {
			if err := r.opts.Progress(from); err != nil {
				return err
			}
		}
	}
	return nil
}

// span runs the ops [from, to) and returns the number of ops that it ran. This is the hot loop of a replay: it uses no
// maps and does not allocate.
func (r *runner) span(from, to int) (done int, err error) {
	a, slots := r.a, r.slots
	requested, allocated := r.requested, r.allocated
	for i := from; i < to && err == nil; i++ {
		done++
		op := &r.p.Ops[i]
		switch op.Kind {
		case trace.OpAlloc:
			if op.Pool != r.pool {
				r.enterPool(op.Pool)
			}
			b, failure := a.Alloc(r.streams[op.Stream], op.Size)
			if failure != nil {
				err = r.noRoom(i, failure)
				continue
			}
			s := &slots[op.Block]
			*s = slot{b, op.Size}
			if r.users != nil && b != (mem.Block{}) {
				user := r.working[op.Stream]
				r.users[op.Block] = user
				user.Occupy()
			}
			if r.mover != nil && op.Pool == 0 && b != (mem.Block{}) {
				r.mover.Movable(b, s)
			}
			requested.add(op.Size)
			allocated.add(b.Size)
			r.result.Allocs++
		case trace.OpFree:
			s := &slots[op.Block]
			if s.block == (mem.Block{}) {
				continue // skipped
			}
			if r.users != nil {
				r.users[op.Block].Occupy()
			}
			a.Free(s.block)
			requested.now -= s.requested
			allocated.now -= s.block.Size
			r.result.Frees++
		case trace.OpFreeDeferred:
			s := &slots[op.Block]
			at := r.plan[0]
			r.plan = r.plan[1:]
			side := r.sides[at.Stream]
			side.Queued.Store(at.Tick)
			if s.block == (mem.Block{}) {
				continue
			}
			if r.users != nil {
				r.users[op.Block].Occupy()
			}
			r.leavePool()
			r.used[0] = side
			a.Free(s.block, r.used...)
			allocated.now -= s.block.Size
			r.result.Frees++
		case trace.OpComplete:
			s := &slots[op.Block]
			at := r.plan[0]
			r.plan = r.plan[1:]
			side := r.sides[at.Stream]
			if r.contents != nil && s.block != (mem.Block{}) {
				r.contents.completed(s.block, at, side.Done.Load() >= at.Tick)
			}
			side.Complete(at.Tick)
			requested.now -= s.requested
		case trace.OpEmptyCache:
			r.leavePool()
			if r.trimmer == nil {
				continue
			}
			r.result.EmptyCaches++
			if failure := r.trimmer.EmptyCache(); failure != nil {
				err = fmt.Errorf("replay: op %d: empty the cache: %w", i, failure)
			}
		case trace.OpTry:
			if op.Pool != r.pool {
				r.enterPool(op.Pool)
			}
			b, failure := a.Alloc(r.streams[op.Stream], op.Size)
			if failure != nil {
				err = r.noRoom(i, failure)
				continue
			}
			a.Free(b)
		}
	}
	r.requested, r.allocated = requested, allocated
	return done, err
}

func everyStream(driver.Stream) bool { return true }

// enterPool directs the following requests to a pool of the program.
func (r *runner) enterPool(pool uint16) {
	r.endPool()
	if r.pool = pool; pool != 0 && r.pools != nil {
		r.pools.BeginAllocateToPool(r.p.Pools[pool], everyStream)
	}
}

// leavePool returns to the default pool if requests go to another pool.
func (r *runner) leavePool() {
	if r.pool != 0 {
		r.endPool()
	}
}

// endPool reverses enterPool. The user that the pool's first Begin added stays; those of later ones are removed.
func (r *runner) endPool() {
	pool := r.pool
	if r.pool = 0; pool == 0 || r.pools == nil {
		return
	}
	id := r.p.Pools[pool]
	r.pools.EndAllocateToPool(id)
	if r.poolBegun == nil {
		r.poolBegun = make([]bool, len(r.p.Pools))
	}
	if r.poolBegun[pool] {
		r.pools.ReleasePool(id)
	}
	r.poolBegun[pool] = true
}

// drain completes pending frees and frees the remaining blocks, in the order of the blocks' numbers.
func (r *runner) drain() error {
	for _, s := range r.sides {
		s.Complete(s.Queued.Load())
	}
	live := make([]bool, len(r.slots))
	for i := range r.p.Ops[:r.result.Ops] {
		switch op := &r.p.Ops[i]; op.Kind {
		case trace.OpAlloc:
			live[op.Block] = true
		case trace.OpFree, trace.OpFreeDeferred:
			live[op.Block] = false
		}
	}
	for n, s := range r.slots {
		if !live[n] || s.block == (mem.Block{}) {
			continue
		}
		r.a.Free(s.block)
		if r.contents != nil {
			if err := r.contents.failure(r.result.Ops - 1); err != nil {
				return err
			}
		}
	}
	return nil
}
