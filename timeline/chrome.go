package timeline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// An event is one of a Chrome trace: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
// ("Trace Event Format").
type event struct {
	Phase    string      `json:"ph"`
	Name     string      `json:"name"`
	Category string      `json:"cat,omitempty"`
	ID       int         `json:"id,omitempty"`
	PID      int         `json:"pid"`
	TID      int         `json:"tid"`
	Time     json.Number `json:"ts,omitempty"`  // microseconds
	Duration json.Number `json:"dur,omitempty"` // microseconds
	Scope    string      `json:"s,omitempty"`
	Args     any         `json:"args,omitempty"`
}

// spanArgs are the properties of a span other than its time.
type spanArgs struct {
	Level  int     `json:"level"`
	FLOPs  float64 `json:"flops,omitempty"`
	TFLOPs float64 `json:"tflop_per_s,omitempty"`
	Begin  *int64  `json:"bytes_at_begin,omitempty"`
	End    *int64  `json:"bytes_at_end,omitempty"`
	Peak   *int64  `json:"bytes_at_most,omitempty"`
	State  string  `json:"state,omitempty"`
	Error  string  `json:"error,omitempty"`
}

type (
	nameArgs struct {
		Name string `json:"name"`
	}
	orderArgs struct {
		Order int `json:"sort_index"`
	}
	valueArgs struct {
		Value int64 `json:"value"`
	}
)

// deviceNote is the file's note about a device as a whole.
type deviceNote struct {
	PID     int    `json:"pid"`
	Device  string `json:"device"`
	Clock   bool   `json:"clock"`
	Dropped int64  `json:"dropped"`
	NoTime  int    `json:"spans_without_time"`
}

// A chrome writes a trace.
type chrome struct {
	out   *bufio.Writer
	first bool
	zero  time.Duration // the time that is 0 in the file
	ids   int           // of asynchronous events
	err   error
}

// WriteChromeTrace writes recordings as one JSON file for chrome://tracing and https://ui.perfetto.dev. Each recording
// is a process, numbered by its Index or the next free number. Each stream of a lane is a thread of that process, in
// which spans are complete events (X) and nest. An open span is a begin event without an end (B). A span that ended on
// another stream is an asynchronous event (b, e), because it need not nest. A span without a duration is an instant
// (i); if it has no time, it gets that of the span before it in its lane. Counters are counter events (C).
//
// Times are microseconds with nanosecond digits since the recorders' time zero, or since the earliest event if that is
// before zero. Times of several devices agree to within the skew that Align returned.
func WriteChromeTrace(w io.Writer, all ...*Recording) error {
	c := &chrome{out: bufio.NewWriter(w), first: true}
	for _, r := range all {
		c.startAt(r)
	}
	c.out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	notes := []deviceNote{}
	taken := map[int]bool{}
	for _, r := range all {
		pid := r.Index
		for taken[pid] {
			pid++
		}
		taken[pid] = true
		notes = append(notes, c.device(r, pid))
	}
	c.out.WriteString("\n],\"otherData\":{\"devices\":")
	c.json(notes)
	c.out.WriteString("}}\n")
	if c.err != nil {
		return c.err
	}
	return c.out.Flush()
}

// startAt moves the file's zero before everything in r, because viewers reject negative times.
func (c *chrome) startAt(r *Recording) {
	see := func(at time.Duration) {
		if at != Unknown {
			c.zero = min(c.zero, at)
		}
	}
	for i := range r.Spans {
		see(r.Spans[i].Start)
		see(r.Spans[i].End)
	}
	for i := range r.Samples {
		see(r.Samples[i].At)
	}
}

// A thread is a stream of a lane.
type thread struct {
	lane   int
	stream driver.StreamID
}

// device writes one recording.
func (c *chrome) device(r *Recording, pid int) deviceNote {
	c.event(event{Phase: "M", Name: "process_name", PID: pid, Args: nameArgs{r.Device}})
	c.event(event{Phase: "M", Name: "process_sort_index", PID: pid, Args: orderArgs{r.Index}})
	note := deviceNote{PID: pid, Device: r.Device, Clock: r.Clock, Dropped: r.Dropped}
	threads := map[thread]int{}
	last := map[int]time.Duration{} // time of the previous span of each lane
	for i := range r.Spans {
		e := &r.Spans[i]
		t := thread{e.LaneNumber, e.Stream}
		tid := threads[t]
		if tid == 0 {
			tid = len(threads) + 1
			threads[t] = tid
			c.event(event{
				Phase: "M", Name: "thread_name", PID: pid, TID: tid,
				Args: nameArgs{fmt.Sprintf("%s, stream %d", e.Lane, e.Stream)},
			})
			c.event(event{Phase: "M", Name: "thread_sort_index", PID: pid, TID: tid, Args: orderArgs{e.LaneNumber}})
		}
		if e.Start == Unknown {
			note.NoTime++
		} else {
			last[e.LaneNumber] = e.Start
		}
		c.span(e, pid, tid, last[e.LaneNumber])
	}
	for _, s := range r.series() {
		for _, p := range s.points {
			c.event(event{Phase: "C", Name: s.name, PID: pid, Time: c.micros(p.at), Args: valueArgs{p.value}})
		}
	}
	return note
}

// span writes one span; near is the time to use if the span has none.
func (c *chrome) span(e *Entry, pid, tid int, near time.Duration) {
	args := spanArgs{
		Level: e.Level, FLOPs: e.FLOPs,
		Begin: bytesOf(e.Memory.Begin), End: bytesOf(e.Memory.End), Peak: bytesOf(e.Memory.Peak),
	}
	if e.State != Done {
		args.State = e.State.String()
	}
	if e.Err != nil {
		args.Error = e.Err.Error()
	}
	took, timed := e.Duration()
	if timed && took > 0 {
		args.TFLOPs = e.FLOPs / 1e12 / took.Seconds() // dividing first keeps it finite
	}
	ev := event{Name: e.Name, PID: pid, TID: tid, Args: args, Time: c.micros(e.Start)}
	switch {
	case timed && e.State == Crossed:
		c.ids++
		ev.Phase, ev.Category, ev.ID = "b", "crossed", c.ids
		c.event(ev)
		ev.Phase, ev.Time, ev.Args = "e", c.micros(e.End), nil
	case timed:
		ev.Phase, ev.Duration = "X", number(took)
	case e.Start != Unknown && e.State == Open:
		ev.Phase = "B"
	default:
		ev.Phase, ev.Scope = "i", "t"
		if e.Start == Unknown {
			ev.Time = c.micros(near)
		}
	}
	c.event(ev)
}

func bytesOf(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// event writes one event, on a line of its own.
func (c *chrome) event(e event) {
	if !c.first {
		c.out.WriteByte(',')
	}
	c.first = false
	c.out.WriteByte('\n')
	c.json(e)
}

func (c *chrome) json(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil && c.err == nil {
		c.err = err
	}
	c.out.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// micros returns a time of the file in microseconds.
func (c *chrome) micros(at time.Duration) json.Number { return number(at - c.zero) }

func number(d time.Duration) json.Number {
	return json.Number(fmt.Sprintf("%d.%03d", d/time.Microsecond, d%time.Microsecond))
}
