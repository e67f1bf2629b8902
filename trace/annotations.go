package trace

import (
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/mem"
)

// An Annotation is the start or the end of a named section of work, as in PyTorch's external_annotations.
type Annotation struct {
	TimeUS   int64 // microseconds since 1970
	Name     string
	Metadata string
	Stage    string // StageStart or StageEnd
	Entries  int64  // recorded before it since the last Reset, including those that the ring has lost
}

// The stages of annotations.
const (
	StageStart = "START"
	StageEnd   = "END"
)

// Annotate records the start of a named section of work and returns a function that records its end; calls after the
// first are no-ops. The metadata is additional text and may be empty. Annotations are kept in a ring of their own, as
// in PyTorch and, with RecorderOptions.Annotations, also among the entries. While the recorder is stopped no start is
// recorded, nor is the end of a start that was not recorded. Trackers receive every start and end (mem.ActionAnnotate),
// without the name. Annotations do not change other entries; see SetMetadata.
func (r *Recorder) Annotate(name, metadata string) (end func()) {
	noted := r.note(Annotation{Name: name, Metadata: metadata, Stage: StageStart}, true)
	var ended atomic.Bool
	return func() {
		if !ended.Swap(true) {
			r.note(Annotation{Name: name, Metadata: metadata, Stage: StageEnd}, noted)
		}
	}
}

// note reports an annotation to trackers. It keeps the annotation, and returns true, if wanted is set and the recorder
// is not stopped.
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
		says := r.labels.Values[r.labels.current()]
		says.metadata = a.Stage + " " + a.Name
		r.enter(&e, stack, r.labels.Of(says))
	}
	return true
}

// Annotations returns the recorded annotations, oldest first.
func (r *Recorder) Annotations() []Annotation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.annotations()
}

func (r *Recorder) annotations() []Annotation {
	return append(slices.Clone(r.notes[r.nextNote:]), r.notes[:r.nextNote]...)
}
