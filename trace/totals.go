package trace

import "github.com/ashlar-go/ashlar/mem"

// Totals are the allocated bytes at some point of a history, with their peaks. The zero value is the start of a history
// with nothing allocated before it. Not safe for concurrent use.
type Totals struct {
	Requested mem.Stat // requested bytes of active blocks: those whose free has not completed
	Reserved  mem.Stat // in segments and mapped pages
}

// Add applies the next event, which is given by its action and size. Actions that change neither sum are ignored.
func (t *Totals) Add(a mem.Action, size int64) {
	switch a {
	case mem.ActionAlloc:
		t.Requested.Increase(size)
	case mem.ActionFreeCompleted:
		t.Requested.Decrease(size)
	case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
		t.Reserved.Increase(size)
	case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
		t.Reserved.Decrease(size)
	}
}

// Totals returns the sums of all events of t.
func (t *Trace) Totals() (sums Totals) {
	r := t.Reader(FieldSize, FieldAction)
	for i := range t.Len() {
		e := r.At(i)
		sums.Add(e.Action, e.Size)
	}
	return sums
}
