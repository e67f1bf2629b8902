package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// An address that was reused while nothing was recorded is not attributed to its earlier owner.
func TestHoldersAfterAGap(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		a, dev, r := record(t, trace.ContextAll)
		weights := loadWeights(a, dev)
		kept := forwardPass(a, dev)
		r.Stop()
		a.Free(weights)
		other, err := a.Alloc(dev.DefaultStream(), weights.Size)
		if err != nil || other.Ptr != weights.Ptr {
			t.Fatalf("%#x is not used again: %#x, %v", uint64(weights.Ptr), uint64(other.Ptr), err)
		}
		if !stopped { // the first entry after the gap is an alloc
			a.Free(loadWeights(a, dev))
			r.Start()
			loadWeights(a, dev)
			a.Free(kept[0])
		}
		s, err := snapshot.Of(a, snapshot.Live{Recorder: r})
		if err != nil {
			t.Fatal(err)
		}
		s, err = snapshot.ReadBytes(pickled(t, s))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][2]int64{} // MiB that were allocated, and that are allocated
		h, err := holders.New(s, 0)
		testkit.Must(t, err)
		for i := range h.NumBlocks() {
			b := h.Block(i)
			function := "(no stack)"
			if f, ok := h.Frames.Innermost(b.Stack); ok {
				function = f.Name[strings.LastIndexByte(f.Name, '.')+1:]
			}
			was := got[function]
			was[0] += b.Size >> 20
			if int(b.End) == len(h.Trace.Events) {
				was[1] += b.Size >> 20
			}
			got[function] = was
		}
		want := map[string][2]int64{"(no stack)": {62, 62}, "loadWeights": {50, 0}, "forwardPass": {21, 0}}
		if !stopped {
			want = map[string][2]int64{"(no stack)": {62, 60}, "loadWeights": {100, 50}, "forwardPass": {21, 0}}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("stopped %v: MiB by function: %v, want %v", stopped, got, want)
		}
	}
}

// A written file lists the gaps of each device, and has no such key if there are none.
func TestGapsRoundTrip(t *testing.T) {
	s := small()
	if b := pickled(t, s); bytes.Contains(b, []byte("trace_gaps")) {
		t.Error("there are no gaps, and yet they are there")
	}
	n := len(s.Traces)
	with := recorded(trace.Event{Size: 1}, trace.Event{Ptr: 1, Size: 1}, trace.Event{Ptr: 2, Size: 1})
	with.Device, with.Stacks, with.Gaps = n+1, s.Stacks, []int{1, 3}
	s.Traces = append(s.Traces, nil, with)
	again, err := snapshot.ReadBytes(checkRoundTrip(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Traces[n+1].Gaps; !slices.Equal(got, with.Gaps) || again.Traces[0].Gaps != nil {
		t.Errorf("gaps %v and %v", again.Traces[0].Gaps, got)
	}
	var text bytes.Buffer
	var file struct {
		Gaps [][]int `json:"trace_gaps"`
	}
	if err := s.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil || !slices.Equal(file.Gaps[n+1], with.Gaps) {
		t.Errorf("%v, %v", file.Gaps, err)
	}
	for _, gaps := range [][]int{{0}, {-1}, {4}, {2, 2}, {3, 1}} {
		with.Gaps = gaps
		if _, err := snapshot.ReadBytes(pickled(t, s)); err == nil || !strings.Contains(err.Error(), "trace_gaps") {
			t.Errorf("gaps %v: %v", gaps, err)
		}
	}
}

// An annotation can be an entry of the trace, which is written and read like any other.
func TestAnnotateEntries(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	r := trace.NewRecorder(trace.RecorderOptions{Annotations: true, Context: trace.ContextAll})
	a := r.Attach(openCaching(t, dev))
	end := r.Annotate("step 1", "lr=0.1")
	loadWeights(a, dev)
	end()
	s, err := snapshot.Of(a, snapshot.Live{Recorder: r})
	if err != nil {
		t.Fatal(err)
	}
	checkViewer(t, checkRoundTrip(t, s))
	again, err := snapshot.ReadBytes(pickled(t, s))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	tr := again.Traces[0]
	for _, e := range tr.Events {
		what := e.Action.String()
		if e.Action == mem.ActionAnnotate {
			what += " " + tr.Metadata[e.Metadata] + " " + innermost(again, e.Stack)
		}
		got = append(got, what)
	}
	want := []string{
		"annotate START step 1 TestAnnotateEntries", "segment_alloc", "alloc", "annotate END step 1 TestAnnotateEntries",
	}
	if !slices.Equal(got, want) || len(again.Skipped) > 0 {
		t.Errorf("entries %q, skipped %v", got, again.Skipped)
	}
}
