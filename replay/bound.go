package replay

// Bound is the allocator name of the row Comparison.Bound. It is not a spec.
const Bound = "bound"

// bound returns the row of an ideal allocator: it serves every request, including those that failed when they were
// recorded, reserves no more than the requested bytes, and needs no driver calls.
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

// OverBound returns a row's smallest limit as a multiple of the lower bound (trace.Program.LowerBound), or 0 if the
// limit was not searched, no limit is enough, or nothing is requested.
func (c *Comparison) OverBound(r *Row) float64 {
	if r.SmallestLimit <= 0 || c.Bound.RequestedPeak <= 0 {
		return 0
	}
	return float64(r.SmallestLimit) / float64(c.Bound.RequestedPeak)
}
