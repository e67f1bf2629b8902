package timeline_test

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/timeline"
)

var (
	seed = flag.Uint64("seed", 0, "seed of the random programs; 0 takes a fresh one")
	ops  = flag.Int("ops", 300, "steps of a random program")
)

// random returns a source whose seed a failure names.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testkit.SeedFlag(t, "seed", *seed), 0))
}

// A modelled span is what a program did, by the device's virtual clock.
type modelled struct {
	lane, on, endOn int
	parent          int
	name            string
	start, end      time.Duration // end: -1 if it is not known
	state           timeline.State
	flops           float64
	before, after   int64
	span            timeline.Span
	open            bool
}

// Random programs, several lanes and streams, spans that are ended in any order or not at all: every span has the time
// at which the simulated device did it, to the nanosecond, lies where the program put it, and the three forms that are
// printed agree with the recording.
func TestRandomPrograms(t *testing.T) {
	rnd := random(t)
	for round := range 30 {
		t.Run(fmt.Sprint(round), func(t *testing.T) { randomProgram(t, rnd) })
	}
}

func randomProgram(t *testing.T, rnd *rand.Rand) {
	b := newBench(t, sim.Options{}, 3, nil)
	r := timeline.New(b.dev, timeline.Options{Level: 1, Memory: func() int64 { return b.inUse }})
	lanes := []*timeline.Lane{r.Lane("a"), r.Lane("b"), r.Lane("a")}
	var spans []*modelled
	stacks := make([][]int, len(lanes))
	marks := 0
	zero := b.sim.Now()
	finish := func(at int, on int, now time.Duration) {
		m := spans[at]
		st := &stacks[m.lane]
		for {
			top := (*st)[len(*st)-1]
			*st = (*st)[:len(*st)-1]
			in := spans[top]
			in.open = false
			if top == at {
				break
			}
			in.state, in.end = timeline.Unfinished, -1
			if in.on == on {
				in.end = now
			}
		}
		m.end, m.endOn, m.after, m.state = now, on, b.inUse, timeline.Done
		if on != m.on {
			m.state = timeline.Crossed
		}
	}
	for range *ops {
		now := b.sim.Now() - zero
		switch k := rnd.IntN(10); {
		case k < 4:
			lane, on, level := rnd.IntN(len(lanes)), rnd.IntN(3), rnd.IntN(4)
			if rnd.IntN(3) > 0 {
				on = 0
			}
			m := &modelled{
				lane: lane, on: on, parent: -1, name: fmt.Sprintf("span %d", rnd.IntN(4)), start: now, end: -1,
				state: timeline.Open, flops: float64(rnd.IntN(3)) * 1e6, before: b.inUse, after: -1, open: true,
			}
			if n := len(stacks[lane]); n > 0 {
				m.parent = stacks[lane][n-1]
			}
			m.span = lanes[lane].Begin(b.streams[on], m.name, level, m.flops)
			if level > 1 {
				m.span.End(b.streams[0]) // is none
				continue
			}
			if len(spans) == 0 {
				zero = b.sim.Now()
				m.start = 0
			}
			stacks[lane] = append(stacks[lane], len(spans))
			spans = append(spans, m)
		case k < 7 && len(spans) > 0:
			lane := rnd.IntN(len(lanes))
			st := stacks[lane]
			if len(st) == 0 {
				continue
			}
			at := st[len(st)-1]
			if rnd.IntN(8) == 0 {
				at = st[rnd.IntN(len(st))]
			}
			on := spans[at].on
			if rnd.IntN(8) == 0 {
				on = rnd.IntN(3)
			}
			spans[at].span.End(b.streams[on])
			finish(at, on, now)
		case k == 7 && len(spans) > 0:
			m := spans[rnd.IntN(len(spans))]
			if !m.open {
				m.span.End(b.streams[rnd.IntN(3)]) // again
			}
		case k == 8 && len(spans) > 0:
			lanes[rnd.IntN(len(lanes))].Mark(b.streams[rnd.IntN(3)], "tokens", rnd.Int64N(100)-50)
			marks++
		default:
			b.work(rnd.IntN(3), time.Duration(rnd.Int64N(1e6)))
			b.inUse = rnd.Int64N(1 << 30)
		}
		if rnd.IntN(40) == 0 { // what is read early must be as what is read late
			_, err := r.Read(t.Context())
			b.ok(err)
		}
	}
	rec, err := r.Read(t.Context())
	b.ok(err)
	if len(rec.Spans) != len(spans) || len(rec.Samples) != marks || rec.Dropped != 0 {
		t.Fatalf("%d spans of %d, %d samples of %d, %d dropped", len(rec.Spans), len(spans), len(rec.Samples), marks, rec.Dropped)
	}
	time_ := func(d time.Duration) time.Duration {
		if d < 0 {
			return timeline.Unknown
		}
		return d
	}
	for i, m := range spans {
		e := rec.Spans[i]
		want := timeline.Entry{
			Lane: []string{"a", "b", "a"}[m.lane], LaneNumber: m.lane + 1, Name: m.name, Level: e.Level, Parent: m.parent, FLOPs: m.flops,
			Stream: b.streams[m.on].ID(), EndStream: e.EndStream, Start: m.start, End: time_(m.end), State: m.state,
		}
		if m.parent >= 0 {
			want.Depth = rec.Spans[m.parent].Depth + 1
		}
		if m.state == timeline.Done || m.state == timeline.Crossed {
			want.EndStream = b.streams[m.endOn].ID()
		}
		want.Memory = timeline.Memory{Begin: m.before, End: m.after, Peak: e.Memory.Peak}
		if e != want {
			t.Errorf("span %d is\n%+v, want\n%+v", i, e, want)
		}
		if p := e.Parent; p >= 0 && rec.Spans[p].Memory.Peak < e.Memory.Peak || e.Memory.Peak < max(m.before, m.after) {
			t.Errorf("span %d peaks at %d, the one around it at less, or it began and ended with more", i, e.Memory.Peak)
		}
	}
	checkSums(t, rec)
	checkForms(t, rec, spans)
	b.clean(r)
}

