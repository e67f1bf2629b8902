package replay

// Bound is the name of the row Comparison.Bound. It is no spec.
const Bound = "bound"

// bound is the row of an allocator that needs what is requested at a time, and no more: what is requested at the peak of
// the work, from memory that is there without a call.
func (c *comparer) bound() Row {
	stats := c.w.Program.Stats()
	r := Row{
		Allocator: Bound, Ops: len(c.w.Program.Ops), Allocs: stats.Allocs, FirstOOM: -1, Priced: true,
		RequestedPeak: stats.PeakBytes, AllocatedPeak: stats.PeakBytes, ReservedPeak: stats.PeakBytes,
		Later: &Later{Recorded: c.w.recorded(thirdOf(c.w.Program), len(c.w.Program.Ops))},
	}
	for i := range c.result.Rows {
		if c.result.Rows[i].SmallestLimit != 0 {
			r.SmallestLimit = stats.PeakBytes
		}
	}
	return r
}

// OverBound is a row's smallest limit as a multiple of what is requested at the peak of the work, or 0 if it was not
// searched, if no limit is enough, or if nothing is requested.
func (c *Comparison) OverBound(r *Row) float64 {
	if r.SmallestLimit <= 0 || c.Bound.RequestedPeak <= 0 {
		return 0
	}
	return float64(r.SmallestLimit) / float64(c.Bound.RequestedPeak)
}
