package trace

import (
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/mem"
)

// An Annotation is the start or the end of a named stretch of work, as PyTorch's external_annotations have them.
type Annotation struct {
	TimeUS   int64 // microseconds since 1970
	Name     string
	Metadata string
	Stage    string // StageStart or StageEnd
	Entries  int64  // that had been recorded before, since the last Reset, with those that the ring has lost
}

// The stages of annotations.
const (
	StageStart = "START"
	StageEnd   = "END"
)

// Annotate notes that a stretch of work starts, and returns what notes that it ends: once, however often it is called.
// The metadata says more about it, and may be empty. Both are kept in a ring of their own, as PyTorch keeps them, and with
// RecorderOptions.Annotations among the entries too. While the recorder is stopped nothing is noted, nor the end of what
// was not. Trackers are told of every start and end (mem.ActionAnnotate), though not of its name. Other entries do not
// change: see SetMetadata for what belongs to each.
func (r *Recorder) Annotate(name, metadata string) (end func()) {
	noted := r.note(Annotation{Name: name, Metadata: metadata, Stage: StageStart}, true)
	var ended atomic.Bool
	return func() {
		if !ended.Swap(true) {
			r.note(Annotation{Name: name, Metadata: metadata, Stage: StageEnd}, noted)
		}
	}
}

// note tells trackers of an annotation, and keeps it if it is wanted and the recorder is not stopped.
func (r *Recorder) note(a Annotation, wanted bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := mem.Event{Action: mem.ActionAnnotate}
	for _, t := range r.trackers {
		t.observe(e)
	}
	if !r.recording || !wanted {
		return false
	}
	a.Entries = r.total - r.base
	if r.options.Clock != nil {
		a.TimeUS = r.options.Clock()
	}
	if len(r.notes) < r.max {
		r.notes = append(r.notes, a)
	} else {
		r.notes[r.nextNote] = a
		r.nextNote = (r.nextNote + 1) % r.max
	}
	if r.options.Annotations && !r.skip[e.Action] {
		var stack StackID
		if r.captures[e.Action] {
			stack = r.callers.of(r.pcs[:runtime.Callers(2, r.pcs)]) // from Annotate on
		}
		says := r.labels.values[r.labels.current()]
		says.metadata = a.Stage + " " + a.Name
		r.enter(&e, stack, r.labels.of(says))
	}
	return true
}

// Annotations returns what was annotated, oldest first.
func (r *Recorder) Annotations() []Annotation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.annotations()
}

func (r *Recorder) annotations() []Annotation {
	return append(slices.Clone(r.notes[r.nextNote:]), r.notes[:r.nextNote]...)
}
