package snapshot

import (
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/trace"
)

// ErrNotScanned is matched by the error of Scan for a file whose events it cannot pass on: those of several devices,
// of a recording with gaps, or in forms that only the whole file explains. ReadCompact reads such files.
var ErrNotScanned = errors.New("snapshot: the events must be kept to be understood")

// A Scanned is a snapshot that was read without keeping its events.
type Scanned struct {
	*Snapshot // whose traces have no events

	Device  int           // that has the events
	Events  int           // their number
	Numbers trace.Numbers // replace the numbers of the events by those of Traces[Device]
	sum     uint32        // of the file
}

// Scan reads a snapshot as ReadCompact does, but passes the events to a function instead of keeping them: memory use
// depends on the distinct stacks, texts and streams of the file, and not on its length. Watch is called with all events
// in order, some at a time, in another goroutine. They are valid during the call only, and have provisional numbers,
// which the Numbers of the result replace. A second Scan of the same file passes on the same numbers. All calls have
// returned when Scan returns. The error may be ErrNotScanned, also after all events.
func Scan(r io.Reader, limits Limits, watch func(events []trace.Event)) (*Scanned, error) {
	scan, sum := &scanning{to: watch}, crc32.New(crc32.MakeTable(crc32.Castagnoli))
	s, err := read(io.TeeReader(r, sum), limits, readOptions{scan: scan})
	if err != nil {
		return nil, err
	}
	return &Scanned{
		Snapshot: s, Device: scan.device, Events: scan.events, Numbers: scan.numbers, sum: sum.Sum32(),
	}, nil
}

// Again reads the same file a second time, and passes the events on with the numbers that s has for them. The events
// are valid during the call only. When each returns false, Again stops reading and returns nil. It is an error if the
// file is not the same, which may be found after all events.
func (s *Scanned) Again(r io.Reader, limits Limits, each func(events []trace.Event) bool) error {
	from, changed := &endingReader{r: r}, false
	again, err := Scan(from, limits, func(events []trace.Event) {
		if from.ended.Load() {
			return
		}
		for i := range events {
			if changed = !s.Numbers.Have(&events[i]); changed {
				from.ended.Store(true)
				return
			}
			s.Numbers.Replace(&events[i])
		}
		from.ended.Store(!each(events))
	})
	switch {
	case changed:
		return errChanged
	case from.ended.Load():
		return nil
	case err != nil:
		return err
	case again.sum != s.sum:
		return errChanged
	}
	return nil
}

var errChanged = errors.New("snapshot: the file changed while it was read")

// An endingReader reads until it has ended.
type endingReader struct {
	r     io.Reader
	ended atomic.Bool
}

func (e *endingReader) Read(b []byte) (int, error) {
	if e.ended.Load() {
		return 0, errEnded
	}
	return e.r.Read(b)
}

var errEnded = errors.New("snapshot: the other events are not wanted")

// WriteJSONLines writes what Snapshot.WriteJSONLines writes, with the events of the same file, which it reads again.
func (s *Scanned) WriteJSONLines(w io.Writer, again io.Reader, limits Limits) error {
	if s.Events == 0 {
		return nil
	}
	lines := newLineWriter(s.Snapshot, s.Device, s.Traces[s.Device], s.Events)
	read := make(chan error, 1)
	go func() {
		at := 0
		err := s.Again(again, limits, func(events []trace.Event) bool {
			for part := range slices.Chunk(events, chunkEntries) {
				var own []trace.Event
				select {
				case own = <-lines.spare:
				default:
				}
				own = append(own[:0], part...)
				if !lines.feed(linePart{at, at + len(own), own}) {
					return false
				}
				at += len(own)
			}
			return true
		})
		lines.end()
		read <- err
	}()
	err := lines.write(w, func(int) {})
	return cmp.Or(<-read, err)
}

// ProgramOptions returns the options that Program sets for a device.
func (s *Scanned) ProgramOptions(device int) trace.ProgramOptions {
	_, o := s.programOf(device, trace.ProgramOptions{})
	return o
}

// A numbered calls a function for the numbers of events, as trace.Columns does.
type numbered interface {
	EachNumber(field trace.Field, f func(i int, number uint32))
}

// A scanning passes events on and keeps the numbers in them.
type scanning struct {
	to   func(events []trace.Event)
	n    int // events
	seen [4]seenNumbers

	device, events int
	numbers        trace.Numbers
}

// A seenNumbers has the distinct numbers of a field, in the order in which they appear, with their first events.
type seenNumbers struct {
	last    uint32
	seen    []bool
	numbers []uint32
	first   []int
}

// add adds the number of an event.
func (s *seenNumbers) add(number uint32, event int) {
	if number == s.last && event > 0 {
		return
	}
	s.last = number
	if int(number) >= len(s.seen) {
		s.seen = extend(s.seen, int(number))
	}
	if !s.seen[number] {
		s.seen[number] = true
		s.numbers, s.first = append(s.numbers, number), append(s.first, event)
	}
}

// The fields of scanning.seen.
var seenFields = [...]trace.Field{trace.FieldStack, trace.FieldStream, trace.FieldMetadata, trace.FieldPool}

// watch takes the next events.
func (s *scanning) watch(events []trace.Event) {
	for i := range events {
		e := &events[i]
		s.seen[0].add(uint32(e.Stack), s.n)
		s.seen[1].add(e.Stream, s.n)
		s.seen[2].add(e.Metadata, s.n)
		s.seen[3].add(uint32(e.Pool), s.n)
		s.n++
	}
	s.to(events)
}

// EachNumber calls f for the distinct numbers of a field, with their first events.
func (s *scanning) EachNumber(field trace.Field, f func(i int, number uint32)) {
	for k := range seenFields {
		if seenFields[k] == field {
			for i, number := range s.seen[k].numbers {
				f(s.seen[k].first[i], number)
			}
		}
	}
}
