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
// Only Frames.Fold and Categorize change a History after New. Otherwise, several goroutines may use it at once. Sizes
// are bytes; events are indices into trace.Trace.Events.
package holders

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A History contains the lifetimes of all blocks of one device.
type History struct {
	Trace   *trace.Trace // without events if the snapshot has no history of the device
	Streams []uint64     // handles, ascending; Block.Stream indexes it
	Pools   []mem.PoolID // Block.Pool indexes it; Pools[0] is the default pool
	Frames  *Frames      // of the stacks of the blocks

	// Lifetimes are those of the blocks, in the order of their allocations, the older ones first.
	Lifetimes *trace.Lifetimes

	snapshot   *snapshot.Snapshot
	phases     *stackPhases
	inferring  sync.Once
	categories atomic.Pointer[[]Category] // of each block; nil until they are inferred
	activeSums
}

// A Block is one block.
type Block struct {
	trace.Lifetime
	Category Category
}

// NumBlocks returns the number of blocks.
func (h *History) NumBlocks() int { return h.Lifetimes.Len() }

// Block returns the block with an index. It has no Category before Categorize was called.
func (h *History) Block(i int) Block {
	b := Block{Lifetime: h.Lifetimes.At(i)}
	if c := h.categories.Load(); c != nil {
		b.Category = (*c)[i]
	}
	return b
}

// Blocks returns all blocks, in about 50 bytes each. NumBlocks and Block take no memory.
func (h *History) Blocks() []Block {
	all := make([]Block, h.NumBlocks())
	for i := range all {
		all[i] = h.Block(i)
	}
	return all
}

// Category returns the category of a block, as Block does.
func (h *History) Category(i int) Category {
	if c := h.categories.Load(); c != nil {
		return (*c)[i]
	}
	return Unknown
}

// New returns the history of a device. A snapshot without a history of the device has only its final state. The error
// is that of trace.ToProgram, for events that refer to missing tables.
func New(s *snapshot.Snapshot, device int) (*History, error) {
	frames := NewFrames(s.Stacks)
	h, err := newHistory(s, device, frames, newStackPhases(frames))
	if err != nil {
		return nil, err
	}
	h.Categorize()
	return h, nil
}

// All returns the histories of all devices that have blocks or events. They share Frames.
func All(s *snapshot.Snapshot) ([]*History, error) {
	all, err := AllUncategorized(s)
	for _, h := range all {
		h.Categorize()
	}
	return all, err
}

// AllUncategorized is All without the categories, which take most of the time. Categorize infers them.
func AllUncategorized(s *snapshot.Snapshot) (all []*History, err error) {
	frames := NewFrames(s.Stacks)
	phases := newStackPhases(frames)
	for device := range s.NumDevices() {
		h, err := newHistory(s, device, frames, phases)
		if err != nil {
			return nil, err
		}
		if h.Trace.Len() > 0 || h.NumBlocks() > 0 {
			all = append(all, h)
		}
	}
	return all, nil
}

func newHistory(s *snapshot.Snapshot, device int, frames *Frames, phases *stackPhases) (*History, error) {
	lives, err := s.Lifetimes(device)
	if err != nil {
		return nil, fmt.Errorf("holders: device %d: %w", device, err)
	}
	h := &History{
		Trace: &trace.Trace{Device: device}, Streams: lives.Streams, Pools: lives.Pools, Frames: frames, Lifetimes: lives,
		snapshot: s, phases: phases,
	}
	if device < len(s.Traces) && s.Traces[device] != nil {
		h.Trace = s.Traces[device]
	}
	h.activeSums = newActiveSums(lives.Changes())
	return h, nil
}

// Categorize infers the categories of all blocks, unless that was done before. It may be called while other goroutines
// use h, for which blocks have no category until it returns.
func (h *History) Categorize() { h.inferring.Do(h.categorize) }
