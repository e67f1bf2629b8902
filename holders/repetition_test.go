package holders_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// The steps that the requests show are those of the annotations: as many, and their peaks are the same.
func TestRepetitionFindsTheAnnotatedSteps(t *testing.T) {
	for _, name := range []string{"resnet", "resnet.round4", "resnet.stacks", "unet.stacks"} {
		_, h := recorded(t, "../testdata/traces/"+name+".pickle.zst")
		annotated, found := h.Steps().List, holders.Repetitions(h).List
		if len(found) != len(annotated) {
			t.Fatalf("%s: %d steps, but the annotations have %d", name, len(found), len(annotated))
		}
		peak := func(s holders.Step) (bytes int64) {
			for i := s.First; i <= s.Last; i++ {
				bytes = max(bytes, h.ActiveBytes(i))
			}
			return bytes
		}
		for i := range found {
			testkit.Equal(t, name+": peak", peak(found[i]), peak(annotated[i]))
		}
	}
}

// loop returns a recording of steps without annotations, after weights that stay: each step requests the same sizes.
func loop(steps int, sizes ...int64) *snapshot.Snapshot {
	tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{""}}
	add := func(action mem.Action, n int, size int64) {
		tr.Events = append(tr.Events, trace.Event{Action: action, Ptr: driver.Pointer(0x1000 * (n + 1)), Size: size})
	}
	for n := range 20 {
		add(mem.ActionAlloc, 1000+n, 1<<20)
	}
	for range steps {
		for n, size := range sizes {
			add(mem.ActionAlloc, n, size)
		}
		for n, size := range sizes {
			add(mem.ActionFreeCompleted, n, size)
		}
	}
	return &snapshot.Snapshot{Traces: []*trace.Trace{tr}}
}

func TestRepetitionOfALoop(t *testing.T) {
	h := history(t, loop(12, 100, 200, 300, 100, 400))
	steps := h.Steps()
	testkit.Equal(t, "source", steps.Source, "the repetition of the requests")
	testkit.Equal(t, "steps", len(steps.List), 12)
	for i, s := range steps.List {
		want := holders.Step{Number: i + 1, First: 20 + 10*i, Last: 29 + 10*i}
		testkit.Equal(t, "step", s, want)
	}
	m, err := h.Moment("step:3")
	testkit.Must(t, err)
	testkit.Equal(t, "bytes", m.Bytes, 20<<20+1100)
}

// Requests that do not repeat have no steps: those of random programs, and a program that only loads weights.
func TestNoRepetition(t *testing.T) {
	for _, path := range recordings(t) {
		if strings.Contains(path, "replay/verify") {
			_, h := recorded(t, path)
			testkit.Equal(t, path, len(h.Steps().List), 0)
		}
	}
	testkit.Equal(t, "weights", len(history(t, loop(0)).Steps().List), 0)
}
