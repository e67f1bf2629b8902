// Package holders finds the code that holds the memory of a recorded program, at any moment of the recording.
//
//	h, err := holders.New(s, 0) // the history of device 0 of a snapshot
//	...
//	peak, err := h.Moment("peak")
//	for _, x := range h.At(peak).By(holders.ByLine) {
//		fmt.Println(x.Bytes, x.Blocks, x.Label) // 6905658624 125 train.py:80 forward
//	}
//
// The bytes of the holders at a moment add up to the requested bytes of the active blocks at that moment, and those of
// the peak to the requested peak that PyTorch's statistics report (requested_bytes.all.peak). A block is active from
// its allocation until its memory can be reused: a freed block counts as long as another stream may still use it.
//
// Package holders/export writes the holders for other tools.
//
// Only Frames.Fold changes a History after New. Otherwise, several goroutines may use it at once. Sizes are bytes;
// events are indices into trace.Trace.Events.
package holders

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A History contains the lifetimes of all blocks of one device.
type History struct {
	Trace   *trace.Trace // without events if the snapshot has no history of the device
	Blocks  []Block      // in the order of their allocations, the older ones first
	Streams []uint64     // handles, ascending; Block.Stream indexes it
	Pools   []mem.PoolID // Block.Pool indexes it; Pools[0] is the default pool
	Frames  *Frames      // of the stacks of the blocks

	snapshot *snapshot.Snapshot
	before   int64   // bytes of the blocks that were active before the first event
	active   []int64 // bytes of the active blocks after each event
}

// A Block is one block. It is active after the events Start to End-1.
type Block struct {
	Ptr  driver.Pointer
	Size int64 // requested bytes

	// Start is the event that allocated the block, if Recorded is set. Otherwise the block existed before the event
	// Start+1, without a record of its allocation: it is older than the recording (-1), or recording was off when it
	// was allocated.
	Start int32

	Freed int32 // the event that requested its free; len(Events) if there is none, -1 if it is older than the recording
	End   int32 // the event that made its memory available again; len(Events) if it was still active at the end

	Stack    trace.StackID // where it was allocated; 0 if unknown
	Tag      uint32        // the user's text for the allocation, as an index into Trace.Metadata
	Stream   uint32        // index into History.Streams
	Pool     uint16        // index into History.Pools
	Recorded bool          // the recording has its allocation
	Category Category
}

// New returns the history of a device. A snapshot without a history of the device has only its final state. The error
// is that of trace.ToProgram, for events that refer to missing tables.
func New(s *snapshot.Snapshot, device int) (*History, error) {
	frames := NewFrames(s.Stacks)
	return newHistory(s, device, frames, newStackPhases(frames))
}

// All returns the histories of all devices that have blocks or events. They share Frames.
func All(s *snapshot.Snapshot) (all []*History, err error) {
	frames := NewFrames(s.Stacks)
	phases := newStackPhases(frames)
	for device := range s.NumDevices() {
		h, err := newHistory(s, device, frames, phases)
		if err != nil {
			return nil, err
		}
		if len(h.Trace.Events) > 0 || len(h.Blocks) > 0 {
			all = append(all, h)
		}
	}
	return all, nil
}

func newHistory(s *snapshot.Snapshot, device int, frames *Frames, phases *stackPhases) (*History, error) {
	p, err := s.Program(device, trace.ProgramOptions{})
	if err != nil {
		return nil, fmt.Errorf("holders: device %d: %w", device, err)
	}
	h := &History{Trace: &trace.Trace{Device: device}, Pools: p.Pools, Frames: frames, snapshot: s}
	if device < len(s.Traces) && s.Traces[device] != nil {
		h.Trace = s.Traces[device]
	}
	active := s.Active(device)
	h.numberStreams(active)
	h.lifetimes(p)
	h.survivors(p, active)
	slices.SortStableFunc(h.Blocks, func(a, b Block) int { return cmp.Compare(a.Start, b.Start) })
	h.sum()
	h.categorize(phases)
	return h, nil
}

