package snapshot

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/pickle"
)

// maxRepeats is how many values may be written out again because what they are in stands in several places, beyond
// repeatsPerKey for each unknown key that is written. Without a limit, lists that hold the same list twice, and so on,
// would be endless.
const (
	maxRepeats    = 1 << 20
	repeatsPerKey = 64
)

// A plainJSON knows what was written of values as pickle.Document.Plain gives them. Sinks of one file share it.
type plainJSON struct {
	met     map[place]any // containers that were written; kept, so that no others can come to lie where they are
	repeats int           // values that may still be written again
}

// A place is where a container lies, and its length.
type place struct {
	at  uintptr
	len int
}

// again reports whether a container with items was met before.
func (p *plainJSON) again(v any, n int) bool {
	if n == 0 {
		return false
	}
	at := place{reflect.ValueOf(v).Pointer(), n}
	_, ok := p.met[at]
	p.met[at] = v
	return ok
}

// extra writes the keys of a dict. Those that are no text in JSON, tuples and bytes, are left out.
func (j *jsonSink) extra(x *Extra) {
	j.values.repeats += len(x.pairs()) * repeatsPerKey
	for _, pair := range x.pairs() {
		if name, ok := jsonKey(pair.Key); ok {
			j.key(name)
			j.plain(pair.Value)
		}
	}
}

// jsonKey is a key of a dict as Python's json makes it a text.
func jsonKey(key any) (name string, ok bool) {
	switch key := key.(type) {
	case string:
		return key, true
	case nil:
		return "null", true
	case bool, int64, uint64:
		return fmt.Sprint(key), true
	case float64:
		return jsonFloat(key), true
	}
	return "", false
}

// jsonFloat is a float as text; one that is a whole number stays a float.
func jsonFloat(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !math.IsNaN(x) && !math.IsInf(x, 0) && !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// plain writes a value as pickle.Document.Plain gives it.
func (j *jsonSink) plain(v any) { j.value(v, false) }

// value writes a value, which may be in a container that was written before.
func (j *jsonSink) value(v any, again bool) {
	if again {
		j.values.repeats--
	}
	if j.values.repeats < 0 && j.out.err == nil {
		j.out.err = &Error{Reason: fmt.Sprintf("more than %d values, written out again where they are shared", maxRepeats)}
	}
	if j.out.err != nil {
		return
	}
	switch v := v.(type) {
	case nil, pickle.Handle:
		j.raw("null")
	case bool:
		j.boolean(v)
	case int:
		j.integer(int64(v))
	case int64:
		j.integer(v)
	case uint64:
		j.bits(v)
	case float64:
		if text := jsonFloat(v); math.IsNaN(v) || math.IsInf(v, 0) {
			j.quote(text)
		} else {
			j.raw(text)
		}
	case string:
		j.quote(v)
	case []byte:
		j.quote(base64.StdEncoding.EncodeToString(v))
	case []any:
		j.array(v, again || j.values.again(v, len(v)))
	case pickle.TupleValue:
		j.array(v, again || j.values.again(v, len(v)))
	case map[string]any:
		again = again || j.values.again(v, len(v))
		j.beginDict()
		for _, key := range slices.Sorted(maps.Keys(v)) {
			j.key(key)
			j.value(v[key], again)
		}
		j.endDict()
	case []pickle.Pair: // keys that are no strings: a list of pairs
		again = again || j.values.again(v, len(v))
		pairs := make([]any, len(v))
		for i, pair := range v {
			pairs[i] = pickle.TupleValue{pair.Key, pair.Value}
		}
		j.array(pairs, again)
	default:
		panic(fmt.Sprintf("snapshot: a value of type %T", v))
	}
}

func (j *jsonSink) array(items []any, again bool) {
	j.raw("[")
	for i, item := range items {
		if i > 0 {
			j.raw(",")
		}
		if j.value(item, again); j.out.err != nil {
			return
		}
	}
	j.raw("]")
}

// line returns the JSON of a frame.
func (j *jsonSink) line(n uint32) string {
	if j.lines[n] == "" {
		var b bytes.Buffer
		f, w := &j.stacks.Frames[n], &jsonSink{out: textOutput{w: &b}, values: j.values}
		w.beginDict()
		w.key("name")
		w.quote(f.Name)
		w.key("filename")
		w.quote(f.Filename)
		w.key("line")
		w.integer(f.Line)
		w.extra(j.keys[n])
		w.endDict()
		if err := w.out.close(); err != nil && j.out.err == nil {
			j.out.err = err
		}
		j.lines[n] = b.String()
	}
	return j.lines[n]
}
