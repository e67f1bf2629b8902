package browsertest

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const mib = 1 << 20

// The addresses of the segments of handmade, far apart.
const (
	first  driver.Pointer = 0x7f00_0000_0000
	second driver.Pointer = 0x7f55_0000_0000
)

// handmade returns a recording of two segments of 16 MiB, and of blocks whose places can be told by hand. In MiB:
//
//	event                      requested   bands, from the lowest
//	0, 1  the segments         0
//	2     weights, 4           4           4
//	3     forward, 2           6           4 2
//	4     side, 8, stream 7    14          4 2 8
//	5     forward, 1           15          4 2 8 1
//	6, 7  the first forward    13          4 8 1
//	8     a failure of 64      13          4 8 1
//	9     loss, 1              14          4 8 1 1
//
// The first segment then has weights, a hole of 2 MiB, forward, loss, and 8 MiB that are free. Texts are those of
// name.
func handmade(name func(string) string) *snapshot.Snapshot {
	stacks := &trace.Stacks{Frames: []trace.Frame{
		{Name: name("load"), Filename: "/home/u/" + name("train.py"), Line: 10},
		{Name: name("forward"), Filename: "/home/u/" + name("model.py"), Line: 20},
		{Name: name("side"), Filename: "/home/u/" + name("model.py"), Line: 30},
		{Name: name("loss"), Filename: "/home/u/" + name("train.py"), Line: 40},
		{Name: name("main"), Filename: "/home/u/" + name("train.py"), Line: 99},
	}}
	var stack []trace.StackID
	for i := range uint32(4) {
		stack = append(stack, stacks.Add([]uint32{i, 4}))
	}
	event := func(a mem.Action, p driver.Pointer, size int64, stream uint32, s trace.StackID) trace.Event {
		return trace.Event{Action: a, Ptr: p, Size: size, Stream: stream, Stack: s, Metadata: 1}
	}
	t := &trace.Trace{
		Streams: []uint64{0, 7}, Pools: make([]mem.PoolID, 1), Metadata: []string{"", name("tag")}, Stacks: stacks,
		Events: []trace.Event{
			event(mem.ActionSegmentAlloc, first, 16*mib, 0, stack[0]),
			event(mem.ActionSegmentAlloc, second, 16*mib, 1, stack[2]),
			event(mem.ActionAlloc, first, 4*mib, 0, stack[0]),
			event(mem.ActionAlloc, first+4*mib, 2*mib, 0, stack[1]),
			event(mem.ActionAlloc, second, 8*mib, 1, stack[2]),
			event(mem.ActionAlloc, first+6*mib, 1*mib, 0, stack[1]),
			event(mem.ActionFreeRequested, first+4*mib, 2*mib, 0, 0),
			event(mem.ActionFreeCompleted, first+4*mib, 2*mib, 0, 0),
			event(mem.ActionOOM, 5*mib, 64*mib, 0, stack[3]),
			event(mem.ActionAlloc, first+7*mib, 1*mib, 0, stack[3]),
		},
	}
	for i := range t.Events {
		t.Events[i].TimeUS = 1_000_000 + int64(i)*1000
	}
	block := func(p driver.Pointer, size int64, state mem.BlockState, s trace.StackID) snapshot.Block {
		b := snapshot.Block{Ptr: p, Size: size, State: state, Stack: s}
		if state == mem.ActiveAllocated {
			b.RequestedSize = size
		}
		return b
	}
	return &snapshot.Snapshot{
		Traces: []*trace.Trace{t}, Stacks: stacks,
		Segments: []snapshot.Segment{
			{
				Ptr: first, TotalSize: 16 * mib, AllocatedSize: 6 * mib, ActiveSize: 6 * mib,
				RequestedSize: 6 * mib, Large: true,
				Blocks: []snapshot.Block{
					block(first, 4*mib, mem.ActiveAllocated, stack[0]), block(first+4*mib, 2*mib, mem.Inactive, 0),
					block(first+6*mib, 1*mib, mem.ActiveAllocated, stack[1]),
					block(first+7*mib, 1*mib, mem.ActiveAllocated, stack[3]),
					block(first+8*mib, 8*mib, mem.Inactive, 0),
				},
			},
			{
				Ptr: second, TotalSize: 16 * mib, AllocatedSize: 8 * mib, ActiveSize: 8 * mib,
				RequestedSize: 8 * mib, Large: true,
				Stream: 7, Blocks: []snapshot.Block{
					block(second, 8*mib, mem.ActiveAllocated, stack[2]), block(second+8*mib, 8*mib, mem.Inactive, 0),
				},
			},
		},
	}
}

// plain leaves a text as it is.
func plain(s string) string { return s }
