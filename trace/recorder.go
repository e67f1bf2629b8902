package trace

import (
	"fmt"
	"math"
	"sync"

	"github.com/ashlar-go/ashlar/mem"
)

// A Recorder collects the events of one allocator: its Observe method is a mem.Observer, and Attach gives it to any
// allocator. Like PyTorch's ring it keeps everything up to a number of entries, and then overwrites the oldest. It can
// keep the call stacks of events and of allocated blocks, as PyTorch's record_memory_history does. It records until Stop,
// and again from Start on.
//
// # Structure
//
// Events enter the ring with numbers: of their stream, pool and metadata, and of their call stack in a table of program
// counters, which has each distinct stack once (callers.go). Functions, files and lines are looked up by Trace. Blocks
// allocated are found by their address in an open table, with their stack (loans.go); so are segments. Both tables are as
// of now: a block that was allocated while nothing was recorded is not in it, since Stop empties it. Where events were
// missed is noted, so that whoever reads the trace trusts nothing of before (Trace.Gaps).
//
// # Cost
//
// An event costs a short lock, and a call of runtime.Callers if its stack is kept. It allocates nothing but for the first
// of each stack, stream, pool and metadata, where more blocks are allocated than ever before, and, without Max, now and
// then for the ring. A stopped recorder costs the allocator nothing, unless it has trackers: it does not observe it.
//
// # Locks
//
// Recorder.viewing, then Recorder.attaching, then the allocator's locks, then Recorder.mu: a leaf, held while trackers and
// the clock run.
//
// It tells 65,536 pools apart; the events of any further ones name the default pool. Safe for concurrent use; events are
// in the order of the calls of Observe.
type Recorder struct {
	options RecorderOptions

	viewing sync.Mutex // one view at a time

	attaching sync.Mutex // guards what is attached, and Start and Stop
	attached  *attachment
	told      []outOfMemoryReporter // allocators that have reportTo of this recorder; for good, as they have no way back

	mu        sync.Mutex // guards what follows
	recording bool
	trackers  []*tracker
	oom       []*oomObserver // replaced, not changed: it is called without the lock
	context   Context
	captures  [mem.NumActions]bool // whose call stacks are taken
	skip      [mem.NumActions]bool
	layer     *layer // that events come from, which needs to know the loans; nil if they come from an allocator itself

	max      int
	events   []Event
	next     int     // the oldest, once the ring is full
	total    int64   // ever recorded
	base     int64   // of them, before the last Reset
	gaps     []int64 // of total, when events were missed
	streams  streamNumbers
	pools    numbering[mem.PoolID]
	labels   labels
	notes    []Annotation
	nextNote int
	callers  callerTable
	pcs      []uintptr
	loans    loanTable
	segments segmentList
	freezing bool // the next ActionSnapshot is what a view waits for
	frozen   *moment
}

// RecorderOptions says what a Recorder keeps. The zero value keeps everything but times and stacks.
type RecorderOptions struct {
	Device int // ordinal, for Trace.Device and those who are told of out-of-memory errors

	// Annotations makes what is annotated an entry, too: mem.ActionAnnotate, with the stage and the name as its metadata,
	// such as "START step 1". PyTorch's viewer lists such entries and does nothing with them.
	Annotations bool

	// Max is how many entries are kept, and how many annotations. The memory for entries, 40 bytes each, is taken by
	// NewRecorder. 0 or less means all, in memory that grows.
	Max int

	Context Context      // whose call stacks are kept
	Depth   int          // frames of a stack that are kept, from the innermost; 0 or less means 32
	Skip    []mem.Action // left out of the trace; trackers are told all the same
	Clock   func() int64 // microseconds since 1970; nil means 0 always. It is called under the allocator's locks
}

// A Context says whose call stacks a Recorder keeps, as the context of PyTorch's _record_memory_history does.
type Context uint8

