package snapshot

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
)

// A layout has the keys of the last trace entry that was folded. Most entries have the same ones, so that their fields
// need no search.
type layout struct {
	keys   []pickle.Value
	values [numFields]int // the index of the value of each field, or 0

	action struct { // the last one
		name   pickle.Value
		action mem.Action
	}
	stream struct {
		handle pickle.Value
		number uint32
	}
}

// of reports whether a dict has the keys of the layout.
func (l *layout) of(pairs []pickle.Value) bool {
	if len(pairs) != 2*len(l.keys) {
		return false
	}
	for i, key := range l.keys {
		if pairs[2*i] != key {
			return false
		}
	}
	return true
}

// learn takes the keys of an entry, if they are all known and occur once.
func (l *layout) learn(doc *pickle.Document, m *meanings, pairs []pickle.Value) {
	l.keys, l.values = l.keys[:0], [numFields]int{}
	for i := 0; i < len(pairs); i += 2 {
		f := m.field(doc, pairs[i])
		if knownInEntries&(1<<f) == 0 || f == fieldDeviceFree || l.values[f] > 0 {
			l.keys = l.keys[:0]
			return
		}
		l.values[f] = i + 1
		l.keys = append(l.keys, pairs[i])
	}
	for _, f := range [...]field{fieldAction, fieldAddr, fieldSize, fieldStream} {
		if l.values[f] == 0 {
			l.keys = l.keys[:0]
		}
	}
}

// foldAlike folds an entry with the keys of the layout. It returns false for one that entry must read.
func (im *importer) foldAlike(doc *pickle.Document, pairs []pickle.Value) (handle uint32, ok bool) {
	l, e := &im.layout, &im.folding.event
	if name := pairs[l.values[fieldAction]]; name != l.action.name {
		if name.Kind() != pickle.Str {
			return 0, false
		}
		action, known := im.meanings.action(doc, name)
		if !known {
			return 0, false
		}
		l.action.name, l.action.action = name, action
	}
	e.Action = l.action.action
	addr, hasAddr := doc.Bits(pairs[l.values[fieldAddr]])
	size, hasSize := doc.Int(pairs[l.values[fieldSize]])
	if !hasAddr || !hasSize || size < 0 || e.Action == mem.ActionOOM || e.Action.IsAnnotation() {
		return 0, false
	}
	e.Ptr, e.Size = driver.Pointer(addr), size
	if v := pairs[l.values[fieldStream]]; v != l.stream.handle {
		stream, isInt := doc.Bits(v)
		if !isInt {
			return 0, false
		}
		known := len(im.streams.Values)
		l.stream.handle, l.stream.number = v, im.streams.Of(stream)
		doc.Charge(int64(len(im.streams.Values)-known) * costStream)
	}
	e.Stream = l.stream.number
	e.TimeUS, e.Stack, e.Pool = 0, 0, 0
	if i := l.values[fieldTime]; i > 0 {
		if e.TimeUS, ok = doc.Int(pairs[i]); !ok {
			return 0, false
		}
	}
	context, ok := text(pairs, l.values[fieldCompileContext])
	if !ok {
		return 0, false
	}
	if e.Metadata, ok = text(pairs, l.values[fieldMetadata]); !ok {
		return 0, false
	}
	var bad *problem
	if i := l.values[fieldFrames]; i > 0 {
		if e.Stack, bad = framesOf(doc, pairs[i]); bad != nil {
			return 0, false
		}
	}
	if i := l.values[fieldPool]; i > 0 {
		if e.Pool, bad = im.poolNumber(doc, pairs[i]); bad != nil {
			return 0, false
		}
	}
	n := im.events.Len()
	if n == maxFolded {
		return 0, false
	}
	doc.Charge(im.costEvent + im.contexts.add(n, context) + im.extras.add(n, 0))
	im.events.Add(e)
	return uint32(n), true
}

// text returns the number of a str plus 1, or 0 if there is no value or None.
func text(pairs []pickle.Value, i int) (number uint32, ok bool) {
	if i == 0 {
		return 0, true
	}
	if id, isText := pairs[i].StrID(); isText {
		return id + 1, true
	}
	return 0, pairs[i].Kind() == pickle.None
}
