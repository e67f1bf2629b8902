package timeline

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// A Lane holds the spans of one goroutine. Calls from several goroutines are safe, but their spans then nest in the
// order in which the calls happen to arrive. A nil Lane records nothing.
type Lane struct {
	r      *Recorder
	name   string
	number int
	open   []uint64 // guarded by r.mu
}

// A Span is a piece of work that has begun. The zero Span is not recorded.
type Span struct {
	lane   *Lane
	number uint64
}

// A span is a Span as it is recorded.
type span struct {
	lane       *Lane
	name       string
	depth      int    // number of spans around it, dropped ones included
	until      uint64 // the newest span when this ended or was abandoned: later ones lie outside; 0 while it is open
	level      int
	flops      float64
	on, endOn  driver.StreamID
	begin, end point
	before     int64 // bytes in use when it began, or unknownBytes
	after      int64
	ended      bool
	closer     uint64 // the span around this one that ended first; itself if it was abandoned; or 0
	err        error  // why a time is missing
}

// A sample is a value of a counter, as it is recorded.
type sample struct {
	lane  *Lane
	name  string
	value int64
	point point
	err   error
}

// A point is an instant of a stream.
type point struct {
	state  pointState
	stamp  driver.Stamp  // if queued; the anchor's too
	stream driver.Stream // if queued
	at     time.Duration // if known, since time zero
}

type pointState uint8

const (
	nothing pointState = iota // has no stamp and will get none
	queued                    // its stamp is to be read
	taken                     // a Read has the stamp
	known                     // it has a time
)

const unknownBytes = -1

// Begin begins a span on s: it covers the work queued on s from now until End. flops is the number of floating-point
// operations of that work, 0 if unknown. The span lies within the lane's newest open span, if any. Read reports stamps
// that the device refuses.
func (l *Lane) Begin(s driver.Stream, name string, level int, flops float64) Span {
	if l == nil || !l.r.records(level) {
		return Span{}
	}
	return l.begin(s, name, level, flops)
}

func (l *Lane) begin(s driver.Stream, name string, level int, flops float64) Span {
	r := l.r
	if !(flops > 0) || math.IsInf(flops, 0) {
		flops = 0
	}
	sp := span{
		lane: l, name: cut(name, longestName), level: level, flops: flops,
		on: s.ID(), endOn: s.ID(), before: r.inUse(), after: unknownBytes,
	}
	sp.begin, sp.err = r.stamp(s)

	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		r.discard(&sp.begin)
		return Span{}
	}
	for len(l.open) > 0 && r.spans.get(l.open[0]) == nil {
		l.open = l.open[1:] // removed by Reset
	}
	if n := len(l.open); n > 0 {
		sp.depth = r.spans.get(l.open[n-1]).depth + 1
	}
	number, dropped, old := r.spans.push(sp)
	l.open = append(l.open, number)
	if dropped != 0 && !old.ended {
		old.lane.close(dropped)
	}
	r.mu.Unlock()
	if dropped != 0 {
		r.discard(&old.begin)
		r.discard(&old.end)
	}
	return Span{lane: l, number: number}
}

// close removes a span from the open ones. r.mu is held.
func (l *Lane) close(number uint64) {
	if i, found := slices.BinarySearch(l.open, number); found {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

// End ends the span on s, which should be the stream that it began on. Open spans within it are recorded as unfinished.
// Ending a span twice is a no-op, so a second End may be deferred.
func (sp Span) End(s driver.Stream) {
	if sp.lane == nil {
		return
	}
	r := sp.lane.r
	r.mu.Lock()
	open := r.isOpen(sp)
	r.mu.Unlock()
	if !open {
		return
	}
	end, err := r.stamp(s)
	bytes := r.inUse()

	r.mu.Lock()
	if !r.isOpen(sp) { // any more
		r.mu.Unlock()
		r.discard(&end)
		return
	}
	defer r.mu.Unlock()
	of := r.spans.get(sp.number)
	of.end, of.endOn, of.after, of.ended = end, s.ID(), bytes, true
	if of.err == nil {
		of.err = err
	}
	l := sp.lane
	for n := len(l.open); n > 0 && l.open[n-1] >= sp.number; n-- {
		in := r.spans.get(l.open[n-1])
		in.until = r.spans.last()
		if l.open[n-1] > sp.number {
			in.ended, in.closer = true, sp.number
		}
		l.open = l.open[:n-1]
	}
}

// Abandon marks a span that will never be ended, if it has not ended: it is recorded as unfinished, without an end, and
// spans that begin later do not lie in it.
func (sp Span) Abandon() {
	if sp.lane == nil {
		return
	}
	r := sp.lane.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOpen(sp) {
		return
	}
	of := r.spans.get(sp.number)
	of.ended, of.closer, of.until = true, sp.number, r.spans.last()
	sp.lane.close(sp.number)
}

// isOpen reports whether a span is kept and has not ended. r.mu is held.
func (r *Recorder) isOpen(sp Span) bool {
	of := r.spans.get(sp.number)
	return of != nil && !of.ended
}

// Mark records the value of a counter at a point on s, at any level other than Off. Counters whose names end in
// "memory" or "bytes" count bytes. The counter "memory" also holds the values of Options.Memory.
func (l *Lane) Mark(s driver.Stream, name string, value int64) {
	if l == nil || !l.r.records(0) {
		return
	}
	r := l.r
	sm := sample{lane: l, name: cut(name, longestName), value: value}
	sm.point, sm.err = r.stamp(s)
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		r.discard(&sm.point)
		return
	}
	_, old, dropped := r.samples.push(sm)
	r.mu.Unlock()
	if dropped {
		r.discard(&old.point)
	}
}

// inUse returns the bytes in use.
func (r *Recorder) inUse() int64 {
	if r.opts.Memory == nil {
		return unknownBytes
	}
	return max(0, r.opts.Memory())
}

// stamp takes a stamp on s. It does nothing if the device has no clock.
func (r *Recorder) stamp(s driver.Stream) (point, error) {
	if r.clock == nil {
		return point{}, nil
	}
	st, err := r.clock.Stamp(s)
	if err != nil {
		return point{}, err
	}
	return point{state: queued, stamp: st, stream: s}, nil
}

// discard returns a point's stamp, if any, to the device; if the device refuses, Close tries again. r.mu is not held.
func (r *Recorder) discard(p *point) error {
	if p.stamp == (driver.Stamp{}) {
		return nil
	}
	st := p.stamp
	p.stamp, p.stream = driver.Stamp{}, nil
	if p.state == queued {
		p.state = nothing
	}
	err := r.clock.Discard(st)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.refused) < r.opts.Max { // a device that refuses more than this is lost, with its stamps
			r.refused = append(r.refused, st)
		}
	}
	return err
}

// retry offers the refused stamps to the device again, and returns the first error.
func (r *Recorder) retry() error {
	r.mu.Lock()
	again := r.refused
	r.refused = nil
	r.mu.Unlock()
	var first error
	for _, st := range again {
		p := point{state: queued, stamp: st}
		first = cmp.Or(first, r.discard(&p))
	}
	return first
}