// numberStreams sets Streams in the order in which trace.ToProgram numbers them.
func (h *History) numberStreams(active []trace.LiveBlock) {
	h.Streams = slices.Clone(h.Trace.Streams)
	for _, b := range active {
		h.Streams = append(h.Streams, b.Stream)
	}
	slices.Sort(h.Streams)
	h.Streams = slices.Compact(h.Streams)
}

// lifetimes sets Blocks from the ops of a program.
func (h *History) lifetimes(p *trace.Program) {
	end := int32(len(h.Trace.Events))
	h.Blocks = make([]Block, p.Blocks)
	eventOf := h.eventsOf(p)
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Kind == trace.OpEmptyCache || op.Kind == trace.OpTry {
			continue
		}
		event, recorded := eventOf(i)
		b := &h.Blocks[op.Block]
		switch op.Kind {
		case trace.OpAlloc:
			*b = Block{
				Size: op.Size, Start: event, Freed: end, End: end, Stream: op.Stream, Pool: op.Pool,
				Recorded: recorded,
			}
			if recorded {
				e := &h.Trace.Events[event]
				b.Ptr, b.Stack, b.Tag = e.Ptr, e.Stack, e.Metadata
			}
		case trace.OpFree:
			b.Freed, b.End = event, event
			if recorded && h.Trace.Events[event].Action == mem.ActionFreeRequested && h.completes(event) {
				b.End++
			}
		case trace.OpFreeDeferred:
			b.Freed = event
		case trace.OpComplete:
			b.End = event
			b.Freed = min(b.Freed, event)
		}
		if recorded && b.Ptr == 0 {
			b.Ptr = h.Trace.Events[event].Ptr
		}
	}
}

// completes reports whether the event after a free_requested is its completion.
func (h *History) completes(event int32) bool {
	if int(event)+1 >= len(h.Trace.Events) {
		return false
	}
	next := &h.Trace.Events[event+1]
	return next.Action == mem.ActionFreeCompleted && next.Ptr == h.Trace.Events[event].Ptr
}

// eventsOf returns a function for the event of an op, which must be called in the order of the ops. An op without an
// event took effect with the event before the gap that it belongs to, or before the first event.
func (h *History) eventsOf(p *trace.Program) func(op int) (event int32, recorded bool) {
	next := 0 // the first op with an event from the current one on
	return func(op int) (int32, bool) {
		if e := p.Entries[op]; e != trace.NoEntry {
			return int32(e), true
		}
		for next = max(next, op); next < len(p.Ops) && p.Entries[next] == trace.NoEntry; {
			next++
		}
		before := len(h.Trace.Events)
		if next < len(p.Ops) {
			before = int(p.Entries[next])
		}
		n, _ := slices.BinarySearch(h.Trace.Gaps, before+1)
		if n == 0 {
			return -1, false
		}
		return int32(h.Trace.Gaps[n-1] - 1), false
	}
}

// survivors completes blocks that are active in the final state.
func (h *History) survivors(p *trace.Program, active []trace.LiveBlock) {
	for i, n := range p.Survivors {
		b := &h.Blocks[n]
		b.Ptr = active[i].Ptr
		b.Stack = cmp.Or(b.Stack, active[i].Stack)
	}
}

// sum computes the active bytes after each event.
func (h *History) sum() {
	h.active = make([]int64, len(h.Trace.Events))
	for i := range h.Blocks {
		b := &h.Blocks[i]
		if b.Start < b.End {
			h.change(b.Start, b.Size)
			h.change(b.End, -b.Size)
		}
	}
	sum := h.before
	for i := range h.active {
		sum += h.active[i]
		h.active[i] = sum
	}
}

func (h *History) change(event int32, bytes int64) {
	switch {
	case event < 0:
		h.before += bytes
	case int(event) < len(h.active):
		h.active[event] += bytes
	}
}

// ActiveBytes returns the requested bytes of the active blocks after an event; -1 is before the first event.
func (h *History) ActiveBytes(event int) int64 {
	if event < 0 {
		return h.before
	}
	return h.active[event]
}
