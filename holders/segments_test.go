package holders_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// At every event the reserved memory adds up to the sum of the events before it, and at the end to the final state. An
// active block lies in reserved memory.
func TestSegmentsAddUp(t *testing.T) {
	for _, name := range []string{"streams", "streams.expandable", "unet.gc6", "unet.expandable", "gpt2.oom"} {
		s, err := snapshot.ReadFile("../testdata/traces/" + name + ".pickle.zst")
		if err != nil {
			t.Fatal(err)
		}
		h, err := holders.New(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		segments := h.Segments()
		changes := make([]int64, len(h.Trace.Events)+1)
		for i := range segments {
			x := &segments[i]
			if x.Start < 0 || x.End <= x.Start || x.Size <= 0 {
				t.Fatalf("%s: %+v", name, *x)
			}
			changes[x.Start] += x.Size
			changes[x.End] -= x.Size
		}
		var sums trace.Totals
		var reserved int64
		for i := range h.Trace.Events {
			e := &h.Trace.Events[i]
			sums.Add(e.Action, e.Size)
			if reserved += changes[i]; reserved != sums.Reserved.Current {
				t.Fatalf("%s: %d bytes are reserved after event %d, want %d", name, reserved, i, sums.Reserved.Current)
			}
		}
		var final int64
		for _, x := range s.SegmentsOf(0) {
			final += x.TotalSize
		}
		if reserved != final {
			t.Errorf("%s: %d bytes are reserved at the end, want %d", name, reserved, final)
		}
		for i := 0; i < h.NumBlocks(); i += 97 {
			if b := h.Block(i); !within(segments, &b) {
				t.Fatalf("%s: no segment has the block %+v", name, b)
			}
		}
	}
}

// within reports whether reserved memory has the first byte of a block when it is allocated.
func within(segments []holders.Segment, b *holders.Block) bool {
	for i := range segments {
		s := &segments[i]
		if s.ActiveAt(int(b.Start)) && s.Ptr <= b.Ptr && b.Ptr < s.Ptr+driver.Pointer(s.Size) {
			return true
		}
	}
	return false
}

// Memory that was reserved before the recording, and pages that are unmapped in other pieces than they were mapped in.
func TestSegmentsOfPartsAndOfBefore(t *testing.T) {
	event := func(a mem.Action, ptr driver.Pointer, size int64) trace.Event {
		return trace.Event{Action: a, Ptr: ptr, Size: size}
	}
	s := &snapshot.Snapshot{
		Segments: []snapshot.Segment{
			{Ptr: 0x1000, TotalSize: 0x100},                   // from before
			{Ptr: 0x2000, TotalSize: 0x100, Expandable: true}, // the last page of three
			{Ptr: 0x2200, TotalSize: 0x100, Expandable: true},
		},
		Traces: []*trace.Trace{{
			Pools: make([]mem.PoolID, 1), Metadata: []string{""}, Streams: []uint64{0},
			Events: []trace.Event{
				event(mem.ActionSegmentFree, 0x3000, 0x100), // from before, too
				event(mem.ActionSegmentMap, 0x2000, 0x300),
				event(mem.ActionSegmentUnmap, 0x2100, 0x100),
			},
		}},
	}
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []holders.Segment{
		{Ptr: 0x1000, Size: 0x100, Start: -1, End: 3},
		{Ptr: 0x3000, Size: 0x100, Start: -1, End: 0},
		{Ptr: 0x2000, Size: 0x100, Start: 1, End: 3, Expandable: true},
		{Ptr: 0x2100, Size: 0x100, Start: 1, End: 2, Expandable: true},
		{Ptr: 0x2200, Size: 0x100, Start: 1, End: 3, Expandable: true},
	}
	got := h.Segments()
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("segment %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// Thousands of segments that were released in any order are all there, and so is each page of one large segment that
// was mapped and unmapped.
func TestManySegments(t *testing.T) {
	const n = 5000
	tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{""}}
	order := testkit.Rand(t).Perm(n)
	at := func(i int) driver.Pointer { return driver.Pointer(i+1) << 21 }
	for _, i := range order {
		tr.Events = append(tr.Events, trace.Event{Action: mem.ActionSegmentMap, Ptr: at(i), Size: 2 << 20})
	}
	for _, i := range order[:n-1] {
		tr.Events = append(tr.Events, trace.Event{Action: mem.ActionSegmentUnmap, Ptr: at(i), Size: 2 << 20})
	}
	h := history(t, &snapshot.Snapshot{Traces: []*trace.Trace{tr}, Segments: []snapshot.Segment{
		{Ptr: at(order[n-1]), TotalSize: 2 << 20, Expandable: true},
	}})
	segments := h.Segments()
	testkit.Equal(t, "segments", len(segments), n)
	for k, x := range segments { // by Start, so in the order in which they were mapped
		if x.Ptr != at(order[k]) || x.Size != 2<<20 || int(x.Start) != k || int(x.End) != n+k {
			t.Fatalf("segment %d is %+v, want that at %#x, mapped by event %d and unmapped by %d", k, x, at(order[k]), k, n+k)
		}
	}
}
