package holders_test

import (
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMoments(t *testing.T) {
	h := history(t, handmade())
	for name, want := range map[string]holders.Moment{
		"peak":     {Event: 2, Since: 2 * time.Millisecond, Bytes: 780, Name: "the peak"},
		"end":      {Event: 8, Since: 8 * time.Millisecond, Bytes: 250, Name: "the end"},
		"oom":      {Event: 8, Since: 8 * time.Millisecond, Bytes: 250, Name: "the failed request"},
		"oom:1":    {Event: 8, Since: 8 * time.Millisecond, Bytes: 250, Name: "failed request 1"},
		"event:-1": {Event: -1, Bytes: 80, Name: "event -1"},
		"event:3":  {Event: 3, Since: 3 * time.Millisecond, Bytes: 380, Name: "event 3"},
		"2.5ms":    {Event: 2, Since: 2 * time.Millisecond, Bytes: 780, Name: "2.5ms"},
		"0s":       {Event: 0, Bytes: 180, Name: "0s"},
	} {
		m, err := h.Moment(name)
		testkit.Must(t, err)
		testkit.Equal(t, name, m, want)
	}
	peak, _ := h.Moment("peak")
	testkit.Equal(t, "sentence", peak.String(), "the peak, 2ms after the start, with 780B requested")
}

func TestMomentsThatARecordingLacks(t *testing.T) {
	h := history(t, handmade())
	quiet := handmade()
	quiet.Traces[0].Events = quiet.Traces[0].Events[:8]
	for i := range quiet.Traces[0].Events {
		quiet.Traces[0].Events[i].TimeUS = 0
	}
	untimed := history(t, quiet)
	for _, c := range []struct {
		h          *holders.History
		name, want string
	}{
		{h, "oom:2", "failed requests 1 to 1"},
		{h, "oom:x", "whole number"},
		{h, "step:1", "record_function"},
		{h, "step", "want peak, oom"},
		{h, "Peak", "want peak, oom"},
		{h, "event:9", "events 0 to 8"},
		{h, "9ms", "lasts 8ms"},
		{h, "-1s", "lasts 8ms"},
		{untimed, "1s", "no times"},
		{untimed, "oom", "no request failed"},
	} {
		if _, err := c.h.Moment(c.name); err == nil {
			t.Errorf("%s: no error", c.name)
		} else {
			testkit.Contains(t, err.Error(), "holders: moment", c.want)
		}
	}
}

// CheckMoment tells a name that no recording can have from one that this recording lacks.
func TestNamesOfMoments(t *testing.T) {
	for _, name := range []string{"peak", "end", "oom", "oom:2", "step:1", "event:-1", "event:9", "12.5s", "2m1s"} {
		testkit.Must(t, holders.CheckMoment(name))
	}
	for _, name := range []string{"", "Peak", "peak:1", "end:1", "step", "event", "oom:x", "step:", "12.5", "s"} {
		if err := holders.CheckMoment(name); err == nil {
			t.Errorf("%q is the name of a moment", name)
		} else {
			testkit.Contains(t, err.Error(), "holders: moment", "want ")
		}
	}
}

// A report of a failed request has the failure at its end, even if its history has no entry for it.
func TestMomentOfAReport(t *testing.T) {
	s := handmade()
	s.Traces[0].Events = s.Traces[0].Events[:8]
	s.OutOfMemory = &snapshot.OutOfMemory{Text: "out of memory"}
	testkit.Equal(t, "event", at(t, history(t, s), "oom").Moment.Event, 7)
}

// annotated returns a recording of 10 events, one each millisecond, with annotations: names at times in milliseconds.
// Its block of 100+n bytes exists from event n up to the next.
func annotated(events int, notes ...snapshot.Annotation) *snapshot.Snapshot {
	tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{""}}
	for i := range events {
		tr.Events = append(tr.Events,
			trace.Event{Action: mem.ActionAlloc, Ptr: 0x1000, Size: 100 + int64(i), TimeUS: 1e15 + int64(i)*1000},
			trace.Event{Action: mem.ActionFreeCompleted, Ptr: 0x1000, Size: 100 + int64(i), TimeUS: 1e15 + int64(i)*1000 + 500})
	}
	for i := range notes {
		notes[i].TimeUS = 1e15 + notes[i].TimeUS*1000 - 100
	}
	return &snapshot.Snapshot{Traces: []*trace.Trace{tr}, Annotations: notes}
}

