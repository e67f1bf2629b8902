package trace

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// A ProgramError reports an invalid op of a program.
type ProgramError struct {
	Op   int // index into Program.Ops
	What string
}

func (e *ProgramError) Error() string { return fmt.Sprintf("trace: op %d: %s", e.Op, e.What) }

// Check verifies that p can be run: block, stream and pool numbers are in range, and every block is allocated once,
// then freed at most once, then completed at most once and only if its free was deferred. Programs of ToProgram and
// Script.Program are always valid. The error is a *ProgramError.
func (p *Program) Check() error {
	const (
		unborn = iota
		live
		pending
		gone
	)
	fail := func(i int, format string, args ...any) error {
		return &ProgramError{Op: i, What: fmt.Sprintf(format, args...)}
	}
	state := make([]uint8, p.Blocks)
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case OpEmptyCache:
			continue
		case OpAlloc, OpTry:
			if int(op.Stream) >= p.Streams {
				return fail(i, "stream %d of %d", op.Stream, p.Streams)
			}
			if int(op.Pool) >= len(p.Pools) && op.Pool != 0 {
				return fail(i, "pool %d of %d", op.Pool, len(p.Pools))
			}
			if op.Size < 0 {
				return fail(i, "size %d", op.Size)
			}
			if op.Kind == OpTry {
				continue
			}
		case OpFree, OpFreeDeferred, OpComplete:
		default:
			return fail(i, "unknown kind %d", op.Kind)
		}
		if int(op.Block) >= p.Blocks {
			return fail(i, "block %d of %d", op.Block, p.Blocks)
		}
		from, to, what := uint8(unborn), uint8(live), "allocated twice"
		switch op.Kind {
		case OpFree:
			from, to, what = live, gone, "freed, but not allocated"
		case OpFreeDeferred:
			from, to, what = live, pending, "freed, but not allocated"
		case OpComplete:
			from, to, what = pending, gone, "completed, but no deferred free waits"
		}
		if state[op.Block] != from {
			return fail(i, "block %d %s", op.Block, what)
		}
		state[op.Block] = to
	}
	return nil
}

// ProgramStats are statistics of the requests of a program, independent of the allocator. Bytes are requested bytes.
// Attempts (OpTry) count only in Attempts.
type ProgramStats struct {
	Allocs        int
	Frees         int // including deferred ones
	DeferredFrees int
	EmptyCaches   int
	Attempts      int

	AllocatedBytes int64 // sum over all allocations
	PeakBytes      int64 // the maximum of the active bytes: a block is active until its free completes
	PeakOp         int   // the op that first reached the peak
	LiveBlocks     int   // not freed by the end
	LiveBytes      int64
	PendingBlocks  int // freed by the end, but not complete
	PendingBytes   int64

	Streams []StreamStats // one for each of the program's streams
	Sizes   SizeHistogram
}

// StreamStats are the figures of the blocks of one stream.
type StreamStats struct {
	Allocs         int
	AllocatedBytes int64
	PeakBytes      int64 // the maximum for this stream's blocks, at any time
}

// A SizeHistogram counts allocations by size. Class 0 is size 0, and class n sizes from 1<<(n-1) up to but not
// including 1<<n.
type SizeHistogram [64]SizeClass

// A SizeClass is one class of a SizeHistogram.
type SizeClass struct {
	Allocs int
	Bytes  int64
}

// SizeClassOf returns the class of a size, which must not be negative.
func SizeClassOf(size int64) int { return bits.Len64(uint64(size)) }

// Bounds returns the smallest and the largest size of a class.
func (h *SizeHistogram) Bounds(class int) (least, most int64) {
	if class == 0 {
		return 0, 0
	}
	return 1 << (class - 1), 1<<class - 1
}

// Stats returns the figures of p, which must be valid (see Check).
func (p *Program) Stats() ProgramStats {
	s := ProgramStats{Streams: make([]StreamStats, p.Streams)}
	type block struct {
		size   int64
		stream uint32
	}
	blocks := make([]block, p.Blocks)
	active := make([]int64, p.Streams)
	var total int64
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case OpAlloc:
			blocks[op.Block] = block{op.Size, op.Stream}
			total += op.Size
			if total > s.PeakBytes {
				s.PeakBytes, s.PeakOp = total, i
			}
			active[op.Stream] += op.Size
			s.Allocs++
			s.AllocatedBytes += op.Size
			s.LiveBlocks++
			s.LiveBytes += op.Size
			st := &s.Streams[op.Stream]
			st.Allocs++
			st.AllocatedBytes += op.Size
			st.PeakBytes = max(st.PeakBytes, active[op.Stream])
			class := &s.Sizes[SizeClassOf(op.Size)]
			class.Allocs++
			class.Bytes += op.Size
		case OpFree, OpFreeDeferred:
			b := blocks[op.Block]
			s.Frees++
			s.LiveBlocks--
			s.LiveBytes -= b.size
			if op.Kind == OpFree {
				total -= b.size
				active[b.stream] -= b.size
				continue
			}
			s.DeferredFrees++
			s.PendingBlocks++
			s.PendingBytes += b.size
		case OpComplete:
			b := blocks[op.Block]
			total -= b.size
			active[b.stream] -= b.size
			s.PendingBlocks--
			s.PendingBytes -= b.size
		case OpEmptyCache:
			s.EmptyCaches++
		case OpTry:
			s.Attempts++
		}
	}
	return s
}

