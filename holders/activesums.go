package holders

import (
	"iter"
	"math"

	"github.com/ashlar-go/ashlar/internal/packed"
	"github.com/ashlar-go/ashlar/trace"
)

// ExtremeEvents is the number of events of a group whose extremes a History keeps.
const ExtremeEvents = 128

// An Extreme has the extremes of the active bytes after some events.
type Extreme struct {
	High, Low int64
	At        int32 // the first event with High
}

// Join returns the extremes of x and of later events.
func (x Extreme) Join(later Extreme) Extreme {
	if later.High > x.High {
		x.High, x.At = later.High, later.At
	}
	x.Low = min(x.Low, later.Low)
	return x
}

// add adds the active bytes after an event.
func (x *Extreme) add(event int, bytes int64) {
	if bytes > x.High {
		x.High, x.At = bytes, int32(event)
	}
	x.Low = min(x.Low, bytes)
}

// noExtreme has no events.
var noExtreme = Extreme{High: math.MinInt64, Low: math.MaxInt64}

// activeSums has the requested bytes of the active blocks after each event: the change by each event, and the sum before
// each group of ExtremeEvents.
type activeSums struct {
	before   int64 // the first event
	groups   []int64
	changes  packed.Sequence
	extremes []Extreme
}

// sumEvents is the number of events that are summed up at a time: the temporary memory is eight bytes for each.
const sumEvents = 1 << 22

// sum computes the sums of a number of events.
func (a *activeSums) sum(l *trace.Lifetimes, events int) {
	changes := make([]int64, min(events, sumEvents))
	groups := (events + ExtremeEvents - 1) / ExtremeEvents
	a.groups, a.extremes = make([]int64, 0, groups), make([]Extreme, 0, groups)
	last := lastEnds(l)
	sum := int64(0)
	for first := 0; first == 0 || first < events; first += sumEvents {
		part := changes[:min(events-first, sumEvents)]
		clear(part)
		for i := 0; i < l.Len(); i++ {
			if i%endBlocks == 0 && last[i/endBlocks] < first {
				i += endBlocks - 1 // all of them ended before
				continue
			}
			start, end := l.Start(i)-first, l.End(i)-first
			if start >= len(part) {
				break // so do the later ones
			}
			if start >= end {
				continue
			}
			starts, ends := start >= 0 || start < 0 && first == 0, uint(end) < uint(len(part))
			if !starts && !ends {
				continue
			}
			size := l.Size(i)
			switch {
			case start >= 0:
				part[start] += size
			case starts:
				a.before += size
			}
			if ends {
				part[end] -= size
			}
		}
		if first == 0 {
			sum = a.before
		}
		for i, change := range part {
			if i%ExtremeEvents == 0 {
				a.groups, a.extremes = append(a.groups, sum), append(a.extremes, noExtreme)
			}
			sum += change
			a.extremes[len(a.extremes)-1].add(first+i, sum)
		}
		a.changes.Append(part)
	}
}

// endBlocks is the number of blocks of a group in lastEnds.
const endBlocks = 4096

// lastEnds returns the last end of each group of blocks.
func lastEnds(l *trace.Lifetimes) []int {
	last := make([]int, (l.Len()+endBlocks-1)/endBlocks)
	for i := range l.Len() {
		last[i/endBlocks] = max(last[i/endBlocks], l.End(i))
	}
	return last
}

// ActiveBytes returns the requested bytes of the active blocks after an event; -1 is before the first event.
func (a *activeSums) ActiveBytes(event int) int64 {
	if event < 0 {
		return a.before
	}
	var changes [ExtremeEvents]uint64
	first := event / ExtremeEvents * ExtremeEvents
	part := changes[:event+1-first]
	a.changes.Read(first, part)
	sum := a.groups[event/ExtremeEvents]
	for _, change := range part {
		sum += int64(change)
	}
	return sum
}

// Active returns the active bytes after each of the events first to limit-1. First may be -1. It is quicker than ActiveBytes
// for each.
func (a *activeSums) Active(first, limit int) iter.Seq2[int, int64] {
	return func(yield func(event int, bytes int64) bool) {
		if first < limit && first < 0 && !yield(-1, a.before) {
			return
		}
		var changes [ExtremeEvents]uint64
		for event := max(first, 0); event < limit; {
			sum := a.ActiveBytes(event - 1)
			part := changes[:min(limit, (event/ExtremeEvents+1)*ExtremeEvents)-event]
			a.changes.Read(event, part)
			for _, change := range part {
				sum += int64(change)
				if !yield(event, sum) {
					return
				}
				event++
			}
		}
	}
}

// Extremes returns the extremes of the active bytes after the events first to limit-1, of which there must be at least one.
// First may be -1.
func (a *activeSums) Extremes(first, limit int) Extreme {
	x := noExtreme
	if first < 0 {
		x.add(-1, a.before)
		first = 0
	}
	for first < limit {
		group := first / ExtremeEvents
		until := min((group+1)*ExtremeEvents, limit)
		if first%ExtremeEvents == 0 && (until == a.changes.Len() || until-first == ExtremeEvents) {
			x = x.Join(a.extremes[group])
		} else {
			for event, bytes := range a.Active(first, until) {
				x.add(event, bytes)
			}
		}
		first = until
	}
	return x
}
