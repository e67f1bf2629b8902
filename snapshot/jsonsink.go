package snapshot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// A textOutput collects text for a writer. The first error stays, and nothing is written after it.
type textOutput struct {
	w   io.Writer
	buf []byte
	err error
}

const textSize = 64 << 10

func (o *textOutput) text(s string) {
	o.buf = append(o.buf, s...)
	o.room()
}

// room writes what there is if it is much.
func (o *textOutput) room() {
	if len(o.buf) >= textSize {
		o.flush()
	}
}

func (o *textOutput) flush() {
	if o.err == nil {
		var n int
		if n, o.err = o.w.Write(o.buf); o.err == nil && n < len(o.buf) {
			o.err = io.ErrShortWrite
		}
	}
	o.buf = o.buf[:0]
}

func (o *textOutput) close() error {
	o.flush()
	return o.err
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			out := bytes.NewBuffer(b)
			e := json.NewEncoder(out)
			e.SetEscapeHTML(false)
			_ = e.Encode(s) // a string does not fail
			return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// A jsonSink writes JSON.
type jsonSink struct {
	out    textOutput
	stacks *trace.Stacks
	lines  []string // the JSON of each frame, by its index; "" if it was not needed yet
	next   bool     // a comma has to come before the next key or item
	plains int      // values in the settings so far
}

func newJSONSink(w io.Writer, stacks *trace.Stacks) *jsonSink {
	j := &jsonSink{out: textOutput{w: w}, stacks: stacks}
	if stacks != nil {
		j.lines = make([]string, len(stacks.Frames))
	}
	return j
}

func (j *jsonSink) beginDict() { j.raw("{"); j.next = false }
func (j *jsonSink) endDict()   { j.raw("}"); j.next = true }

func (j *jsonSink) raw(s string) { j.out.text(s) }

func (j *jsonSink) list(n int, item func(i int)) {
	j.raw("[")
	for i := range n {
		if i > 0 {
			j.raw(",")
		}
		j.raw("\n")
		item(i)
	}
	j.raw("]")
}

func (j *jsonSink) key(name string) {
	if j.next {
		j.raw(",")
	}
	j.text(name)
	j.raw(":")
	j.next = true
}

func (j *jsonSink) text(s string) {
	j.out.buf = appendString(j.out.buf, s)
	j.out.room()
}

func (j *jsonSink) integer(x int64) { j.out.buf = strconv.AppendInt(j.out.buf, x, 10) }
func (j *jsonSink) bits(x uint64)   { j.out.buf = strconv.AppendUint(j.out.buf, x, 10) }
func (j *jsonSink) boolean(b bool)  { j.out.buf = strconv.AppendBool(j.out.buf, b) }

func (j *jsonSink) pool(id mem.PoolID) {
	j.raw("[")
	j.bits(id[0])
	j.raw(",")
	j.bits(id[1])
	j.raw("]")
}

func (j *jsonSink) frames(id trace.StackID) {
	j.raw("[")
	for i, n := range j.stacks.At(id) {
		if i > 0 {
			j.raw(",")
		}
		if j.lines[n] == "" {
			f := &j.stacks.Frames[n]
			b := appendString([]byte(`{"name":`), f.Name)
			b = appendString(append(b, `,"filename":`...), f.Filename)
			b = strconv.AppendInt(append(b, `,"line":`...), f.Line, 10)
			j.lines[n] = string(append(b, '}'))
		}
		j.raw(j.lines[n])
	}
	j.raw("]")
}

// maxPlain is how many values the settings may have, written out. PyTorch's have about 30.
const maxPlain = 1 << 20

// plain writes a value as pickle.Document.Plain gives it. Without a limit, lists that hold the same list twice, and so
// on, would be endless.
func (j *jsonSink) plain(v any) {
	if j.plains++; j.plains > maxPlain {
		if j.out.err == nil {
			j.out.err = &Error{Place: "allocator_settings", Reason: fmt.Sprintf("more than %d values, written out", maxPlain)}
		}
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
		if math.IsNaN(v) || math.IsInf(v, 0) {
			j.text(strconv.FormatFloat(v, 'g', -1, 64))
		} else {
			text := strconv.FormatFloat(v, 'g', -1, 64)
			if !strings.ContainsAny(text, ".e") {
				text += ".0" // stays a float
			}
			j.raw(text)
		}
	case string:
		j.text(v)
	case []byte:
		j.text(base64.StdEncoding.EncodeToString(v))
	case []any:
		j.raw("[")
		for i, item := range v {
			if i > 0 {
				j.raw(",")
			}
			j.plain(item)
			if j.out.err != nil {
				return
			}
		}
		j.raw("]")
	case map[string]any:
		j.beginDict()
		for _, key := range slices.Sorted(maps.Keys(v)) {
			j.key(key)
			j.plain(v[key])
			if j.out.err != nil {
				return
			}
		}
		j.endDict()
	case []pickle.Pair: // keys that are no strings: a list of pairs
		j.raw("[")
		for i, pair := range v {
			if i > 0 {
				j.raw(",")
			}
			j.plain([]any{pair.Key, pair.Value})
			if j.out.err != nil {
				return
			}
		}
		j.raw("]")
	default:
		panic(fmt.Sprintf("snapshot: a setting of type %T", v))
	}
}
