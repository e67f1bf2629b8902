package snapshot

import (
	"cmp"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// Program derives the requests to the allocator of a device from its trace and its final state: see trace.ToProgram. It
// sets o.Live to Active(device), and o.PoolOf to the pools of the remaining segments. A device without a trace has only
// the blocks of its final state, as the prelude.
func (s *Snapshot) Program(device int, o trace.ProgramOptions) (*trace.Program, error) {
	t, o := s.programOf(device, o)
	return trace.ToProgram(t, o)
}

// programOf returns the trace of a device, and the options with what the final state tells.
func (s *Snapshot) programOf(device int, o trace.ProgramOptions) (*trace.Trace, trace.ProgramOptions) {
	t := &trace.Trace{Device: device}
	if device < len(s.Traces) && s.Traces[device] != nil {
		t = s.Traces[device]
	}
	var ranges []trace.PoolRange
	own := s.SegmentsOf(device)
	for i := range own {
		ranges = append(ranges, trace.PoolRange{Ptr: own[i].Ptr, Size: own[i].TotalSize, Pool: own[i].Pool})
	}
	o.Live, o.PoolOf = s.Active(device), t.PoolsByAddress(ranges)
	return t, o
}

// Lifetimes returns the lifetimes of the blocks of a device, as Program derives the requests. The device's trace and
// segments must be as they were read.
func (s *Snapshot) Lifetimes(device int) (*trace.Lifetimes, error) {
	if l := s.lifetimes[device]; l != nil {
		return l, nil
	}
	t, o := s.programOf(device, trace.ProgramOptions{})
	return t.Lifetimes(o)
}

// Active returns the blocks of a device that are not free in the final state, by address. The size of a block is its
// requested size; in files that lack it, the size of the block.
func (s *Snapshot) Active(device int) (active []trace.LiveBlock) {
	own := s.SegmentsOf(device)
	for i := range own {
		for j := range own[i].Blocks {
			if b := &own[i].Blocks[j]; b.State != mem.Inactive {
				active = append(active, trace.LiveBlock{
					Ptr: b.Ptr, Size: cmp.Or(b.RequestedSize, b.Size), Stream: own[i].Stream, Pool: own[i].Pool,
					Stack: b.Stack,
				})
			}
		}
	}
	return active
}