// LowerBound returns the minimum number of bytes that serve all of p: the peak of the active bytes. An attempt (OpTry)
// counts together with the bytes active at that moment, because an allocator that serves every request has room for
// both. Sums above the largest int64 are math.MaxInt64. P must be valid (see Check).
func (p *Program) LowerBound() (bytes int64) {
	p.requests(func(_ int, active int64) { bytes = max(bytes, active) })
	return bytes
}

// Within returns p without the attempts (OpTry) that, together with the bytes active at that moment, need more than
// limit bytes: no allocator with that much memory has room for them. It returns p itself if there are none. The
// programs share no data that either changes. P must be valid (see Check).
func (p *Program) Within(limit int64) *Program {
	var hopeless []int
	p.requests(func(op int, active int64) {
		if p.Ops[op].Kind == OpTry && active > limit {
			hopeless = append(hopeless, op)
		}
	})
	if len(hopeless) == 0 {
		return p
	}
	within := *p
	within.Ops = without(p.Ops, hopeless)
	if p.Entries != nil {
		within.Entries = without(p.Entries, hopeless)
	}
	return &within
}

// Part returns the ops [from, to) of p as a program of its own, to run a part of a recording. The blocks that are
// active before op from become its Prelude: they are allocated in the order of p and, if their deferred free is not
// complete, freed. Blocks, streams and pools keep their numbers. The programs share no data that either changes. P must
// be valid (see Check). Part panics unless 0 <= from <= to <= len(p.Ops).
func (p *Program) Part(from, to int) *Program {
	if from < 0 || from > to || to > len(p.Ops) {
		panic(fmt.Sprintf("trace: part [%d, %d) of a program of %d ops", from, to, len(p.Ops)))
	}
	const unborn = -1
	began := make([]int, p.Blocks) // the op that allocates an active block
	for i := range began {
		began[i] = unborn
	}
	pending := make([]bool, p.Blocks)
	for i := range p.Ops[:from] {
		switch op := &p.Ops[i]; op.Kind {
		case OpAlloc:
			began[op.Block] = i
		case OpFreeDeferred:
			pending[op.Block] = true
		case OpFree, OpComplete:
			began[op.Block] = unborn
		}
	}
	part := *p
	part.Ops, part.Entries, part.Prelude = nil, nil, Prelude{}
	var freed []Op
	for i := range p.Ops[:from] {
		op := p.Ops[i]
		if op.Kind != OpAlloc || began[op.Block] != i {
			continue
		}
		part.Ops = append(part.Ops, op)
		part.Prelude.Blocks++
		part.Prelude.Bytes = sum(part.Prelude.Bytes, op.Size)
		if pending[op.Block] {
			freed = append(freed, Op{Kind: OpFreeDeferred, Block: op.Block})
		}
	}
	part.Ops = append(part.Ops, freed...)
	if p.Entries != nil {
		part.Entries = append(slices.Repeat([]uint32{NoEntry}, len(part.Ops)), p.Entries[from:to]...)
	}
	part.Ops = append(part.Ops, p.Ops[from:to]...)
	return &part
}

// without copies all items except those at the given indices, which must be ascending.
func without[T any](items []T, indices []int) []T {
	kept := make([]T, 0, len(items)-len(indices))
	from := 0
	for _, at := range indices {
		kept = append(kept, items[from:at]...)
		from = at + 1
	}
	return append(kept, items[from:]...)
}

// requests calls visit for allocations and attempts in order, with the number of active bytes after each.
func (p *Program) requests(visit func(op int, active int64)) {
	sizes := make([]int64, p.Blocks)
	var active int64
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case OpAlloc:
			sizes[op.Block] = op.Size
			active = sum(active, op.Size)
			visit(i, active)
		case OpTry:
			visit(i, sum(active, op.Size))
		case OpFree, OpComplete:
			active -= sizes[op.Block]
		}
	}
}

// sum adds sizes. The result is at most the largest int64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
