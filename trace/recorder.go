package trace

import (
	"cmp"
	"fmt"
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/internal/numbering"
	"github.com/ashlar-go/ashlar/mem"
)

// The ring holds events with numbers for their stream, pool, metadata and call stack. Stacks are program counters in a
// table that has each distinct stack once (callers.go); Trace resolves functions, files and lines. Allocated blocks are
// in a hash table by address, with their stacks (blocktable.go); segments are in a sorted list. Both describe the
// present: Stop empties them, so they lack blocks that were allocated while nothing was recorded. Missed events are
// noted in Trace.Gaps.
//
// Locks: Recorder.viewing, then Recorder.attaching, then the allocator's locks, then Recorder.mu: a leaf, held while
// trackers and the clock run.

// A Recorder records the events of one allocator. Attach connects it to any allocator; its Observe method is a
// mem.Observer. Like PyTorch's ring buffer it keeps a maximum number of entries and then overwrites the oldest. It can
// keep the call stacks of events and of allocated blocks, as PyTorch's _record_memory_history does. It records from its
// creation until Stop, and again after Start.
//
// An event costs a short lock, and a call of runtime.Callers if its stack is kept. It allocates memory only for the
// first event of each stack, stream, pool and metadata, when the number of allocated blocks reaches a new maximum and,
// without Max, now and then for the ring. A stopped recorder without trackers costs the allocator nothing.
//
// A Recorder distinguishes 65,536 pools; events of further pools have the default pool. Events are in the order of the
// calls of Observe. Safe for concurrent use.
type Recorder struct {
	options RecorderOptions

	viewing sync.Mutex // one view at a time

	attaching sync.Mutex // guards the attachment; serializes Start and Stop
	attached  *attachment
	told      []outOfMemoryReporter // allocators that have a function from reportTo; it cannot be removed

	mu        sync.Mutex // guards the fields below
	recording bool
	trackers  []*tracker
	oom       []*oomObserver // never modified, only replaced: it is read without the lock
	context   Context
	captures  [mem.NumActions]bool // actions whose call stacks are recorded
	skip      [mem.NumActions]bool
	layer     *layer // the source of events, which needs the table of blocks; nil if the allocator is the source

	max      int
	events   []Event
	next     int     // index of the oldest entry once the ring is full
	total    int64   // number of entries ever recorded
	base     int64   // number of entries before the last Reset
	gaps     []int64 // values of total at which events were missed
	streams  streamNumbers
	pools    numbering.Numbering[mem.PoolID]
	labels   labels
	notes    []Annotation
	nextNote int
	callers  callerTable
	pcs      []uintptr
	blocks   blockTable
	segments segmentList
	freezing bool // a view waits for the next ActionSnapshot
	captured *moment
}

// RecorderOptions configure a Recorder. The zero value keeps all entries, without times and stacks.
type RecorderOptions struct {
	Device int // ordinal, for Trace.Device and observers of out-of-memory errors

	// Annotations also records annotations as entries: mem.ActionAnnotate, with the stage and the name as metadata,
	// such as "START step 1". PyTorch's viewer lists such entries and otherwise ignores them.
	Annotations bool

	// Max is the maximum number of entries, and of annotations. NewRecorder allocates the memory for the entries, 40
	// bytes each. 0 or less means no maximum, in memory that grows.
	Max int

	Context Context      // selects the events whose call stacks are kept
	Depth   int          // maximum number of frames kept of a stack, from the innermost; 0 or less means 32
	Skip    []mem.Action // left out of the trace; trackers still receive them
	Clock   func() int64 // microseconds since 1970; nil means 0 always. It is called under the allocator's locks
}

// A Context selects the events whose call stacks a Recorder keeps, as the context of PyTorch's _record_memory_history
// does.
type Context uint8

const (
	// ContextNever keeps no stacks.
	ContextNever Context = iota
	// ContextState keeps the stacks of allocated blocks and of segments, for snapshots. Entries have no stacks. It
	// corresponds to enabled="state" in PyTorch, which also keeps only one entry; see RecorderOptions.Max.
	ContextState
	// ContextAlloc gives each entry the stack of an allocation: a request, and the segment events that it causes, have
	// the stack of the request; a free has the stack of the request that allocated the block. The entry of a segment
	// that is freed outside of a request, such as by EmptyCache, has the stack under which the segment was allocated.
	// Unlike in PyTorch, a free that completes during a request for another block does not have the stack of that
	// request.
	ContextAlloc
	// ContextAll gives each entry the stack of the call that caused it.
	ContextAll
)

var contextNames = [...]string{"never", "state", "alloc", "all"}

// String returns the name that PyTorch uses; "never" is its None.
func (c Context) String() string {
	if int(c) < len(contextNames) {
		return contextNames[c]
	}
	return fmt.Sprintf("Context(%d)", c)
}

