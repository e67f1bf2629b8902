package replay

// Bound is the name of the row Comparison.Bound. It is no spec.
const Bound = "bound"

// bound is the row of an allocator that serves every request, those that failed when they were recorded included, and needs
// no more than is requested at a time, from memory that is there without a call. A row that completes serves the same.
func (c *comparer) bound() Row {
	stats, least := c.w.Program.Stats(), c.w.Program.LowerBound()
	r := Row{
		Allocator: Bound, Ops: len(c.w.Program.Ops), Allocs: stats.Allocs, FirstOOM: -1, Priced: true,
		RequestedPeak: least, AllocatedPeak: least, ReservedPeak: least,
		Later: &Later{Recorded: c.w.recorded(thirdOf(c.w.Program), len(c.w.Program.Ops))},
	}
	for i := range c.result.Rows {
		if c.result.Rows[i].SmallestLimit != 0 {
			r.SmallestLimit = least
		}
	}
	return r
}

// OverBound is a row's smallest limit as a multiple of the lower bound (trace.Program.LowerBound), or 0 if it was not
// searched, if no limit is enough, or if nothing is requested.
func (c *Comparison) OverBound(r *Row) float64 {
	if r.SmallestLimit <= 0 || c.Bound.RequestedPeak <= 0 {
		return 0
	}
	return float64(r.SmallestLimit) / float64(c.Bound.RequestedPeak)
}
