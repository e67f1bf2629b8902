package pickle

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Value writes a value in the form of Plain: nil, bool, int64 (or int), uint64, float64, string, []byte, []any,
// TupleValue, and map[string]any, in ascending order of keys, or []Pair. A container or string that occurs in several
// places, even in different calls, is written once and shared, so containers must not change until Close. A []any is
// written as a tuple where it is a key or part of one. A Handle is written as None. Value panics for other types, and
// does not return if v contains itself.
func (p *Writer) Value(v any) {
	if p.plain.p == nil {
		p.plain = plainWriter{p: p, seen: map[container]memoized{}, tuples: map[container]memoized{}}
	}
	p.plain.value(v)
}

// A container is identified by its address and length.
type container struct {
	at  uintptr
	len int
}

// A memoized is a container in the memo. It is kept alive, so that its address is not reused.
type memoized struct {
	memo  Memo
	value any
}

type plainWriter struct {
	p      *Writer
	seen   map[container]memoized // lists and dicts
	tuples map[container]memoized
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
	case TupleValue:
		w.tuple(v, w.value)
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
	if x, ok := w.seen[at]; ok {
		w.p.Get(x.memo)
		return false
	}
	empty()
	w.seen[at] = memoized{w.p.Put(), v}
	return true
}

// pairs fills the last begun dict.
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

// key writes a key of a dict, which must be immutable.
func (w *plainWriter) key(v any) {
	switch v := v.(type) {
	case []any:
		w.tuple(v, w.key)
	case TupleValue:
		w.tuple(v, w.key)
	default:
		w.value(v)
	}
}

// tuple writes a tuple, or fetches it if it was written before.
func (w *plainWriter) tuple(items []any, item func(v any)) {
	if len(items) == 0 {
		w.p.Tuple(0, nil)
		return
	}
	at := container{reflect.ValueOf(items).Pointer(), len(items)}
	if x, ok := w.tuples[at]; ok {
		w.p.Get(x.memo)
		return
	}
	w.p.Tuple(len(items), func(i int) { item(items[i]) })
	w.tuples[at] = memoized{w.p.Put(), items}
}
