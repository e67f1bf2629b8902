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

// JSON cannot share values, so a value in a shared container is written out again. maxRepeats limits the number of
// repeated values, beyond repeatsPerKey for each unknown key that is written. Without a limit, nested lists that each
// hold the next list twice would make an exponentially large file.
const (
	maxRepeats    = 1 << 20
	repeatsPerKey = 64
)

// A plainJSON records which values from pickle.Document.Plain have been written. The sinks of one file share it.
type plainJSON struct {
	met     map[place]any // containers that were written; kept alive, so that their addresses are not reused
	repeats int           // values that may still be written again
}

// A place is the address and the length of a container.
type place struct {
	at  uintptr
	len int
}

// again reports whether a nonempty container was written before.
func (p *plainJSON) again(v any, n int) bool {
	if n == 0 {
		return false
	}
	at := place{reflect.ValueOf(v).Pointer(), n}
	_, ok := p.met[at]
	p.met[at] = v
	return ok
}

// extra writes the keys of a dict. It omits keys that JSON cannot represent: tuples and bytes.
func (j *jsonSink) extra(x *Extra) {
	j.values.repeats += len(x.pairs()) * repeatsPerKey
	for _, pair := range x.pairs() {
		if name, ok := jsonKey(pair.Key); ok {
			j.key(name)
			j.plain(pair.Value)
		}
	}
}

// jsonKey converts a key of a dict to a string as Python's json does.
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

// jsonFloat formats a float. A whole number keeps its decimal point.
func jsonFloat(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !math.IsNaN(x) && !math.IsInf(x, 0) && !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// plain writes a value as returned by pickle.Document.Plain.
func (j *jsonSink) plain(v any) { j.value(v, false) }

// value writes a value; again says that it is in a container that was written before.
func (j *jsonSink) value(v any, again bool) {
	if again {
		j.values.repeats--
	}
	if j.values.repeats < 0 && j.out.err == nil {
		j.out.err = &Error{Reason: fmt.Sprintf("more than %d values, written out again where they are shared",
			maxRepeats)}
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
	case []pickle.Pair: // keys that are not strings: a list of pairs
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
		w.bits(uint64(f.Line))
		w.extra(j.keys[n])
		w.endDict()
		if err := w.out.close(); err != nil && j.out.err == nil {
			j.out.err = err
		}
		j.lines[n] = b.String()
	}
	return j.lines[n]
}
