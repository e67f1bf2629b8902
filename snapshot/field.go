package snapshot

import (
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
)

// A field is a key of a trace entry or a frame. Keys are compared by number: each string of the file is looked up once.
type field uint8

const (
	fieldUnresolved field = iota // the string has not been looked up yet
	fieldUnknown
	fieldAction
	fieldAddr
	fieldDeviceFree
	fieldSize
	fieldStream
	fieldTime
	fieldCompileContext
	fieldMetadata
	fieldFrames
	fieldPool
	fieldName
	fieldFilename
	fieldLine
	numFields
)

// knownInEntries and knownInFrames are bit sets of the fields that entries and frames have.
const (
	knownInEntries = 1<<fieldAction | 1<<fieldAddr | 1<<fieldDeviceFree | 1<<fieldSize | 1<<fieldStream | 1<<fieldTime |
		1<<fieldCompileContext | 1<<fieldMetadata | 1<<fieldFrames | 1<<fieldPool
	knownInFrames = 1<<fieldName | 1<<fieldFilename | 1<<fieldLine
	allFields     = 1<<numFields - 1
)

var fieldNames = map[string]field{
	"action": fieldAction, "addr": fieldAddr, "device_free": fieldDeviceFree, "size": fieldSize, "stream": fieldStream,
	"time_us": fieldTime, "compile_context": fieldCompileContext, "user_metadata": fieldMetadata, "frames": fieldFrames,
	"pool_id": fieldPool, "segment_pool_id": fieldPool, "name": fieldName, "filename": fieldFilename, "line": fieldLine,
}

// meanings caches the field and the action that a string names, by the number of the string.
type meanings struct {
	fields  []field
	actions []mem.Action // plus 1; NumActions+1 for none
}

// field returns the field that a key names.
func (t *meanings) field(doc *pickle.Document, key pickle.Value) field {
	id, ok := key.StrID()
	if !ok {
		return fieldUnknown
	}
	if int(id) >= len(t.fields) {
		t.fields = extend(t.fields, int(id))
	}
	f := t.fields[id]
	if f == fieldUnresolved {
		s, _ := doc.Str(key)
		if f, ok = fieldNames[s]; !ok {
			f = fieldUnknown
		}
		t.fields[id] = f
	}
	return f
}

// action returns the action that a str names.
func (t *meanings) action(doc *pickle.Document, name pickle.Value) (mem.Action, bool) {
	id, _ := name.StrID()
	if int(id) >= len(t.actions) {
		t.actions = extend(t.actions, int(id))
	}
	a := t.actions[id]
	if a == 0 {
		s, _ := doc.Str(name)
		known, ok := mem.ParseAction(s)
		if !ok {
			known = mem.NumActions
		}
		a = known + 1
		t.actions[id] = a
	}
	return a - 1, a <= mem.NumActions
}

// extend returns s, lengthened with zeros until it has an element i.
func extend[T any](s []T, i int) []T {
	return append(s, make([]T, i+1-len(s)+len(s)/2)...)
}
