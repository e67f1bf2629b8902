// Package trace holds what happened to an allocator over time.
//
// A Trace is a recording: events with addresses, as PyTorch's snapshots have them. A Program is what the work asked for,
// without addresses: allocations and frees by block number, ready to be replayed on any allocator. A Script is the text
// form that golden tests, fuzz seeds, random histories and bug reports share.
package trace

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Trace is the recorded history of one device's allocator.
type Trace struct {
	Device  int          // ordinal on the machine that recorded it
	Events  []Event      // oldest first
	Streams []uint64     // recorded stream handles, ascending and unique; Event.Stream indexes it
	Pools   []mem.PoolID // Event.Pool indexes it; Pools[0] is the default pool
	// PoolsKnown says that the recording named the pool of every event. Otherwise all say the default.
	PoolsKnown bool
	Metadata   []string // user annotations of events; Event.Metadata indexes it; Metadata[0] is ""

	// CompileContexts says which torch.compile work the events belong to: each holds from its first event up to the next.
	// It is nil where the recording does not say.
	CompileContexts []CompileContext

	Stacks *Stacks // nil without stacks; shared by the traces and segments of one snapshot

	// Gaps says where recording was off for a while: before Events[Gaps[n]], or after the last of them. What was allocated
	// before a gap may be gone after it, and others may be allocated that no event shows. Ascending, from 1 to len(Events).
	Gaps []int
}

// A CompileContext is the compile_context of the events from number First on, up to the next one's. PyTorch has
// NoCompileContext where nothing is being compiled. An empty Text is none.
type CompileContext struct {
	First int
	Text  string
}

// An Event is one entry of a recording: 40 bytes.
type Event struct {
	TimeUS   int64          // microseconds since 1970
	Ptr      driver.Pointer // of an OOM: the bytes that the device still had
	Size     int64          // as in mem.Event
	Stack    StackID
	Stream   uint32 // index into Trace.Streams
	Metadata uint32 // index into Trace.Metadata
	Pool     uint16 // index into Trace.Pools
	Action   mem.Action
}

// A StackID finds a call stack in Stacks. Zero is no stack.
type StackID uint32

// A Frame is one line of a call stack.
type Frame struct {
	Name     string
	Filename string
	Line     int64
}

// Stacks holds call stacks once each: most events share a few.
type Stacks struct {
	Frames []Frame  // unique, but for what a snapshot keeps of them besides (snapshot.Snapshot.FrameExtra)
	starts []uint32 // stack i+1 is refs[starts[i]:starts[i+1]], or up to the end
	refs   []uint32 // indices into Frames, innermost first
}

// Add stores a stack of frames, given as indices into Frames, innermost first, and returns its ID. It does not look
// for an equal stack: the caller knows.
func (s *Stacks) Add(frames []uint32) StackID {
	s.starts = append(s.starts, uint32(len(s.refs)))
	s.refs = append(s.refs, frames...)
	return StackID(len(s.starts))
}

// Len is the number of stacks.
func (s *Stacks) Len() int {
	if s == nil {
		return 0
	}
	return len(s.starts)
}

// At returns the frames of a stack as indices into Frames, innermost first. No stack has no frames.
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

// A Program is the work of one device's recording: what was asked of the allocator, in order.
type Program struct {
	Ops     []Op
	Blocks  int          // block numbers are 0..Blocks-1; none is used twice
	Streams int          // stream numbers are 0..Streams-1, in the order of the recorded handles
	Pools   []mem.PoolID // Op.Pool indexes it; Pools[0] is the default pool

	// Entries says, for each op, which of Trace.Events it came from: NoEntry for those that none shows. It is nil for a
	// program that no recording gave.
	Entries   []uint32
	Prelude   Prelude
	Anomalies Anomalies
}

// NoEntry in Program.Entries is an op that no entry of the recording shows: of the prelude, or of a gap.
const NoEntry = 1<<32 - 1

// An Op is one request. 24 bytes.
type Op struct {
	Size   int64  // of OpAlloc and OpTry: requested bytes
	Block  uint32 // of OpAlloc, OpFree, OpFreeDeferred, OpComplete
	Stream uint32 // of OpAlloc and OpTry: the stream
	Pool   uint16 // of OpAlloc and OpTry: index into Program.Pools
	Kind   OpKind
}

// An OpKind says what an Op asks for.
type OpKind uint8

const (
	OpAlloc        OpKind = iota // allocate Size bytes on Stream
	OpFree                       // free the block; nothing else uses it
	OpFreeDeferred               // free the block, which another stream still uses until the block's OpComplete
	OpComplete                   // the other stream is done with the block
	OpEmptyCache                 // give cached memory back
	OpTry                        // allocate Size bytes on Stream, as when it failed; what succeeds now is freed at once
	numOpKinds
)
