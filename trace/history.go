package trace

import (
	"cmp"
	"math"

	"github.com/ashlar-go/ashlar/mem"
)

// HistoryOptions are the arguments of PyTorch's _record_memory_history. Unlike that of RecorderOptions, the zero value
// means enabled=None.
type HistoryOptions struct {
	// Enabled starts recording. False is enabled=None: recording stops, and all entries and annotations are deleted.
	// (Stop keeps them.)
	Enabled bool
	Clear   bool         // delete earlier entries and annotations: clear_history
	Max     int          // see RecorderOptions.Max: max_entries, which enabled="state" makes 1
	Context Context      // context
	Skip    []mem.Action // skip_actions
}

// RecordHistory changes the recording options, as torch.cuda.memory._record_memory_history does. If the new maximum is
// smaller, the newest entries and annotations are kept. Trackers and a Clock must not call it, nor Start and Stop.
func (r *Recorder) RecordHistory(o HistoryOptions) {
	if o.Enabled {
		r.mu.Lock()
		r.setSkip(o.Skip)
		r.setMax(o.Max)
		r.setContext(o.Context)
		r.mu.Unlock()
	}
	r.record(o.Enabled)
	if o.Clear || !o.Enabled {
		r.Reset()
	}
}

// setMax changes the maximum number of entries. The caller holds mu.
func (r *Recorder) setMax(n int) {
	n = cmp.Or(max(n, 0), math.MaxInt)
	if n == r.max {
		return
	}
	notes, events := r.annotations(), r.ring()
	for i := 0; i < len(events)-n; i++ {
		r.save(events[i])
	}
	r.max, r.next, r.nextNote = n, 0, 0
	r.events = append(r.newRing(), events[max(0, len(events)-n):]...)
	r.notes = notes[max(0, len(notes)-n):]
}

// newRing allocates memory for the entries.
func (r *Recorder) newRing() []Event {
	if r.max == math.MaxInt {
		return nil
	}
	return make([]Event, 0, r.max)
}
