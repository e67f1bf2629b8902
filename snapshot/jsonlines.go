package snapshot

import (
	"bytes"
	"io"
	"runtime"
	"sync"

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
		total := t.Len() // known before: no goroutine reads t when lines.write has returned an error
		lines := newLineWriter(s, device, t, total)
		go func() {
			defer lines.end()
			for i := 0; i < total || i == 0; i += chunkEntries {
				if !lines.feed(linePart{first: i, to: min(i+chunkEntries, total)}) {
					return
				}
			}
		}()
		err := lines.write(w, func(events int) {
			if done += events; progress != nil {
				progress(done)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A lineWriter writes the entries of one trace in parts. Worker k of n writes the parts k, k+n, k+2n and so on, so that
// each worker sees the entries in order.
type lineWriter struct {
	parts   []chan linePart
	fed     int // parts
	ready   []chan lineChunk
	room    chan []byte        // buffers of parts that were written
	spare   chan []trace.Event // of linePart.events
	ended   chan struct{}      // closed when nothing more is to be written
	workers sync.WaitGroup
}

// A linePart is the entries of some successive events.
type linePart struct {
	first, to int
	events    []trace.Event // nil if the trace has them
}

// At returns an event of the part.
func (p *linePart) At(i int) *trace.Event { return &p.events[i-p.first] }

type lineChunk struct {
	text   []byte
	err    error
	events int
}

// newLineWriter returns the writer of the entries of a device, which has a number of events.
func newLineWriter(s *Snapshot, device int, t *trace.Trace, events int) *lineWriter {
	n := runtime.GOMAXPROCS(0)
	l := &lineWriter{
		room: make(chan []byte, 2*n+1), spare: make(chan []trace.Event, 2*n+1), ended: make(chan struct{}),
	}
	for range n {
		parts, ready := make(chan linePart, 1), make(chan lineChunk, 1)
		l.parts, l.ready = append(l.parts, parts), append(l.ready, ready)
		l.workers.Go(func() { l.work(s, device, t, events, parts, ready) })
	}
	return l
}

// feed lets a worker write the next part. It returns false if nothing more is to be written.
func (l *lineWriter) feed(p linePart) bool {
	select {
	case l.parts[l.fed%len(l.parts)] <- p:
		l.fed++
		return true
	case <-l.ended:
		return false
	}
}

// end is called after the last part.
func (l *lineWriter) end() {
	for _, parts := range l.parts {
		close(parts)
	}
}

// write writes the text of all parts, in order. It calls written with the number of events of each. It returns when all
// workers have ended, which may take until end is called.
func (l *lineWriter) write(w io.Writer, written func(events int)) error {
	defer l.workers.Wait()
	defer close(l.ended)
	for i := 0; ; i++ {
		c, more := <-l.ready[i%len(l.ready)]
		if !more {
			return nil
		}
		if c.err == nil {
			_, c.err = w.Write(c.text)
		}
		if c.err != nil {
			return c.err
		}
		select {
		case l.room <- c.text:
		default:
		}
		written(c.events)
	}
}

// work writes parts until there are no more.
func (l *lineWriter) work(
	s *Snapshot, device int, t *trace.Trace, events int, parts <-chan linePart, ready chan<- lineChunk,
) {
	defer close(ready)
	var b bytes.Buffer
	j := newJSONSink(&b, s)
	e := s.entries(j, device, t, events)
	e.device = true
	for p := range parts {
		select {
		case room := <-l.room:
			b = *bytes.NewBuffer(room[:0])
		default:
			b = bytes.Buffer{}
		}
		if p.events != nil {
			e.events = &p
		}
		e.lines(j, p.first, p.to)
		select {
		case ready <- lineChunk{b.Bytes(), j.out.err, p.to - p.first}:
		case <-l.ended:
			return
		}
		select {
		case l.spare <- p.events:
		default:
		}
		if j.out.err != nil {
			return
		}
	}
}

// lines writes the events from one up to another, with the unknown entries before each and, after the last event, all.
func (x *entryWriter) lines(j *jsonSink, from, to int) {
	for len(x.extra.Unknown) > 0 && x.extra.Unknown[0].Before < from {
		x.extra.Unknown = x.extra.Unknown[1:]
	}
	for x.next = from; j.out.err == nil && (x.next < to || to == x.total && len(x.extra.Unknown) > 0); {
		j.shared += sharedPerItem
		x.write()
		j.raw("\n")
		j.next = false
	}
	_ = j.out.close()
}
