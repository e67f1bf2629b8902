// Package trace represents the history of an allocator.
//
// A Trace is a recording: events with addresses, as in PyTorch's memory snapshots. A Recorder makes one from the events
// of any allocator. A Program is the work that a recording contains, without addresses: allocations and frees by block
// number, ready to be replayed on any allocator; ToProgram derives it. A Script is the text form of a program, used by
// golden tests, fuzz seeds and bug reports.
//
//	r := trace.NewRecorder(trace.RecorderOptions{})
//	a = r.Attach(a) // use a, then
//	t := r.Trace()
//
// A Recorder is safe for concurrent use. The other types are plain data without locks. Sizes are bytes; times are
// microseconds since 1970.
package trace

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Trace is the recorded history of one device's allocator.
type Trace struct {
	Device  int          // ordinal on the machine that recorded it
	Events  []Event      // oldest first
	Columns *Columns     // the events in place of Events, in recordings that snapshot.ReadCompact read; else nil
	Streams []uint64     // recorded stream handles, ascending and unique; Event.Stream indexes it
	Pools   []mem.PoolID // Event.Pool indexes it; Pools[0] is the default pool
	// PoolsKnown says that the recording contains the pool of every event. Otherwise all events have the default pool.
	PoolsKnown bool
	Metadata   []string // user annotations of events; Event.Metadata indexes it; Metadata[0] is ""

	// CompileContexts are the torch.compile contexts of the events: each applies from its first event up to the next
	// context. It is nil if the recording has none.
	CompileContexts []CompileContext

	Stacks *Stacks // nil without stacks; shared by the traces and segments of one snapshot

	// Gaps are the places where recording was off: before Events[Gaps[n]], or after the last event. Blocks that were
	// allocated before a gap may be freed in it, and blocks may be allocated in it without an event. Ascending, from 1
	// to len(Events).
	Gaps []int
}

// A CompileContext is the compile_context of the events from index First on, up to the next context. PyTorch writes
// NoCompileContext outside of compiled code. An empty Text means no context.
type CompileContext struct {
	First int
	Text  string
}

// An Event is one entry of a recording: 40 bytes.
type Event struct {
	TimeUS   int64          // microseconds since 1970
	Ptr      driver.Pointer // of an oom: the free bytes of the device
	Size     int64          // as in mem.Event
	Stack    StackID
	Stream   uint32 // index into Trace.Streams
	Metadata uint32 // index into Trace.Metadata
	Pool     uint16 // index into Trace.Pools
	Action   mem.Action
}

// A StackID identifies a call stack in Stacks. Zero is no stack.
type StackID uint32

// A Frame is one line of a call stack.
type Frame struct {
	Name     string
	Filename string
	Line     int64 // from 1; PyTorch writes 2^64-1, which is -1 here, for a line that Python does not know
}

// Stacks holds each distinct call stack once.
type Stacks struct {
	Frames []Frame  // unique, except frames with different snapshot.Snapshot.FrameExtra
	starts []uint32 // stack i+1 is refs[starts[i]:starts[i+1]], or up to the end
	refs   []uint32 // indices into Frames, innermost first
}

// Add stores a stack of frames, given as indices into Frames, innermost first, and returns its ID. It does not search
// for an equal stack; see StackSet.
func (s *Stacks) Add(frames []uint32) StackID {
	s.starts = append(s.starts, uint32(len(s.refs)))
	s.refs = append(s.refs, frames...)
	return StackID(len(s.starts))
}

// Len returns the number of stacks.
func (s *Stacks) Len() int {
	if s == nil {
		return 0
	}
	return len(s.starts)
}

// At returns the frames of a stack as indices into Frames, innermost first. The result for no stack is empty.
func (s *Stacks) At(id StackID) []uint32 {
	if s == nil || id == 0 || int(id) > len(s.starts) {
		return nil
	}
	start, end := s.starts[id-1], uint32(len(s.refs))
	if int(id) < len(s.starts) {
		end = s.starts[id]
	}
	return s.refs[start:end]
}

// A Program is the work of one device's recording: the requests to the allocator, in order.
type Program struct {
	Ops     []Op
	Blocks  int          // block numbers are 0..Blocks-1; none is used twice
	Streams int          // stream numbers are 0..Streams-1, in the order of the recorded handles
	Pools   []mem.PoolID // Op.Pool indexes it; Pools[0] is the default pool

	// Entries contains, for each op, the index of the event in Trace.Events from which it was derived, or NoEntry. It
	// is nil for a program that was not derived from a recording.
	Entries []uint32

	// Survivors contains the number of the block of each of ProgramOptions.Live.
	Survivors []uint32

	Prelude   Prelude
	Anomalies Anomalies
}

// NoEntry in Program.Entries marks an op that no event of the recording shows: an op of the prelude or of a gap.
const NoEntry = 1<<32 - 1

// An Op is one request. It has 24 bytes.
type Op struct {
	Size   int64  // of OpAlloc and OpTry: requested bytes
	Block  uint32 // of OpAlloc, OpFree, OpFreeDeferred, OpComplete
	Stream uint32 // of OpAlloc and OpTry: the stream
	Pool   uint16 // of OpAlloc and OpTry: index into Program.Pools
	Kind   OpKind
}

// An OpKind is the kind of an Op.
type OpKind uint8

const (
	OpAlloc        OpKind = iota // allocate Size bytes on Stream
	OpFree                       // free the block; nothing else uses it
	OpFreeDeferred               // free the block, which another stream still uses until the block's OpComplete
	OpComplete                   // the other stream no longer uses the block
	OpEmptyCache                 // free cached memory
	// allocate Size bytes on Stream, which failed when recorded; free the block at once if it succeeds
	OpTry
	numOpKinds
)
