package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A chromeEvent has the fields of an event that the tests check.
type chromeEvent struct {
	Name, Ph, Cat string
	PID, TID, ID  int
	TS            *int64
	Args          map[string]any
}

func timelineOf(t *testing.T, s *snapshot.Snapshot) []chromeEvent {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteTimeline(&b, snapshot.TimelineOptions{}); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []chromeEvent
		OtherData   map[string]int64
	}
	if err := json.Unmarshal(b.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	return file.TraceEvents
}

// The counter follows the trace and ends at the total of the segments; every span begins and ends exactly once.
func TestTimelineOfRecordings(t *testing.T) {
	for _, name := range []string{"streams", "unet.stacks"} {
		s, err := snapshot.ReadFile(traces + "/" + name + ".pickle.zst")
		if err != nil {
			t.Fatal(err)
		}
		check := func(s *snapshot.Snapshot, allocs int, start bool) {
			t.Helper()
			var last, first chromeEvent
			begun, ended, open := 0, 0, map[int]string{}
			for _, e := range timelineOf(t, s) {
				if e.TS != nil && *e.TS < 0 {
					t.Fatalf("%s: %+v is before the start", name, e)
				}
				switch e.Ph {
				case "C":
					if first.Args == nil {
						first = e
					}
					last = e
				case "b":
					open[e.ID] = e.Name
					if e.Cat == "block" {
						begun++
					}
				case "e":
					if open[e.ID] != e.Name {
						t.Fatalf("%s: %+v ends %q", name, e, open[e.ID])
					}
					delete(open, e.ID)
					ended++
				}
			}
			var requested, reserved int64
			for i := range s.Segments {
				reserved += s.Segments[i].TotalSize
				requested += s.Segments[i].RequestedSize
			}
			if last.Args["requested"] != float64(requested) || last.Args["reserved"] != float64(reserved) {
				t.Errorf("%s: ends with %v, the segments have %d and %d", name, last.Args, requested, reserved)
			}
			if begun != allocs || ended == 0 {
				t.Errorf("%s: %d blocks began, %d spans ended, %d allocations", name, begun, ended, allocs)
			}
			if big := first.Args["reserved"].(float64) > 1<<30; big == start {
				t.Errorf("%s: starts with %v", name, first.Args)
			}
		}
		count := func(events []trace.Event) (n int) {
			for i := range events {
				if events[i].Action == mem.ActionAlloc {
					n++
				}
			}
			return n
		}
		tr := s.Traces[0]
		check(s, count(tr.Events), true)
		if name != "streams" {
			tr.Events = tr.Events[len(tr.Events)/2:] // as if the ring had been full
			check(s, count(tr.Events), false)
		}
	}
}

// Events without times stand one microsecond apart.
func TestTimelineWithoutTimes(t *testing.T) {
	s := &snapshot.Snapshot{Traces: []*trace.Trace{{
		Streams: []uint64{0}, Pools: []mem.PoolID{{}}, Metadata: []string{""},
		Events: []trace.Event{
			{Ptr: 1, Size: 10, Action: mem.ActionAlloc}, {Ptr: 1, Size: 20, Action: mem.ActionAlloc}, {Ptr: 1, Size: 20, Action: mem.ActionFreeCompleted},
		},
	}}}
	var text string
	for _, e := range timelineOf(t, s) {
		if e.TS != nil {
			text += e.Ph + string(rune('0'+*e.TS)) + " "
		}
	}
	if want := "b0 C0 e1 b1 C1 e2 C2 "; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// The stack of a block is whole, and a caller may name blocks and mark moments.
func TestTimelineStacksNamesAndMarks(t *testing.T) {
	s, err := snapshot.ReadFile(traces + "/unet.stacks.pickle.zst")
	testkit.Must(t, err)
	o := snapshot.TimelineOptions{
		Name: func(id trace.StackID) string {
			if len(s.Stacks.At(id)) > 4 {
				return "deep"
			}
			return ""
		},
		Marks: []snapshot.TimelineMark{{Event: -1, Name: "before"}, {Event: 100, Name: "the peak"}, {Device: 1, Name: "elsewhere"}},
	}
	var b bytes.Buffer
	testkit.Must(t, s.WriteTimeline(&b, o))
	var file struct{ TraceEvents []chromeEvent }
	testkit.Must(t, json.Unmarshal(b.Bytes(), &file))
	first, marks, blocks := s.Traces[0].Events[0].TimeUS, "", 0
	for _, e := range file.TraceEvents {
		if e.Ph == "i" && e.Cat == "" && e.Args == nil {
			marks += fmt.Sprintf("%s %d ", e.Name, *e.TS)
		}
		if e.Ph != "b" || e.Cat != "block" {
			continue
		}
		stack, _ := e.Args["stack"].([]any)
		if len(stack) > 4 != (e.Name == "deep") {
			t.Fatalf("%s has the stack %v", e.Name, stack)
		}
		if e.Name == "deep" && !slices.Contains(stack, any("<module> (train.py:166)")) {
			t.Fatalf("the stack is not whole: %v", stack)
		}
		blocks++
	}
	testkit.Equal(t, "marks", marks, fmt.Sprintf("before 0 the peak %d ", s.Traces[0].Events[100].TimeUS-first))
	testkit.Equal(t, "blocks", blocks, 8093)
}

// Stacks that events share could fill a disk when they are written out.
func TestTimelineRefusesStacksThatAreTooLarge(t *testing.T) {
	stacks := &trace.Stacks{Frames: []trace.Frame{{Name: strings.Repeat("f", 1000)}}}
	deep := stacks.Add(make([]uint32, 30_000))
	s := &snapshot.Snapshot{Stacks: stacks, Traces: []*trace.Trace{recorded()}}
	for i := range 4 {
		s.Traces[0].Events = append(s.Traces[0].Events, trace.Event{Ptr: driver.Pointer(i), Action: mem.ActionAlloc, Stack: deep})
	}
	var n tally
	err := s.WriteTimeline(&n, snapshot.TimelineOptions{})
	var invalid *snapshot.Error
	if !errors.As(err, &invalid) || n > 70<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	s.Traces[0].Events = s.Traces[0].Events[:2]
	testkit.Must(t, s.WriteTimeline(&n, snapshot.TimelineOptions{}))
}

// A recording whose final state lacks memory that it allocated starts with no memory, and not with less.
func TestTimelineStartsWithNoLessThanNothing(t *testing.T) {
	s := &snapshot.Snapshot{Traces: []*trace.Trace{recorded()}}
	s.Traces[0].Events = []trace.Event{
		{Ptr: 1 << 20, Size: 2 << 20, Action: mem.ActionSegmentAlloc}, {Ptr: 1 << 20, Size: 512, Action: mem.ActionAlloc}, {Ptr: 1, Size: 10, Action: mem.ActionAlloc},
	}
	least := math.Inf(1)
	for _, e := range timelineOf(t, s) {
		if e.Ph == "C" {
			least = min(least, e.Args["reserved"].(float64), e.Args["requested"].(float64))
		}
	}
	if least < 0 || math.IsInf(least, 1) {
		t.Errorf("a counter goes down to %v", least)
	}
}
