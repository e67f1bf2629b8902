package holders

import (
	"iter"
	"math"
	"sync"
	"sync/atomic"

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

// activeSums has the requested bytes of the active blocks after each event: the change by each event, and the sum
// before each group of ExtremeEvents.
type activeSums struct {
	before   int64 // the first event
	groups   []int64
	changes  packed.Sequence
	extremes []Extreme
}

// sumEvents is the usual number of events of a window. Each of two goroutines needs eight bytes for each event of one.
const sumEvents = 1 << 21

// A window has the sums of some events, from zero on.
type window struct {
	before   int64 // of blocks older than the recording
	total    int64
	groups   []int64
	changes  packed.Sequence
	extremes []Extreme
}

// sum computes the sums of a number of events, in windows of a multiple of 4096.
func (a *activeSums) sum(l *trace.Lifetimes, events, length int) {
	windows := make([]window, max(1, (events+length-1)/length))
	last := lastEnds(l)
	var next atomic.Int64
	var done sync.WaitGroup
	for range min(2, len(windows)) {
		done.Go(func() {
			changes := make([]int64, min(events, length))
			for n := int(next.Add(1)) - 1; n < len(windows); n = int(next.Add(1)) - 1 {
				first := n * length
				windows[n].sum(l, last, first, changes[:min(events-first, length)])
			}
		})
	}
	done.Wait()
	groups := (events + ExtremeEvents - 1) / ExtremeEvents
	a.groups, a.extremes = make([]int64, 0, groups), make([]Extreme, 0, groups)
	a.before = windows[0].before
	sum := a.before
	for n := range windows {
		w := &windows[n]
		for i, x := range w.extremes {
			a.groups = append(a.groups, sum+w.groups[i])
			a.extremes = append(a.extremes, Extreme{sum + x.High, sum + x.Low, x.At})
		}
		a.changes.Join(&w.changes)
		sum += w.total
		*w = window{}
	}
}

// sum sums up the events from first on, with memory for the change of each.
func (w *window) sum(l *trace.Lifetimes, last []int, first int, changes []int64) {
	clear(changes)
	for i := 0; i < l.Len(); i++ {
		if i%endBlocks == 0 && last[i/endBlocks] < first {
			i += endBlocks - 1 // all of them ended before
			continue
		}
		start, end := l.Start(i)-first, l.End(i)-first
		if start >= len(changes) {
			break // so do the later ones
		}
		starts, ends := start >= 0 || first == 0, uint(end) < uint(len(changes))
		if start >= end || !starts && !ends {
			continue
		}
		size := l.Size(i)
		switch {
		case start >= 0:
			changes[start] += size
		case starts:
			w.before += size
		}
		if ends {
			changes[end] -= size
		}
	}
	for i, change := range changes {
		if i%ExtremeEvents == 0 {
			w.groups, w.extremes = append(w.groups, w.total), append(w.extremes, noExtreme)
		}
		w.total += change
		w.extremes[len(w.extremes)-1].add(first+i, w.total)
	}
	w.changes.Append(changes)
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

// Active returns the active bytes after each of the events first to limit-1. First may be -1. It is quicker than
// ActiveBytes for each.
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

// Extremes returns the extremes of the active bytes after the events first to limit-1, of which there must be at least
// one. First may be -1.
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
