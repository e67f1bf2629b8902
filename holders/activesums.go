package holders

import (
	"iter"
	"math"
	"sync"

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
	changes  *trace.Changes
	groups   []int64
	extremes []Extreme
}

// newActiveSums sums up changes, the halves of many on two processors.
func newActiveSums(changes *trace.Changes) activeSums {
	n := (changes.Len() + ExtremeEvents - 1) / ExtremeEvents
	a := activeSums{changes, make([]int64, n), make([]Extreme, n)}
	var total [2]int64
	var halves sync.WaitGroup
	halves.Go(func() { total[0] = a.sum(0, n/2) })
	total[1] = a.sum(n/2, n)
	halves.Wait()
	a.raise(0, n/2, changes.Before())
	a.raise(n/2, n, changes.Before()+total[0])
	return a
}

// sumGroups is the number of groups whose changes are read at a time.
const sumGroups = 32

// sum sums up the changes of the groups from one index up to another, from zero on. It returns the sum of all.
func (a *activeSums) sum(from, limit int) (total int64) {
	var changes [sumGroups * ExtremeEvents]uint64
	for from < limit {
		first := from * ExtremeEvents
		part := changes[:min(limit*ExtremeEvents, a.changes.Len(), first+len(changes))-first]
		a.changes.Read(first, part)
		for i, change := range part {
			if i%ExtremeEvents == 0 {
				a.groups[from], a.extremes[from] = total, noExtreme
				from++
			}
			total += int64(change)
			a.extremes[from-1].add(first+i, total)
		}
	}
	return total
}

// raise adds bytes to the sums of the groups from one index up to another.
func (a *activeSums) raise(from, limit int, bytes int64) {
	for i := from; i < limit; i++ {
		a.groups[i] += bytes
		a.extremes[i].High += bytes
		a.extremes[i].Low += bytes
	}
}

// ActiveBytes returns the requested bytes of the active blocks after an event; -1 is before the first event.
func (a *activeSums) ActiveBytes(event int) int64 {
	if event < 0 {
		return a.changes.Before()
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
		if first < limit && first < 0 && !yield(-1, a.changes.Before()) {
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
		x.add(-1, a.changes.Before())
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