func note(ms int64, stage, name string) snapshot.Annotation {
	return snapshot.Annotation{TimeUS: ms, Stage: stage, Name: name}
}

func TestStepsOfAnnotations(t *testing.T) {
	const start, end = trace.StageStart, trace.StageEnd
	for _, c := range []struct {
		name   string
		s      *snapshot.Snapshot
		source string
		want   []holders.Step
	}{
		{
			"the profiler's steps have their own numbers",
			annotated(10, note(1, start, "Optimizer.step#SGD.step"), note(2, end, "Optimizer.step#SGD.step"),
				note(3, start, "ProfilerStep#7"), note(5, end, "ProfilerStep#7"), note(5, start, "ProfilerStep#8")),
			`the annotations "ProfilerStep#"`,
			[]holders.Step{{Number: 7, First: 6, Last: 9}, {Number: 8, First: 10, Last: 19, Partial: true}},
		},
		{
			"a user's annotations",
			annotated(10, note(1, start, "train_step"), note(2, start, "forward"), note(3, end, "forward"),
				note(4, end, "train_step"), note(6, start, "train_step"), note(9, end, "train_step")),
			`the annotations "train_step"`,
			[]holders.Step{{Number: 1, First: 2, Last: 7}, {Number: 2, First: 12, Last: 17}},
		},
		{
			"steps end with the first optimizer's",
			annotated(10, note(2, start, "Optimizer.step#SGD.step"), note(3, end, "Optimizer.step#SGD.step"),
				note(4, end, "Optimizer.step#Adam.step"), note(6, end, "Optimizer.step#SGD.step")),
			`the annotations "Optimizer.step#SGD.step"`,
			[]holders.Step{{Number: 1, First: 0, Last: 5}, {Number: 2, First: 6, Last: 11}},
		},
	} {
		steps := history(t, c.s).Steps()
		testkit.Equal(t, c.name+": source", steps.Source, c.source)
		testkit.Equal(t, c.name+": steps", len(steps.List), len(c.want))
		for i := range c.want {
			testkit.Equal(t, c.name, steps.List[i], c.want[i])
		}
	}
}

// A step's moment is the peak within it.
func TestMomentOfAStep(t *testing.T) {
	s := annotated(10, note(1, trace.StageStart, "step 5"), note(4, trace.StageEnd, "step 5"))
	h := history(t, s)
	m, err := h.Moment("step:5")
	testkit.Must(t, err)
	testkit.Equal(t, "event", m.Event, 6)
	testkit.Equal(t, "bytes", m.Bytes, 103)
	testkit.Equal(t, "name", m.Name, "the peak of step 5")
	if _, err = h.Moment("step:6"); err == nil {
		t.Fatal("there is no step 6")
	}
	testkit.Contains(t, err.Error(), "steps 5 to 5", `"step "`)

	_, h = recorded(t, "../testdata/traces/gpt2.oom.pickle.zst")
	steps := h.Steps().List
	testkit.Equal(t, "steps", len(steps), 30)
	testkit.Equal(t, "the step that failed is partial", steps[29].Partial, true)
	oom, err := h.Moment("oom")
	testkit.Must(t, err)
	if oom.Event < steps[29].First || oom.Event > steps[29].Last {
		t.Errorf("the failure is at event %d, outside of its step, %+v", oom.Event, steps[29])
	}
}
