package diagnose

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// Specs of package replay.
const (
	defaults   = "caching:"
	expandable = "caching:expandable_segments:True"
)

// trials replay the requests up to the failed one, which must succeed.
type trials struct {
	work     *replay.Work
	program  *trace.Program // up to the failed request
	capacity int64          // of the simulated device: so much that it never refuses
}

func newTrials(w *replay.Work, op int) trials {
	upTo := *w.Program
	if op >= 0 {
		upTo.Ops, upTo.Entries = upTo.Ops[:op+1:op+1], upTo.Entries[:op+1:op+1]
	}
	unlimited := *w // the limit is that of each trial
	unlimited.Recorded.Limit, unlimited.Recorded.MemoryFraction = 0, 1
	t := trials{work: &unlimited, program: &upTo}
	t.capacity = max(replay.H200Memory, 4*w.Program.LowerBound(), 2*w.RecordedReserved)
	t.capacity = min(t.capacity, maxCapacity)
	return t
}

// maxCapacity is the most memory that a simulated device has here, in bytes: 1 PiB.
const maxCapacity = 1 << 50

// fits reports whether an allocator serves all requests of a program while it reserves at most limit bytes; 0 is no
// limit.
func (t *trials) fits(spec string, p *trace.Program, limit int64) (bool, error) {
	row, err := t.run(spec, p, limit)
	return err == nil && row.Completed(), err
}

func (t *trials) run(spec string, p *trace.Program, limit int64) (replay.Row, error) {
	w := *t.work
	w.Program = p
	return replay.Simulate(&w, spec, limit, t.capacity)
}

// onePool returns p with the requests of all private pools directed to the first of them.
func onePool(p *trace.Program) *trace.Program {
	return changed(p, func(op *trace.Op) {
		if op.Pool > 1 {
			op.Pool = 1
		}
	})
}

// noPools returns p with all requests directed to the default pool.
func noPools(p *trace.Program) *trace.Program {
	return changed(p, func(op *trace.Op) { op.Pool = 0 })
}

// oneStream returns p with all requests on the stream of its last one, where memory can be reused as soon as its free
// is requested.
func oneStream(p *trace.Program) *trace.Program {
	one := changed(p, func(op *trace.Op) {
		op.Stream = 0
		if op.Kind == trace.OpFreeDeferred {
			op.Kind = trace.OpFree
		}
	})
	keep := func(op *trace.Op) bool { return op.Kind != trace.OpComplete }
	one.Ops, one.Entries = filtered(one, keep)
	one.Streams = 1
	return one
}

// changed returns a copy of p in which change was called for each op.
func changed(p *trace.Program, change func(*trace.Op)) *trace.Program {
	c := *p
	c.Ops = slices.Clone(p.Ops)
	for i := range c.Ops {
		change(&c.Ops[i])
	}
	return &c
}

// filtered returns the ops of p to keep, with their entries.
func filtered(p *trace.Program, keep func(*trace.Op) bool) (ops []trace.Op, entries []uint32) {
	for i := range p.Ops {
		if keep(&p.Ops[i]) {
			ops, entries = append(ops, p.Ops[i]), append(entries, p.Entries[i])
		}
	}
	return ops, entries
}

// privatePools returns the number of private pools of the requests of p.
func privatePools(p *trace.Program) int {
	used := map[uint16]bool{}
	for i := range p.Ops {
		if op := &p.Ops[i]; op.Kind == trace.OpAlloc && p.Pools[op.Pool] != (mem.PoolID{}) {
			used[op.Pool] = true
		}
	}
	return len(used)
}
