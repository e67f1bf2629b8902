package verify

import (
	"slices"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// limitCandidates returns limits, in bytes, that may have been in force while garbage was collected at a threshold. A
// request collects if the reserved memory exceeds threshold times the limit. So if a request freed segments because it
// collected, the limit was less than reserved/threshold, and at the first such request only slightly less. The peak of
// the reserved memory is a lower bound. The candidates are these bounds, then ever finer samples of the range between
// them; or only 0, no limit, if no segment was freed.
func limitCandidates(t *trace.Trace, threshold float64) []int64 {
	low := t.Totals().Reserved.Peak
	var bounds []int64
	var sums trace.Totals
	for i := range t.Events {
		e := &t.Events[i]
		if e.Action == mem.ActionSegmentFree && (i == 0 || t.Events[i-1].Action != mem.ActionSegmentFree) {
			bounds = append(bounds, max(low, int64(float64(sums.Reserved.Current)/threshold)-1))
		}
		sums.Add(e.Action, e.Size)
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
