package trace

import (
	"math"

	"github.com/ashlar-go/ashlar/mem"
)

// HistoryOptions says what a recorder keeps from now on, in the words of PyTorch's _record_memory_history. Unlike
// RecorderOptions its zero value is that of enabled=None.
type HistoryOptions struct {
	// Enabled records. False is enabled=None: recording stops, and all entries and annotations are forgotten, which Stop
	// keeps.
	Enabled bool
	Clear   bool         // forget earlier entries and annotations: clear_history
	Max     int          // see RecorderOptions.Max: max_entries, which enabled="state" makes 1
	Context Context      // context
	Skip    []mem.Action // skip_actions
}

// RecordHistory changes what is recorded, as torch.cuda.memory._record_memory_history does. Where fewer entries or
// annotations are kept than there are, the newest stay. Like Start and Stop it must not be called by trackers, nor by a
// Clock.
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

// setMax changes how many entries are kept. The caller holds mu.
func (r *Recorder) setMax(n int) {
	if n <= 0 {
		n = math.MaxInt
	}
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

// newRing returns room for the entries.
func (r *Recorder) newRing() []Event {
	if r.max == math.MaxInt {
		return nil
	}
	return make([]Event, 0, r.max)
}
