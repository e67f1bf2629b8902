package timeline

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// A Recording is the content of a Recorder when it was read. It belongs to the caller.
type Recording struct {
	Device  string   // Options.Name
	Index   int      // Options.Index
	Clock   bool     // whether the device has a clock
	Spans   []Entry  // in the order in which they began
	Samples []Sample // in the order of the calls
	Dropped int64    // spans and samples that were dropped, since New or Reset
}

// An Entry is one span. Times are those of the device since the Recorder's time zero.
type Entry struct {
	Lane       string
	LaneNumber int // of the Recorder's lanes, from 1
	Name       string
	Level      int
	Parent     int             // index in Spans of the innermost span around it; -1 if there is none
	Depth      int             // number of the Spans around it
	FLOPs      float64         // floating-point operations, 0 if not known
	Stream     driver.StreamID // that it began on
	EndStream  driver.StreamID // that it ended on
	Start, End time.Duration   // Unknown if there is no time
	Memory     Memory
	State      State
	Err        error // why a time is missing; set for Failed
}

// Memory is a number of bytes in use, -1 if unknown.
type Memory struct {
	Begin, End int64 // when the host began and ended the span
	Peak       int64 // the largest value at the beginnings and ends of the span and of the spans within it
}

// A Sample is the value of a counter at a point on a stream.
type Sample struct {
	Lane       string
	LaneNumber int
	Name       string
	At         time.Duration // Unknown if there is no time
	Value      int64
	Err        error // why there is no time
}

// Unknown is an unknown time.
const Unknown time.Duration = math.MinInt64

// A State tells how a span ended.
type State uint8

// The states.
const (
	Done       State = iota // it began and ended on one stream
	Open                    // it has not ended
	Unfinished              // still open when the span around it ended, whose End it has if on one stream; or abandoned
	Crossed                 // it ended on another stream than it began on
	Pending                 // the device had not reached its begin or end when Read's context ended
	Failed                  // a stamp could not be taken or read: Err says why
)

func (s State) String() string {
	return [...]string{"done", "open", "unfinished", "crossed", "pending", "failed"}[s]
}

// Duration returns the time that the span took on the device. It reports false if a time is missing, or if the span
// ended before it began, which is possible on another stream.
func (e *Entry) Duration() (time.Duration, bool) {
	if e.Start == Unknown || e.End == Unknown || e.End < e.Start {
		return 0, false
	}
	return e.End - e.Start, true
}

// recording returns the content of the rings. The error is that of the first span or sample without a time.
func (r *Recorder) recording() (*Recording, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := &Recording{
		Device: r.opts.Name, Index: r.opts.Index, Clock: r.clock != nil, Dropped: r.spans.dropped() + r.samples.dropped,
	}
	var failed int
	var first error
	note := func(err error) {
		if err != nil {
			failed++
			first = cmp.Or(first, err)
		}
	}
	around := map[*Lane][]enclosing{}
	for _, n := range r.spans.numbers() {
		sp := r.spans.get(n)
		note(sp.err)
		e := r.entry(sp)
		in := around[sp.lane]
		for len(in) > 0 && in[len(in)-1].until < n {
			in = in[:len(in)-1]
		}
		if len(in) > 0 {
			e.Parent = in[len(in)-1].index
			e.Depth = rec.Spans[e.Parent].Depth + 1
		}
		until := sp.until
		until = cmp.Or(until, math.MaxUint64)
		around[sp.lane] = append(in, enclosing{len(rec.Spans), until})
		rec.Spans = append(rec.Spans, e)
	}
	for i := len(rec.Spans) - 1; i >= 0; i-- {
		if e := &rec.Spans[i]; e.Parent >= 0 {
			in := &rec.Spans[e.Parent].Memory
			in.Peak = max(in.Peak, e.Memory.Peak)
		}
	}
	for n := r.samples.first + 1; n <= r.samples.last; n++ {
		sm := r.samples.get(n)
		note(sm.err)
		rec.Samples = append(rec.Samples, Sample{
			Lane: sm.lane.name, LaneNumber: sm.lane.number, Name: sm.name, At: sm.point.time(), Value: sm.value,
			Err: sm.err,
		})
	}
	if first != nil {
		first = fmt.Errorf("timeline: %s: spans and samples without a time: %d, the first: %w", rec.Device, failed,
			first)
	}
	return rec, first
}

// An enclosing span is one that later spans of its lane may lie in.
type enclosing struct {
	index int    // in Recording.Spans
	until uint64 // the number of the last such span
}

// entry returns a span as an Entry without Parent and Depth. r.mu is held.
func (r *Recorder) entry(sp *span) Entry {
	e := Entry{
		Lane: sp.lane.name, LaneNumber: sp.lane.number, Name: sp.name, Level: sp.level, Parent: -1, FLOPs: sp.flops,
		Stream: sp.on, EndStream: sp.endOn, Start: sp.begin.time(), End: sp.end.time(),
		Memory: Memory{Begin: sp.before, End: sp.after, Peak: max(sp.before, sp.after)}, Err: sp.err,
	}
	if closer := r.spans.get(sp.closer); closer != nil && closer.endOn == sp.on {
		e.End = closer.end.time()
	}
	switch {
	case sp.err != nil:
		e.State = Failed
	case sp.closer != 0:
		e.State = Unfinished
	case sp.begin.state == queued || sp.end.state == queued:
		e.State = Pending
	case !sp.ended:
		e.State = Open
	case sp.on != sp.endOn:
		e.State = Crossed
	}
	return e
}

// time returns the point's time, if it has one.
func (p *point) time() time.Duration {
	if p.state != known {
		return Unknown
	}
	return p.at
}
