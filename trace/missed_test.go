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
