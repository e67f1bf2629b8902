package trace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// everyAllocator is all that a recorder is attached to in this package's tests.
var everyAllocator = slices.Concat(allocators, partial, []opener{
	{"bfc", func(dev driver.Device) (mem.Allocator, error) {
		return bfc.New(dev, bfc.Config{})
	}},
	{"paged", func(dev driver.Device) (mem.Allocator, error) { return paged.New(dev, paged.Config{}) }},
	{"direct", func(dev driver.Device) (mem.Allocator, error) { return direct.New(dev, direct.Config{}), nil }},
})

// snapshot takes a snapshot with the recorder's history.
func (r *rig) snapshot() *snapshot.Snapshot {
	r.t.Helper()
	s, err := snapshot.Of(r.a, snapshot.Live{Recorder: r.recorder})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// A snapshot's trace ends before the entry that tells of that snapshot, also where the ring is full: the next one has it.
func TestDefect13_TheTraceEndsBeforeTheSnapshotsOwnEntry(t *testing.T) {
	for _, x := range everyAllocator {
		for _, limit := range []int{0, 1, 3} {
			r := newRig(t, x.open, trace.RecorderOptions{Max: limit})
			r.theAlloc()
			r.theFree()
			want := r.recorder.Trace().Events
			if got := r.snapshot().Traces[0].Events; !slices.Equal(got, want) {
				t.Errorf("%s, %d entries at most: the trace is %+v, want %+v", x.name, limit, got, want)
			}
			want = r.recorder.Trace().Events // with the entry of the first, if the allocator tells of it
			if got := r.snapshot().Traces[0].Events; !slices.Equal(got, want) {
				t.Errorf("%s, %d entries at most: the second trace is %+v, want %+v", x.name, limit, got, want)
			}
		}
	}
}

// At the level of allocations, memory that no request gave back has the stack of the request that got it.
func TestDefect13_FreedSegmentsHaveTheirOwnStack(t *testing.T) {
	for _, x := range everyAllocator {
		for c := trace.ContextState; c <= trace.ContextAll; c++ {
			r := newRig(t, x.open, trace.RecorderOptions{Context: c})
			r.theAlloc()
			r.theFree()
			r.theTrim()
			tr, got, gone := r.recorder.Trace(), int64(0), int64(0)
			for _, e := range tr.Events {
				switch e.Action {
				case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
					got += e.Size
				case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
					gone += e.Size
					stack := strings.Join(names(tr.Stacks, e.Stack), " ")
					if alloc := strings.Contains(stack, "(*rig).theAlloc"); alloc != (c == trace.ContextAlloc) || (stack != "") != (c > trace.ContextState) {
						t.Errorf("%s, level %v: %v has the stack %q", x.name, c, e.Action, stack)
					}
				}
			}
			if keeps := slices.Contains([]string{"arena", "magazine", "pool"}, x.name); gone != got || (got == 0) != keeps {
				t.Errorf("%s, level %v: %d bytes of segments came, %d went", x.name, c, got, gone)
			}
		}
	}
}
