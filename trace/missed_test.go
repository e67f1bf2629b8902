package trace

import (
	"testing"

	"github.com/ashlar-go/ashlar/mem"
)

// However often recording is turned off and on, the list of gaps is no longer than the ring.
func TestGapsAreBounded(t *testing.T) {
	r := NewRecorder(RecorderOptions{Max: 10})
	for range 1000 {
		r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 1, Size: 1})
		r.Stop()
		r.Start()
	}
	if len(r.gaps) != 10 || cap(r.gaps) > 100 || len(r.Trace().Gaps) != 10 {
		t.Errorf("%d gaps, room for %d", len(r.gaps), cap(r.gaps))
	}
}

// All contradictions are counted, and the first 8 are described.
func TestFirstAnomaliesAreDescribed(t *testing.T) {
	var a Anomalies
	for i := range 10 {
		a.add(i, "contradiction %d", i)
	}
	if a.Count != 10 || len(a.First) != 8 || a.First[7].String() != "entry 7: contradiction 7" {
		t.Errorf("%d anomalies, described are %v", a.Count, a.First)
	}
}

// An event that comes after recording stopped does not count, not even when recording begins again and the layer does
// not report events yet: the block may be freed unseen, and the next one at its address would have its stack.
func TestEventsThatComeLate(t *testing.T) {
	r := NewRecorder(RecorderOptions{Context: ContextAll})
	l := &layer{recorder: r, reports: true}
	r.layer = l
	r.attached = &attachment{layer: l}
	r.observe(true)
	r.Stop()
	r.recording = true // Start has come so far
	l.report(mem.Event{Action: mem.ActionAlloc, Ptr: 512, Size: 512})
	if r.total != 0 || r.blocks.n != 0 {
		t.Errorf("%d entries and %d blocks", r.total, r.blocks.n)
	}
}