// checkSums holds that what was done within a span, on its stream, took no longer than the span.
func checkSums(t *testing.T, rec *timeline.Recording) {
	t.Helper()
	within := make([]time.Duration, len(rec.Spans))
	for i := range rec.Spans {
		e := &rec.Spans[i]
		took, ok := e.Duration()
		if !ok || e.Parent < 0 || e.State != timeline.Done {
			continue
		}
		if p := &rec.Spans[e.Parent]; p.State == timeline.Done && p.Stream == e.Stream {
			if e.Start < p.Start || e.End > p.End {
				t.Errorf("span %d, %v to %v, leaves the one around it, %v to %v", i, e.Start, e.End, p.Start, p.End)
			}
			within[e.Parent] += took
		}
	}
	for i, sum := range within {
		if took, _ := rec.Spans[i].Duration(); rec.Spans[i].State == timeline.Done && sum > took {
			t.Errorf("span %d took %v, and what is in it %v", i, took, sum)
		}
	}
}

// checkForms prints a recording in each form.
func checkForms(t *testing.T, rec *timeline.Recording, spans []*modelled) {
	t.Helper()
	var tree, bars, trace strings.Builder
	for _, opts := range []timeline.TreeOptions{{Unfolded: true}, {Depth: 2}, {}} {
		tree.Reset()
		if err := timeline.WriteTree(&tree, rec, opts); err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(tree.String(), "\n")
		lanes := map[string]bool{}
		for _, e := range rec.Spans {
			lanes[e.Lane] = true
		}
		if opts.Unfolded && lines != 2+len(lanes)+len(spans) {
			t.Errorf("%d lines for %d spans in %d lanes:\n%s", lines, len(spans), len(lanes), tree.String())
		}
	}
	for _, opts := range []timeline.TimelineOptions{{}, {Width: 80}, {Width: 1}, {Width: 200, Unicode: true}} {
		bars.Reset()
		if err := timeline.WriteTimeline(&bars, rec, opts); err != nil {
			t.Fatal(err)
		}
		width := max(opts.Width, 60)
		if opts.Width == 0 {
			width = 150
		}
		for line := range strings.Lines(bars.String()) {
			if runes := []rune(strings.TrimSuffix(line, "\n")); len(runes) > width && !strings.Contains(line, ";") {
				t.Errorf("%d characters in a line of %d: %q", len(runes), width, line)
			}
			if !opts.Unicode && strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
				t.Errorf("not ASCII: %q", line)
			}
		}
	}
	if err := timeline.WriteChromeTrace(&trace, rec); err != nil {
		t.Fatal(err)
	}
	curve := false
	for _, e := range rec.Spans {
		curve = curve || e.Start != timeline.Unknown && e.Memory.Begin >= 0
	}
	for _, s := range rec.Samples {
		curve = curve || s.At != timeline.Unknown
	}
	phases := map[string]int{}
	for _, e := range checkTrace(t, trace.String()) {
		phases[e.Phase]++
	}
	if n := phases["X"] + phases["B"] + phases["b"] + phases["i"]; n != len(spans) || (phases["C"] > 0) != curve {
		t.Errorf("%d events for %d spans: %v", n, len(spans), phases)
	}
}