const defaultDepth = 32

// NewRecorder returns an empty recorder that records.
func NewRecorder(opts RecorderOptions) *Recorder {
	r := &Recorder{options: opts, recording: true}
	r.setMax(opts.Max)
	r.options.Depth = cmp.Or(max(r.options.Depth, 0), defaultDepth)
	r.setSkip(opts.Skip)
	r.setContext(opts.Context)
	r.Reset()
	return r
}

// Start resumes recording after Stop. Earlier entries stay.
func (r *Recorder) Start() { r.record(true) }

// Stop ends recording: entries stay, and none are added until Start. Trace.Gaps shows the interruption. (PyTorch's
// enabled=None deletes the entries, as RecordHistory does.) The allocator is then as fast as without a recorder, unless
// there are trackers. The stacks of allocated blocks are deleted, because frees are no longer observed: take a snapshot
// before Stop if it needs them. Start and Stop must not be called by trackers or by a Clock.
func (r *Recorder) Stop() { r.record(false) }

func (r *Recorder) record(on bool) {
	r.attaching.Lock()
	defer r.attaching.Unlock()
	// Stop empties the tables before it detaches from the events, and observe before it receives events again. So the
	// tables never hold data from before a gap.
	r.mu.Lock()
	if r.recording != on {
		r.recording = on
		r.miss()
		if r.layer == nil {
			r.blocks.clear()
		} else { // with trackers, the tables are still maintained
			r.blocks.forgetStacks()
		}
		r.segments = r.segments[:0]
	}
	listens := r.listens()
	r.mu.Unlock()
	r.observe(listens)
}

// listens reports whether events are needed. The caller holds mu.
func (r *Recorder) listens() bool { return r.recording || len(r.trackers) > 0 }

// Recording reports whether events are recorded now.
func (r *Recorder) Recording() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recording
}

// forget deletes the tables of blocks and segments. The caller holds mu.
func (r *Recorder) forget() {
	r.blocks.clear()
	r.segments = r.segments[:0]
}

// miss records a gap. The caller holds mu.
func (r *Recorder) miss() {
	if n := len(r.gaps); r.total > r.base && (n == 0 || r.gaps[n-1] < r.total) {
		r.gaps = append(r.gaps, r.total)
	}
	for len(r.gaps) > 0 && r.gaps[0] <= r.oldest() {
		r.gaps = r.gaps[1:]
	}
}

// oldest returns the number of entries that were recorded before the oldest one in the ring. The caller holds mu.
func (r *Recorder) oldest() int64 { return r.total - int64(len(r.events)) }

// SetContext changes the Context. ContextNever also deletes the stacks of allocated blocks.
func (r *Recorder) SetContext(c Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setContext(c)
}

func (r *Recorder) setSkip(actions []mem.Action) {
	var skip [mem.NumActions]bool
	for _, a := range actions {
		if a >= mem.NumActions {
			panic(fmt.Sprintf("trace: Skip has an unknown action, %d", a))
		}
		skip[a] = true
	}
	r.skip = skip
}

func (r *Recorder) setContext(c Context) {
	if c > ContextAll {
		panic(fmt.Sprintf("trace: unknown %v", c))
	}
	r.context = c
	for a := range mem.NumActions {
		switch a {
		case mem.ActionAlloc, mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			r.captures[a] = c >= ContextState
		case mem.ActionOOM, mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			r.captures[a] = c >= ContextAlloc
		case mem.ActionSnapshot: // never, as in PyTorch
		default:
			r.captures[a] = c >= ContextAll
		}
	}
	switch {
	case c > ContextNever && r.pcs == nil:
		r.pcs = make([]uintptr, r.options.Depth+ownDepth)
	case c == ContextNever && r.layer != nil:
		r.blocks.forgetStacks()
	case c == ContextNever: // the tables are no longer maintained
		r.forget()
	}
}

// Lost returns the number of entries that were overwritten.
func (r *Recorder) Lost() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total - r.base - int64(len(r.events))
}

// Recorded returns the number of entries that were ever recorded, including those that were overwritten or deleted.
func (r *Recorder) Recorded() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// Reset deletes all entries and annotations. Metadata, compile contexts and the stacks of allocated blocks are kept,
// and so is the table of stacks.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.base, r.gaps = 0, r.total, nil
	if at := r.captured; at != nil {
		at.kept, at.lost = 0, nil
	}
	if r.events = r.events[:0]; r.max == math.MaxInt {
		r.events = nil
	}
	r.notes, r.nextNote = nil, 0
	r.streams, r.pools = streamNumbers{}, numbering.Numbering[mem.PoolID]{}
	r.pools.Of(mem.PoolID{})
	r.labels.reset()
}
