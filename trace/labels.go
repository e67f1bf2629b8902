package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/internal/numbering"
)

// NoCompileContext is the compile context of entries outside of compiled code, as PyTorch writes it.
const NoCompileContext = "N/A"

// A label holds the texts of an entry that the program sets.
type label struct{ metadata, context string }

// labels numbers the labels of a recorder's entries and holds the label for the next entry.
type labels struct {
	numbering.Numbering[label]
	metadata string // of goroutines without an ownLabel
	number   uint32 // number of the label of goroutines without an ownLabel
	own      map[uintptr]*ownLabel
}

// An ownLabel is the label that one goroutine set.
type ownLabel struct {
	metadata []string // of the open calls of WithMetadata, innermost last
	contexts []string // pushed and not popped yet
	number   uint32   // of the resulting label
}

// current returns the number of the label for an entry of the calling goroutine.
func (l *labels) current() uint32 {
	if len(l.own) > 0 {
		if o := l.own[goroutine.ID()]; o != nil {
			return o.number
		}
	}
	return l.number
}

// change calls f to change the ownLabel of the calling goroutine. An empty ownLabel is deleted.
func (l *labels) change(f func(o *ownLabel)) {
	id := goroutine.ID()
	o := l.own[id]
	if o == nil {
		o = &ownLabel{}
	}
	f(o)
	if len(o.metadata)+len(o.contexts) == 0 {
		delete(l.own, id)
		return
	}
	if l.own == nil {
		l.own = map[uintptr]*ownLabel{}
	}
	l.own[id] = o
	o.number = l.Of(l.labelOf(o))
}

// labelOf returns the label of a goroutine's entries.
func (l *labels) labelOf(o *ownLabel) label {
	x := label{l.metadata, NoCompileContext}
	if n := len(o.metadata); n > 0 {
		x.metadata = o.metadata[n-1]
	}
	if n := len(o.contexts); n > 0 {
		x.context = o.contexts[n-1]
	}
	return x
}

// renumber assigns new numbers to the current labels.
func (l *labels) renumber() {
	l.number = l.Of(l.labelOf(&ownLabel{}))
	for _, o := range l.own {
		o.number = l.Of(l.labelOf(o))
	}
}

// reset deletes the labels of entries, but keeps the current ones.
func (l *labels) reset() {
	l.Numbering = numbering.Numbering[label]{}
	l.Of(label{"", NoCompileContext}) // Trace.Metadata[0] is ""
	l.renumber()
}

// split replaces the label numbers in a trace's events by metadata numbers, and fills in the tables of metadata and
// contexts.
func (l *labels) split(t *Trace) {
	var metadata numbering.Numbering[string]
	of := make([]uint32, len(l.Values))
	for i, x := range l.Values {
		of[i] = metadata.Of(x.metadata)
	}
	t.Metadata = slices.Clone(metadata.Values)
	for i := range t.Events {
		x := &t.Events[i].Metadata
		text := l.Values[*x].context
		if n := len(t.CompileContexts); n == 0 || t.CompileContexts[n-1].Text != text {
			t.CompileContexts = append(t.CompileContexts, CompileContext{First: i, Text: text})
		}
		*x = of[*x]
	}
}

// SetMetadata attaches a text to all later entries, until the next call: PyTorch's user_metadata. The empty text
// attaches nothing. It applies to all goroutines except those in WithMetadata. Each distinct text is kept until Reset.
func (r *Recorder) SetMetadata(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.labels.metadata = text
	r.labels.renumber()
}

// WithMetadata calls f and attaches a text to the entries that the calling goroutine causes in f, in place of that of
// SetMetadata and of outer calls: PyTorch's user_metadata belongs to a thread. Entries of other goroutines, including
// those that f starts, are not affected. While a goroutine is in WithMetadata or has a compile context, each entry
// costs an additional map lookup.
func (r *Recorder) WithMetadata(text string, f func()) {
	r.label(func(o *ownLabel) { o.metadata = append(o.metadata, text) })
	defer r.label(func(o *ownLabel) { o.metadata = o.metadata[:max(0, len(o.metadata)-1)] })
	f()
}

// Metadata returns the text that an entry of the calling goroutine would get now: PyTorch's getUserMetadata.
func (r *Recorder) Metadata() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.labels.Values[r.labels.current()].metadata
}

// PushCompileContext sets the compile context of the entries that the calling goroutine causes, until it calls
// PopCompileContext. PyTorch records there which compiled region requests memory. The default is NoCompileContext.
// Unlike in PyTorch, both calls count while the recorder is stopped too, so that they stay paired. A goroutine must pop
// its contexts before it ends; otherwise a later goroutine may inherit them.
func (r *Recorder) PushCompileContext(text string) {
	r.label(func(o *ownLabel) { o.contexts = append(o.contexts, text) })
}

// PopCompileContext ends the innermost PushCompileContext of the calling goroutine. It is a no-op if there is none.
func (r *Recorder) PopCompileContext() {
	r.label(func(o *ownLabel) { o.contexts = o.contexts[:max(0, len(o.contexts)-1)] })
}

// label changes the ownLabel of the calling goroutine.
func (r *Recorder) label(f func(o *ownLabel)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.labels.change(f)
}
