package snapshot

import (
	"bytes"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/trace"
)

// chunkEntries is the number of entries that a goroutine writes at a time.
const chunkEntries = 1024

// WriteJSONLines writes the trace entries of s as JSON, one on each line: the dicts of WriteJSON with the device as an
// additional key. Several goroutines write entries; the order is that of the traces. Progress, if not nil, is called
// with the number of events that are written, from time to time.
//
// Memory use is independent of the number of events, beside s, which may be of ReadCompact. The errors are those of
// WriteJSON.
func (s *Snapshot) WriteJSONLines(w io.Writer, progress func(events int)) error {
	done := 0
	for device, t := range s.Traces {
		if t == nil {
			continue
		}
		lines := newLineWriter(s, device, t)
		for i := 0; i < lines.chunks; i++ {
			text, err := lines.next(i)
			if err == nil {
				_, err = w.Write(text)
			}
			lines.give(text)
			if err != nil {
				lines.stop(i + 1)
				return err
			}
			if done += chunkEntries; progress != nil {
				progress(done)
			}
		}
	}
	return nil
}

// A lineWriter writes the entries of one trace in chunks. Worker k of n writes the chunks k, k+n, k+2n and so on, so
// that each worker sees the entries in order.
type lineWriter struct {
	chunks int
	ready  []chan lineChunk
	ended  atomic.Bool // nothing more is to be written
	room   chan []byte // buffers of chunks that were written
}

type lineChunk struct {
	text []byte
	err  error
}

func newLineWriter(s *Snapshot, device int, t *trace.Trace) *lineWriter {
	l := &lineWriter{chunks: (t.Len() + chunkEntries - 1) / chunkEntries}
	if l.chunks == 0 && len(s.traceExtra(device).Unknown) > 0 {
		l.chunks = 1
	}
	l.ready = make([]chan lineChunk, min(l.chunks, runtime.GOMAXPROCS(0)))
	l.room = make(chan []byte, 2*len(l.ready)+1)
	for k := range l.ready {
		l.ready[k] = make(chan lineChunk, 1)
		go l.work(k, s, device, t)
	}
	return l
}

// next returns the text of a chunk, in order.
func (l *lineWriter) next(i int) ([]byte, error) {
	c := <-l.ready[i%len(l.ready)]
	return c.text, c.err
}

// give returns a buffer that was written.
func (l *lineWriter) give(text []byte) {
	select {
	case l.room <- text:
	default:
	}
}

// stop receives the chunks from one on, so that the workers end.
func (l *lineWriter) stop(from int) {
	l.ended.Store(true)
	for i := from; i < l.chunks; i++ {
		_, _ = l.next(i)
	}
}

// work writes the chunks of worker k.
func (l *lineWriter) work(k int, s *Snapshot, device int, t *trace.Trace) {
	var b bytes.Buffer
	j := newJSONSink(&b, s)
	e := s.entries(j, device, t)
	e.device = true
	for i := k; i < l.chunks; i += len(l.ready) {
		if j.out.err == nil && !l.ended.Load() {
			select {
			case room := <-l.room:
				b = *bytes.NewBuffer(room[:0])
			default:
				b = bytes.Buffer{}
			}
			e.lines(j, i*chunkEntries, min((i+1)*chunkEntries, t.Len()))
		}
		l.ready[k] <- lineChunk{b.Bytes(), j.out.err}
	}
}

// lines writes the events from one up to another, with the unknown entries before each and, after the last event, all.
func (x *entryWriter) lines(j *jsonSink, from, to int) {
	for len(x.extra.Unknown) > 0 && x.extra.Unknown[0].Before < from {
		x.extra.Unknown = x.extra.Unknown[1:]
	}
	for x.next = from; j.out.err == nil && (x.next < to || to == x.t.Len() && len(x.extra.Unknown) > 0); {
		j.shared += sharedPerItem
		x.write()
		j.raw("\n")
		j.next = false
	}
	_ = j.out.close()
}