// A writer that fails after some bytes.
type fullDisk struct{ left int }

func (w *fullDisk) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, io.ErrShortWrite
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWritersErrorsSurface(t *testing.T) {
	rec := &timeline.Recording{Clock: true}
	for i := range 1000 {
		rec.Spans = append(rec.Spans, timeline.Entry{Lane: "l", LaneNumber: i + 1, Name: fmt.Sprint(i), Parent: -1, End: 1})
	}
	for name, write := range map[string]func(io.Writer) error{
		"tree":     func(w io.Writer) error { return timeline.WriteTree(w, rec, timeline.TreeOptions{}) },
		"timeline": func(w io.Writer) error { return timeline.WriteTimeline(w, rec, timeline.TimelineOptions{}) },
		"chrome":   func(w io.Writer) error { return timeline.WriteChromeTrace(w, rec, rec) },
	} {
		if err := write(&fullDisk{5000}); err != io.ErrShortWrite {
			t.Errorf("%s: %v", name, err)
		}
		if err := write(&fullDisk{1 << 30}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Viewers take no negative times: the file begins with the earliest of all, and the others keep their distance.
func TestTimesBeforeZero(t *testing.T) {
	span := func(at time.Duration) []timeline.Entry {
		return []timeline.Entry{{Name: "step", Parent: -1, Start: at, End: at + 1, Memory: timeline.Memory{Begin: -1, End: -1, Peak: -1}}}
	}
	var text strings.Builder
	early := &timeline.Recording{Spans: span(-1500), Samples: []timeline.Sample{{Name: "n", At: -2001}}}
	if err := timeline.WriteChromeTrace(&text, &timeline.Recording{Spans: span(1000)}, early); err != nil {
		t.Fatal(err)
	}
	var at []float64
	for _, e := range checkTrace(t, text.String()) {
		if e.Phase != "M" {
			at = append(at, *e.Time)
		}
	}
	if !slices.Equal(at, []float64{3.001, 0.501, 0}) {
		t.Errorf("times %v", at)
	}
}

// Recordings of one number are processes of their own all the same.
func TestProcessesOfOneNumber(t *testing.T) {
	rec := &timeline.Recording{Index: 2}
	var text strings.Builder
	if err := timeline.WriteChromeTrace(&text, rec, rec, &timeline.Recording{Index: 3}); err != nil {
		t.Fatal(err)
	}
	pids := map[int]bool{}
	for _, e := range checkTrace(t, text.String()) {
		pids[*e.PID] = true
	}
	if len(pids) != 3 || !pids[2] || !pids[3] || !pids[4] {
		t.Errorf("%v", pids)
	}
}
