package pickle

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Value writes a value as Plain gives it: nil, bool, int64 (or int), uint64, float64, string, []byte, []any, and
// map[string]any, whose keys come in ascending order, or []Pair. A container or string that stands in several places is written
// once and shared, so that what is small in memory, and large when walked, stays small. A tuple came out of Plain as
// []any and is written as a list, except as a key or in one; a Handle says too little and is written as None. Value
// panics on other types, and does not return if v contains itself.
func (p *Writer) Value(v any) {
	w := plainWriter{p: p, seen: map[container]Memo{}, tuples: map[container]Memo{}}
	w.value(v)
}

// A container is known by where it is and how long.
type container struct {
	at  uintptr
	len int
}

type plainWriter struct {
	p      *Writer
	seen   map[container]Memo // lists and dicts
	tuples map[container]Memo
}

func (w *plainWriter) value(v any) {
	p := w.p
	switch v := v.(type) {
	case nil, Handle:
		p.None()
	case bool:
		p.Bool(v)
	case int:
		p.Int(int64(v))
	case int64:
		p.Int(v)
	case uint64:
		p.Uint(v)
	case float64:
		p.Float(v)
	case string:
		p.Name(v)
	case []byte:
		w.begin(v, len(v), func() { p.Bytes(v) })
	case []any:
		if w.begin(v, len(v), p.BeginList) {
			p.items(len(v), func(i int) { w.value(v[i]) })
		}
	case map[string]any:
		if w.begin(v, len(v), p.BeginDict) {
			keys := slices.Sorted(maps.Keys(v))
			w.pairs(len(keys), func(i int) { p.Name(keys[i]); w.value(v[keys[i]]) })
		}
	case []Pair:
		if w.begin(v, len(v), p.BeginDict) {
			w.pairs(len(v), func(i int) { w.key(v[i].Key); w.value(v[i].Value) })
		}
	default:
		panic(fmt.Sprintf("pickle: Value of a %T", v))
	}
}

// begin begins a container, or fetches it if it was written before.
func (w *plainWriter) begin(v any, n int, empty func()) bool {
	if n == 0 {
		empty()
		return false
	}
	at := container{reflect.ValueOf(v).Pointer(), n}
	if m, ok := w.seen[at]; ok {
		w.p.Get(m)
		return false
	}
	empty()
	w.seen[at] = w.p.Put()
	return true
}

// pairs fills the dict that was begun last.
func (w *plainWriter) pairs(n int, pair func(i int)) {
	for i := range n {
		if i%Batch == 0 {
			if i > 0 {
				w.p.EndDict()
			}
			w.p.Fill()
		}
		pair(i)
	}
	w.p.EndDict()
}

// key writes a key of a dict: what cannot change.
func (w *plainWriter) key(v any) {
	items, ok := v.([]any)
	if !ok {
		w.value(v)
		return
	}
	at := container{reflect.ValueOf(v).Pointer(), len(items)}
	if m, ok := w.tuples[at]; ok && len(items) > 0 {
		w.p.Get(m)
		return
	}
	w.p.Tuple(len(items), func(i int) { w.key(items[i]) })
	w.tuples[at] = w.p.Put()
}
