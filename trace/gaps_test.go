package trace_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A trace marks where recording was off, as long as entries from before the gap remain.
func TestGaps(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{Max: 4})
	gap := func() { r.Stop(); r.Start() }
	event := func() { r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 1, Size: 1}) }
	expect := func(want ...int) {
		t.Helper()
		if got := r.Trace().Gaps; !slices.Equal(got, want) {
			t.Errorf("gaps %v, want %v", got, want)
		}
		if got := r.View(func() {}).Trace.Gaps; !slices.Equal(got, want) {
			t.Errorf("in a view: gaps %v, want %v", got, want)
		}
	}
	gap()
	expect() // nothing was known before
	event()
	event()
	r.Stop()
	expect(2)
	r.Start()
	gap()
	expect(2)
	event()
	gap()
	event()
	expect(2, 3)
	event()
	expect(1, 2)
	event()
	expect(1)
	event()
	gap()
	expect(4)
	r.Reset()
	expect()
	event()
	r.Attach(&refusing{})
	event()
	r.Detach()
	expect(1, 2)

	// This view dates from before the gap.
	r = trace.NewRecorder(trace.RecorderOptions{})
	event()
	v := r.View(func() {
		event()
		r.Observe(mem.Event{Action: mem.ActionSnapshot})
		gap()
		event()
	})
	if len(v.Trace.Events) != 2 || len(v.Trace.Gaps) > 0 {
		t.Errorf("%d entries, gaps %v", len(v.Trace.Events), v.Trace.Gaps)
	}
}

// In a program, a block allocated before a gap ends at the gap; a block freed after the gap, or still allocated at the
// end, begins at the gap.
func TestToProgramAfterGaps(t *testing.T) {
	tr := events(t, `
free_requested 0x500 5
free_completed 0x500 5
alloc 0x1000 100
alloc 0x2000 200
alloc 0x3000 300
free_requested 0x3000 300
free_completed 0x1000 150
free_requested 0x2000 200
free_completed 0x2000 200
alloc 0x3000 301
alloc 0x4000 400
annotate 0 0
free_requested 0x4000 400
free_completed 0x4000 400
segment_free 0x4000 4096
`)
	tr.Gaps = []int{6, 12, 15}
	p, err := trace.ToProgram(tr, trace.ProgramOptions{Live: []trace.LiveBlock{{Ptr: 0x3000, Size: 302}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `
alloc b0 5 on=s0
free b0
alloc b1 100 on=s0
alloc b2 200 on=s0
alloc b3 300 on=s0
free b3 pending
free b1
free b2
complete b3
alloc b4 150 on=s0
alloc b5 200 on=s0
free b4 pending
complete b4
free b5
alloc b6 301 on=s0
alloc b7 400 on=s0
free b6
free b7
alloc b8 400 on=s0
free b8
empty_cache
alloc b9 302 on=s0
`
	s, err := p.Script()
	if err != nil {
		t.Fatal(err)
	}
	if got := "\n" + s.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if p.Anomalies.Count > 0 || p.Prelude != (trace.Prelude{Blocks: 1, Bytes: 5}) {
		t.Errorf("anomalies %+v, prelude %+v", p.Anomalies, p.Prelude)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	for _, gaps := range [][]int{{0}, {16}, {3, 3}, {4, 3}} {
		tr.Gaps = gaps
		if _, err := trace.ToProgram(tr, trace.ProgramOptions{}); err == nil {
			t.Errorf("gaps %v are accepted", gaps)
		}
	}
}
