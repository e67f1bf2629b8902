package trace

import "github.com/ashlar-go/ashlar/mem"

// Totals are the allocated bytes at some point of a history. The zero value is the start of a history with nothing
// allocated before it. Not safe for concurrent use.
type Totals struct {
	Requested     int64 // requested bytes of active blocks: those whose free has not completed
	Reserved      int64 // in segments and mapped pages
	RequestedPeak int64 // the maxima that Add has reached, or the values set before
	ReservedPeak  int64
}

// Add applies the next event, which is given by its action and size. Actions that change neither sum are ignored.
func (t *Totals) Add(a mem.Action, size int64) {
	switch a {
	case mem.ActionAlloc:
		t.Requested += size
		t.RequestedPeak = max(t.RequestedPeak, t.Requested)
	case mem.ActionFreeCompleted:
		t.Requested -= size
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		t.Reserved += size
		t.ReservedPeak = max(t.ReservedPeak, t.Reserved)
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		t.Reserved -= size
	}
}

// Totals returns the sums of all events of t.
func (t *Trace) Totals() (sums Totals) {
	for i := range t.Events {
		sums.Add(t.Events[i].Action, t.Events[i].Size)
	}
	return sums
}
