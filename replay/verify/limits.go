package verify

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// limitCandidates are limits, in bytes, that may have been in force while garbage was collected at a threshold. A
// request collects if more is reserved than the threshold times the limit: so, if a request gave segments back because
// it collected, the limit was less than what was reserved over the threshold, and at the first such request it was
// hardly less. What was reserved at most bounds the limit from below. These bounds come first, then ever finer samples
// of the range that they span. 0, no limit, is all there is if nothing was given back.
func limitCandidates(t *trace.Trace, threshold float64) []int64 {
	low := recordedPeaks(t).Reserved
	var bounds []int64
	var reserved int64
	for i := range t.Events {
		switch e := &t.Events[i]; e.Action {
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			reserved += e.Size
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			if e.Action == mem.ActionSegmentFree && (i == 0 || t.Events[i-1].Action != mem.ActionSegmentFree) {
				bounds = append(bounds, max(low, int64(float64(reserved)/threshold)-1))
			}
			reserved -= e.Size
		}
	}
	if len(bounds) == 0 {
		return []int64{0}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	high := bounds[len(bounds)-1]
	candidates := append(bounds[:min(len(bounds), 50)], low)
	for parts := int64(2); parts <= 64 && high-low > parts; parts *= 2 {
		for i := parts - 1; i > 0; i -= 2 {
			candidates = append(candidates, low+(high-low)/parts*i)
		}
	}
	return candidates
}

// recordedPeaks adds the events up.
func recordedPeaks(t *trace.Trace) Peaks {
	var p Peaks
	var requested, reserved int64
	for i := range t.Events {
		e := &t.Events[i]
		switch e.Action {
		case mem.ActionAlloc:
			requested += e.Size
		case mem.ActionFreeCompleted:
			requested -= e.Size
		case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
			reserved += e.Size
		case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
			reserved -= e.Size
		}
		p.Requested = max(p.Requested, requested)
		p.Reserved = max(p.Reserved, reserved)
	}
	return p
}
