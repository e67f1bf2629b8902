package trace

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// ProgramOptions are facts that ToProgram cannot derive from the events. The zero value is valid.
type ProgramOptions struct {
	// Live are the active blocks of the final snapshot. Blocks that no entry allocates become part of the prelude.
	Live []LiveBlock

	// PoolOf returns the pool of the block that Events[entry] allocates or, for a block of the prelude, frees. It is
	// not called if the recording has pools. Nil means the default pool. See Trace.PoolsByAddress.
	PoolOf func(entry int) mem.PoolID

	// Attempts keeps requests that failed when they were recorded (oom entries), as OpTry. Entries have their rounded
	// size and not their pool; the default pool is assumed.
	Attempts bool

	// NoGarbageCollection says that the recorded allocator did not free segments by age during requests, because no
	// garbage_collection_threshold was set. ToProgram can then identify more OpEmptyCache.
	NoGarbageCollection bool
}

// A LiveBlock is a block of the final snapshot of a recording.
type LiveBlock struct {
	Ptr    driver.Pointer
	Size   int64  // requested bytes
	Stream uint64 // handle
	Pool   mem.PoolID
	Stack  StackID // where it was allocated, or 0; ToProgram ignores it
}

// ToProgram derives the requests to the allocator that t records.
//
// A free belongs to the latest allocation at its address. A free_requested entry directly followed by the
// free_completed of the same address is an OpFree; otherwise it is an OpFreeDeferred, and the completion an OpComplete.
// A recording without any free_completed entry (they can be switched off) has only OpFree, and so has one without any
// free_requested entry.
//
// A free of an address that no entry allocated belongs to a block from before the recording, which becomes part of the
// prelude.
//
// An OpComplete is placed where the recording has the completion, with one exception. An allocator checks for
// completions at the start of a request. Before it fails a request, it waits for all of them; this appears as
// completions directly before freed segments or an oom, inside one request. These blocks were not available when the
// request searched for one, so their OpComplete is placed after the request. (A replay completes such a wait by
// itself.)
//
// An OpEmptyCache represents a run of segment_free and segment_unmap entries that no request explains. Inside a request
// an allocator frees segments only if the driver refused memory, or to collect garbage, and then it allocates a new
// segment or fails. So:
//
//   - a run is an OpEmptyCache if the next entry other than a completion is an alloc (which was served from the cache),
//     a free_requested or a snapshot, or if there is none;
//   - a run belongs to the request if the next entry is an oom;
//   - a run belongs to the request if the next entry allocates a segment. With NoGarbageCollection there is an exception: if the
//     bytes in segments before the run plus those that the request allocated after it do not exceed the maximum elsewhere in the
//     recording, the driver had no reason to refuse, and the run is an OpEmptyCache.
//
// Blocks that were allocated before one of Trace.Gaps are freed at the gap, because they may not have survived it.
// Blocks that are allocated after it, according to entries or opts.Live, are allocated at the gap. Both have NoEntry.
//
// Entries that contradict earlier ones are reported in Program.Anomalies. It is an error if an index in t is out of
// range.
func ToProgram(t *Trace, opts ProgramOptions) (*Program, error) {
	c := newConverter(t, opts)
	err := c.convert()
	return c.p, err
}

func newConverter(t *Trace, opts ProgramOptions) *converter {
	c := &converter{t: t, opts: opts, p: &Program{Pools: []mem.PoolID{{}}}, missed: -1}
	if t.PoolsKnown && len(t.Pools) > 0 {
		c.p.Pools = slices.Clone(t.Pools)
	}
	return c
}

// convert converts all entries.
func (c *converter) convert() error {
	if err := c.survey(); err != nil {
		return err
	}
	c.number()
	gaps, reader := c.t.Gaps, c.t.Reader(FieldPtr, FieldSize, FieldStream, FieldPool, FieldAction)
	for i := 0; i < c.t.Len(); i++ {
		for ; len(gaps) > 0 && gaps[0] <= i; gaps = gaps[1:] {
			c.gap(gaps[0])
		}
		if e, next := reader.Two(i); c.entry(i, e, next) {
			i++
		}
	}
	c.resolveReleases(false)
	for _, g := range gaps {
		c.gap(g)
	}
	return c.finish()
}