const (
	// ContextNever keeps none.
	ContextNever Context = iota
	// ContextState keeps those of allocated blocks and of segments, for snapshots. Entries have none. PyTorch, whose
	// enabled="state" means this, also keeps only one entry then: see RecorderOptions.Max.
	ContextState
	// ContextAlloc gives entries the stack of the allocation: those of requests, and of what requests did with segments,
	// their own, and those of frees the stack of the request that the block is from. The entry of a segment that went
	// for other reasons than a request, such as EmptyCache, has the stack under which the segment was got. Unlike
	// PyTorch's, a free that completes during a request for another block has no stack of that request.
	ContextAlloc
	// ContextAll gives each entry the stack of the call that made it.
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

// NewRecorder returns a recorder without events, which records what it is told.
func NewRecorder(opts RecorderOptions) *Recorder {
	r := &Recorder{options: opts, recording: true}
	r.setMax(opts.Max)
	if r.options.Depth <= 0 {
		r.options.Depth = defaultDepth
	}
	r.setSkip(opts.Skip)
	r.setContext(opts.Context)
	r.Reset()
	return r
}

// Start begins to record again, after Stop. Earlier entries stay.
func (r *Recorder) Start() { r.record(true) }

// Stop ends recording: entries stay, and nothing is added until Start, which Trace.Gaps then shows. (PyTorch's
// enabled=None forgets them, as RecordHistory does.) The allocator is then as fast as without a recorder, unless there
// are trackers. The stacks of allocated blocks are forgotten, for nobody sees which of them are
// freed: a snapshot that is to have them is taken before. Start and Stop must not be called by trackers, nor by a Clock.
func (r *Recorder) Stop() { r.record(false) }

func (r *Recorder) record(on bool) {
	r.attaching.Lock()
	defer r.attaching.Unlock()
	// Stop forgets before the allocator is let go of, and observe before it is listened to again: what is known is never
	// older than a gap.
	r.mu.Lock()
	if r.recording != on {
		r.recording = on
		r.miss()
		if r.layer == nil {
			r.loans.clear()
		} else { // which follows them as long as there are trackers
			r.loans.forgetStacks()
		}
		r.segments = r.segments[:0]
	}
	listens := r.listens()
	r.mu.Unlock()
	r.observe(listens)
}

// listens reports whether events are wanted. The caller holds mu.
func (r *Recorder) listens() bool { return r.recording || len(r.trackers) > 0 }

// Recording reports whether events are recorded now.
func (r *Recorder) Recording() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recording
}

// forget empties the tables of what is there now. The caller holds mu.
func (r *Recorder) forget() {
	r.loans.clear()
	r.segments = r.segments[:0]
}

// miss notes that events are missed now. The caller holds mu.
func (r *Recorder) miss() {
	if n := len(r.gaps); r.total > r.base && (n == 0 || r.gaps[n-1] < r.total) {
		r.gaps = append(r.gaps, r.total)
	}
	for len(r.gaps) > 0 && r.gaps[0] <= r.oldest() {
		r.gaps = r.gaps[1:]
	}
}

// oldest is how many entries had been recorded before the oldest that is left. The caller holds mu.
func (r *Recorder) oldest() int64 { return r.total - int64(len(r.events)) }

// SetContext changes whose call stacks are kept from now on. ContextNever also forgets those of allocated blocks.
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
		r.loans.forgetStacks()
	case c == ContextNever: // and from now on nobody follows them
		r.forget()
	}
}

// Lost returns how many entries were overwritten.
func (r *Recorder) Lost() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total - r.base - int64(len(r.events))
}

// Reset forgets all entries and annotations. Metadata and compile contexts stay, and so do the stacks of allocated blocks;
// the table of stacks keeps those that it has.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.base, r.gaps = 0, r.total, nil
	if at := r.frozen; at != nil {
		at.kept, at.lost = 0, nil
	}
	if r.events = r.events[:0]; r.max == math.MaxInt {
		r.events = nil
	}
	r.notes, r.nextNote = nil, 0
	r.streams, r.pools = streamNumbers{}, numbering[mem.PoolID]{}
	r.pools.of(mem.PoolID{})
	r.labels.reset()
}
