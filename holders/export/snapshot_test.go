package export_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A snapshot at a moment has the requested and the reserved memory of that moment, consistent segments, and a history
// that ends there. Written and read again, it is a recording like any other.
func TestSnapshotAtAMoment(t *testing.T) {
	for _, name := range []string{
		"unet.stacks", "gpt2.oom", "gpt2.expandable", "streams", "streams.expandable", "unet.gc6",
	} {
		s := recorded(t, name)
		events := s.Traces[0].Events
		moments := []string{"peak", "end", "event:-1", "event:0", fmt.Sprintf("event:%d", len(events)/3)}
		for _, moment := range moments {
			view := views(t, s, moment)[0]
			cut := export.Snapshot(s, view)
			testkit.Must(t, cut.Check())
			var totals trace.Totals
			for _, e := range events[:view.Moment.Event+1] {
				totals.Add(e.Action, e.Size)
			}
			var requested, reserved int64
			blocks := 0
			for i := range cut.Segments {
				requested += cut.Segments[i].RequestedSize
				reserved += cut.Segments[i].TotalSize
				for _, b := range cut.Segments[i].Blocks {
					if b.State != mem.Inactive {
						blocks++
					}
				}
			}
			what := name + " at " + moment
			testkit.Equal(t, what+": requested", requested, view.Bytes)
			testkit.Equal(t, what+": reserved", reserved, totals.Reserved.Current)
			testkit.Equal(t, what+": blocks", blocks, len(view.Blocks))

			var b bytes.Buffer
			testkit.Must(t, cut.WritePickle(&b))
			again, err := snapshot.ReadBytes(b.Bytes())
			testkit.Must(t, err)
			if moment == "event:-1" {
				continue // nothing is left
			}
			end := views(t, again, "end")[0]
			testkit.Equal(t, what+": read again", end.Bytes, view.Bytes)
			testkit.Equal(t, what+": events", len(again.Traces[0].Events), view.Moment.Event+1)
		}
		testkit.Equal(t, name+": events that are left", len(s.Traces[0].Events), len(events))
	}
}

// The snapshot at the end is the final state: the same segments and, in PyTorch's default settings, the same blocks.
func TestSnapshotAtTheEnd(t *testing.T) {
	for _, name := range []string{"gpt2", "streams", "resnet.stacks", "streams.expandable"} {
		s := recorded(t, name)
		cut := export.Snapshot(s, views(t, s, "end")...)
		testkit.Equal(t, name+": segments", len(cut.Segments), len(s.Segments))
		for i := range s.Segments {
			got, want := &cut.Segments[i], &s.Segments[i]
			if got.Ptr != want.Ptr || got.TotalSize != want.TotalSize || got.RequestedSize != want.RequestedSize {
				t.Fatalf("%s: segment %d is %+v, want %+v", name, i, got, want)
			}
			same := slices.EqualFunc(got.Blocks, want.Blocks, func(a, b snapshot.Block) bool {
				return a.Ptr == b.Ptr && a.Size == b.Size && a.State == b.State && a.Stack == b.Stack
			})
			if !same {
				t.Errorf("%s: segment %d has the blocks %+v, want %+v", name, i, got.Blocks, want.Blocks)
			}
		}
	}
}

// Only the devices of the views change, and the snapshot itself does not.
func TestSnapshotOfSomeDevices(t *testing.T) {
	s := small()
	s.Stats = map[string]int64{"num_ooms": 1}
	s.Annotations = []snapshot.Annotation{
		{TimeUS: 1001, Name: "a"}, {TimeUS: 1006, Name: "b"}, {Device: 2, TimeUS: 1006, Name: "c"},
	}
	s.Traces[0].CompileContexts = []trace.CompileContext{{First: 0, Text: "x"}, {First: 3, Text: "y"}}
	s.Traces[0].Gaps = []int{4}
	s.TraceExtra = []snapshot.TraceExtra{{Unknown: []snapshot.UnknownEntry{{Before: 1}, {Before: 4}}}}
	before := fmt.Sprintf("%+v", s.Segments)
	h, err := holders.New(s, 0)
	testkit.Must(t, err)
	cut := export.Snapshot(s, h.At(holders.Moment{Event: 1}))
	if len(cut.Segments) != 2 || cut.Segments[1].Device != 2 || cut.Segments[0].RequestedSize != 1300 {
		t.Errorf("%+v", cut.Segments)
	}
	if len(cut.Annotations) != 2 || cut.Annotations[1].Name != "c" || cut.Stats != nil {
		t.Errorf("%+v, %v", cut.Annotations, cut.Stats)
	}
	tr := cut.Traces[0]
	if len(tr.Events) != 2 || len(tr.CompileContexts) != 1 || len(tr.Gaps) != 0 || len(cut.TraceExtra[0].Unknown) != 1 {
		t.Errorf("%+v, %+v", tr, cut.TraceExtra)
	}
	testkit.Equal(t, "the snapshot", fmt.Sprintf("%+v", s.Segments), before)
	testkit.Equal(t, "events", len(s.Traces[0].Events), 5)
	if export.Snapshot(s) != s {
		t.Error("without views, something changes")
	}
}
