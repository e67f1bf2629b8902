package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// A textOutput buffers text for a writer. It keeps the first error and writes nothing after it.
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

// room writes the buffer when it is large.
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
			_ = e.Encode(s) // encoding a string cannot fail
			return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// A jsonSink writes JSON.
type jsonSink struct {
	out    textOutput
	stacks *trace.Stacks
	lines  []string // the JSON of each frame, by its index; "" until it is needed
	keys   map[uint32]*Extra
	next   bool // the next key or item needs a comma before it
	values *plainJSON

	long   map[string]struct{} // strings of more than longText bytes that were written
	shared int64               // bytes of frames and long strings that may still be written again
}

// maxShared is the maximum number of bytes of shared frames and long strings that are written again, beyond
// sharedPerItem for each item of a list. Without a limit, a file of a few megabytes could become hundreds of gigabytes.
const (
	maxShared     = 64 << 20
	sharedPerItem = 32 << 10
	longText      = 1 << 10
)

// again counts n bytes that are written again. It reports false when the limit is exceeded.
func (j *jsonSink) again(n int) bool {
	if j.shared -= int64(n); j.shared < 0 && j.out.err == nil {
		j.out.err = &Error{Reason: fmt.Sprintf("as JSON, frames and strings that the file shares would be written "+
			"out again and again: more than %d MiB, and %d KiB for each entry, segment and block; a pickle shares them",
			maxShared>>20, sharedPerItem>>10)}
	}
	return j.out.err == nil
}

func newJSONSink(w io.Writer, s *Snapshot) *jsonSink {
	values := &plainJSON{met: map[place]any{}, repeats: maxRepeats}
	j := &jsonSink{
		out: textOutput{w: w}, stacks: s.Stacks, keys: s.FrameExtra, values: values, long: map[string]struct{}{},
		shared: maxShared,
	}
	if s.Stacks != nil {
		j.lines = make([]string, len(s.Stacks.Frames))
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
		j.shared += sharedPerItem
		if item(i); j.out.err != nil {
			return
		}
	}
	j.raw("]")
}

func (j *jsonSink) key(name string) {
	if j.next {
		j.raw(",")
	}
	j.quote(name)
	j.raw(":")
	j.next = true
}

func (j *jsonSink) text(s string) {
	if len(s) > longText {
		if _, written := j.long[s]; written && !j.again(len(s)) {
			return
		}
		j.long[s] = struct{}{}
	}
	j.quote(s)
}

func (j *jsonSink) quote(s string) {
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
		written := j.lines[n] != ""
		line := j.line(n)
		if written && !j.again(len(line)) {
			return
		}
		j.raw(line)
	}
	j.raw("]")
}