// finish converts the final state.
func (c *converter) finish() error {
	if err := c.survivors(); err != nil {
		return err
	}
	if c.tooManyPools {
		return fmt.Errorf("trace: more than %d pools", maxPools)
	}
	c.insert()
	return nil
}

// entry converts one entry. It returns true if it also converted the next one.
func (c *converter) entry(i int, e, next *Event) (both bool) {
	switch e.Action {
	case mem.ActionAlloc:
		c.resolveReleases(true)
		c.alloc(i, e)
		c.flush(len(c.held))
	case mem.ActionOOM:
		if c.opts.Attempts && e.Size >= 0 {
			c.emit(i, Op{Kind: OpTry, Size: e.Size, Stream: c.stream(e)})
		}
		c.flush(len(c.held))
		c.run = releaseRun{}
	case mem.ActionFreeRequested:
		c.resolveReleases(false)
		return c.freeRequested(i, e, next)
	case mem.ActionFreeCompleted:
		c.freeCompleted(i, e)
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		if c.run.count == 0 {
			c.run = releaseRun{entry: i, before: c.reserved, held: len(c.held)}
		}
		c.run.count++
		c.reserved -= e.Size
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		c.reserved += e.Size
		c.run.taken += e.Size
	case mem.ActionSnapshot:
		c.resolveReleases(false)
	case mem.ActionAnnotate, mem.ActionUserDefined:
	default:
		c.p.Anomalies.add(i, "unknown action %d", e.Action)
	}
	return false
}

const maxPools = 1 << 16

// A converter holds the state of ToProgram between entries.
type converter struct {
	t    *Trace
	opts ProgramOptions
	p    *Program
	seen addresses

	streams []uint32 // number of each of Trace.Streams in the program; nil if the same
	handles []uint64 // of the program's streams

	prelude []unseenOp // ops to insert before op number origin, the first op after the last gap
	origin  int
	missed  int        // the entry before the last gap, or -1
	lives   *Lifetimes // gets the ops in place of p, if it is not nil
	each    func(Op)   // gets the ops of entries in place of p, if it is not nil

	// State between two requests: completions that may belong before or after the next request, and freed segments
	// whose cause is not known yet.
	held []heldCompletion
	run  releaseRun

	reserved     int64 // bytes in the segments that entries allocated
	peak         int64 // its maximum over the whole recording
	requests     int   // free_requested entries
	completions  int   // free_completed entries
	tooManyPools bool
}

type heldCompletion struct {
	block uint32
	size  int64 // requested bytes of the block
	entry int
}

// A releaseRun is a run of consecutive freed segments. The zero value means no run.
type releaseRun struct {
	count  int
	entry  int   // index of the first entry
	before int64 // converter.reserved before the run
	held   int   // len(converter.held) before the run
	taken  int64 // bytes in segments allocated since
}

// survey checks the indices and counts the ops, so that the conversion allocates once and never panics.
func (c *converter) survey() error {
	t := c.t
	if t.Len() >= NoEntry/2 {
		return fmt.Errorf("trace: %d events: at most %d are supported", t.Len(), NoEntry/2-1)
	}
	for i, g := range t.Gaps {
		if g < 1 || g > t.Len() || i > 0 && g <= t.Gaps[i-1] {
			return fmt.Errorf("trace: gap %d is before entry %d, but the trace has %d entries, and gaps are in order",
				i, g, t.Len())
		}
	}
	n, quick := t.survey()
	reader := t.Reader()
	for i := range t.Len() {
		if quick {
			break
		}
		e := reader.At(i)
		if !n.add(e) {
			continue
		}
		if int(e.Stream) >= len(t.Streams) {
			return fmt.Errorf("trace: entry %d: stream index %d, but the trace has %d streams", i, e.Stream,
				len(t.Streams))
		}
		if t.PoolsKnown && int(e.Pool) >= len(c.p.Pools) {
			return fmt.Errorf("trace: entry %d: pool index %d, but the trace has %d pools", i, e.Pool, len(c.p.Pools))
		}
	}
	c.requests, c.completions, c.peak = n.requests, n.completions, n.peak
	if c.lives != nil {
		return nil
	}
	ops := n.allocs + n.requests + n.lone
	c.p.Ops, c.p.Entries = make([]Op, 0, ops), make([]uint32, 0, ops)
	return nil
}

