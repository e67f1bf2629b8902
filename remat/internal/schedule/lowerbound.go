package schedule

// LowerBound returns a time in ns that running a program within a budget adds at least, by a relaxation: the bound of
// exhaustive search for programs of any length. Views are made again in no time. With a link, copies to the host take
// no time but that of their bytes.
func LowerBound(p *Program, budget int64, link Link) int64 {
	plan, bound := timetable(p), int64(0)
	for _, at := range plan.peaks(budget) {
		least := func(carried int64) int64 {
			_, ns := relax(plan, at, budget+carried).solve()
			return ns
		}
		most := least(0)
		if most <= bound {
			continue
		}
		if link.BytesPerSecond <= 0 {
			bound = most
			continue
		}
		// While less time is added than what cannot be carried in it takes to compute, it is not enough.
		low := bound
		for high := most; high-low > (most+999)/1000; {
			if middle := low + (high-low)/2; least(plan.carried(at, middle, link)) > middle {
				low = middle
			} else {
				high = middle
			}
		}
		bound = low
	}
	return bound
}

// CopiesLowerBound returns a time in ns that running a program within a budget adds at least if nothing is computed
// again: what is read later and does not fit is copied to the host and back.
func CopiesLowerBound(p *Program, budget int64, link Link) int64 {
	plan, bound := timetable(p), int64(0)
	for at, used := range plan.used() {
		if used <= budget {
			continue
		}
		time := int64(float64(used-budget) / link.BytesPerSecond * 1e9)
		before, after := plan.around(int32(at))
		bound = max(bound, max(time-before, 0)+max(time-after, 0))
	}
	return bound
}

// around returns the times of a program before and after an operation.
func (p *Plan) around(at int32) (before, after int64) {
	return p.clock[at], p.clock[len(p.ops)] - p.clock[at+1]
}

// carried returns the bytes that a link can carry to the host before an operation and back after it, at most, if the
// program takes so much more time.
func (p *Plan) carried(at int32, added int64, link Link) int64 {
	before, after := p.around(at)
	time := min(before+added, after+added, (before+after+added)/2)
	return int64(float64(time) * link.BytesPerSecond / 1e9)
}