// A survey has sums of entries.
type survey struct {
	allocs, requests, completions int
	lone                          int // completions that do not follow their request directly
	reserved, peak                int64

	last Event // the entry before
}

// survey returns the sums for columns, all of whose numbers are valid. It reports whether t has columns.
func (t *Trace) survey() (n survey, quick bool) {
	if t.Columns == nil {
		return n, false
	}
	last := uint64(0)
	t.Columns.each(FieldAction, func(_ int, actions []uint64) {
		for _, a := range actions {
			switch mem.Action(a) {
			case mem.ActionAlloc:
				n.allocs++
			case mem.ActionFreeRequested:
				n.requests++
			case mem.ActionFreeCompleted:
				n.completions++
				if mem.Action(last) != mem.ActionFreeRequested {
					n.lone++
				}
			}
			last = a
		}
	})
	for _, i := range t.Find(mem.ActionSegmentAlloc, mem.ActionSegmentMap, mem.ActionSegmentFree, mem.ActionSegmentUnmap) {
		e := t.At(int(i))
		n.add(&e)
	}
	return n, true
}

// add adds an entry. It reports whether its stream and pool matter.
func (n *survey) add(e *Event) bool {
	last := n.last
	n.last = *e
	switch e.Action {
	case mem.ActionAlloc:
		n.allocs++
	case mem.ActionFreeRequested:
		n.requests++
	case mem.ActionFreeCompleted:
		n.completions++
		if last.Action != mem.ActionFreeRequested || last.Ptr != e.Ptr {
			n.lone++
		}
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		n.reserved += e.Size
		n.peak = max(n.peak, n.reserved)
		return false
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		n.reserved -= e.Size
		return false
	case mem.ActionOOM:
	default:
		return false
	}
	return true
}

// number numbers the streams in the order of their handles: those of the trace and those that only occur in a block of
// the final snapshot.
func (c *converter) number() {
	c.handles = slices.Clone(c.t.Streams)
	for _, b := range c.opts.Live {
		c.handles = append(c.handles, b.Stream)
	}
	slices.Sort(c.handles)
	c.handles = slices.Compact(c.handles)
	c.p.Streams = len(c.handles)
	if slices.Equal(c.handles, c.t.Streams) {
		return
	}
	c.streams = make([]uint32, len(c.t.Streams))
	for i, h := range c.t.Streams {
		n, _ := slices.BinarySearch(c.handles, h)
		c.streams[i] = uint32(n)
	}
}

func (c *converter) stream(e *Event) uint32 {
	if c.streams == nil {
		return e.Stream
	}
	return c.streams[e.Stream]
}

// pool returns the index of the pool of the block that entry i allocates or frees.
func (c *converter) pool(i int, e *Event) uint16 {
	switch {
	case c.t.PoolsKnown:
		return e.Pool
	case c.opts.PoolOf == nil:
		return 0
	}
	return c.poolIndex(c.opts.PoolOf(i))
}

func (c *converter) poolIndex(id mem.PoolID) uint16 {
	n := slices.Index(c.p.Pools, id)
	if n < 0 {
		if len(c.p.Pools) == maxPools {
			c.tooManyPools = true
			return 0
		}
		n = len(c.p.Pools)
		c.p.Pools = append(c.p.Pools, id)
	}
	return uint16(n)
}

// end emits an op that ends a block of some bytes.
func (c *converter) end(entry int, op Op, size int64) {
	if c.lives != nil {
		c.lives.changes.add(entry, -size)
	}
	c.emit(entry, op)
}

func (c *converter) emit(entry int, op Op) {
	if c.lives != nil {
		c.lives.request(int32(entry), op)
		return
	}
	if c.each != nil {
		c.each(op)
		return
	}
	c.p.Ops = append(c.p.Ops, op)
	c.p.Entries = append(c.p.Entries, uint32(entry))
}
