package schedule

import (
	"cmp"
	"math"
	"slices"
)

// transfers are the copies to the host and back that a plan makes.
//
// The link is a resource over time. A storage of which a copy relieves a peak must be on the host before the peak, so
// its copy fits into the time since it was made; and it must be back before it is read. In each direction one storage
// is copied at a time. So the choice of what stays (see relaxation) is made for the budget and the bytes that the link
// can carry before the peak, and of what it keeps, as many bytes as do not fit into the budget are copied: those first
// that were made first, since they are on the host early, and a backward pass reads them last.
type transfers struct {
	out   []int32 // storages, in the order in which they are copied to the host
	back  []int32 // the same, in the order in which they are copied back
	start []int64 // of each of back: when its copy starts at the latest, by the plan's clock
	moved []bool  // by storage
	due   []int64 // of each storage that is moved: when it must be back
}

// A linkSchedule chooses the transfers of a plan.
type linkSchedule struct {
	plan    *Plan
	link    spilling
	outFree int64 // when the last copy to the host is complete
	bytes   int64 // on the host, at most
	out     []int32
	moved   []bool
	due     []int64 // of each storage that is moved: when it must be back
}

func newLinkSchedule(p *Plan, c PlanConfig) *linkSchedule {
	n := len(p.uses)
	l := &linkSchedule{plan: p, moved: make([]bool, n), due: make([]int64, n)}
	l.link.Link, l.link.hostLimit = c.Link, c.HostLimit
	return l
}

// capacity returns the bytes that can be copied to the host between the last planned copy and an operation.
func (l *linkSchedule) capacity(at int32) int64 {
	bytes := float64(max(l.plan.clock[at]-l.outFree, 0)) * l.link.BytesPerSecond / 1e9
	if l.link.hostLimit > 0 {
		bytes = min(bytes, float64(l.link.hostLimit-l.bytes))
	}
	return int64(bytes)
}

// move takes storages of at least excess bytes from those that are kept at the moment of a relaxation, to copy them,
// and returns the bytes for which the link has no time.
func (l *linkSchedule) move(r *relaxation, keep []bool, excess int64) int64 {
	var all []int32
	for s, kept := range keep {
		switch {
		case !kept || !r.live(int32(s)):
		case l.moved[s] && l.due[s] > l.plan.clock[r.at]: // away already
			keep[s] = false
			excess -= l.plan.sizes[s]
		case !l.moved[s]:
			all = append(all, int32(s))
		}
	}
	slices.SortFunc(all, func(a, b int32) int { return cmp.Compare(l.plan.makers[a], l.plan.makers[b]) })
	due := r.due(keep)
	var waiting []int32 // to be copied back, in the order of their times
	for _, s := range all {
		if excess <= 0 {
			break
		}
		if l.add(s, r.at, due[s], &waiting) {
			keep[s] = false
			excess -= l.plan.sizes[s]
		}
	}
	return max(excess, 0)
}

// add moves a storage, unless the link has no time for it before the moment or after it.
func (l *linkSchedule) add(s, at int32, due int64, waiting *[]int32) bool {
	p, size := l.plan, l.plan.sizes[s]
	time := l.link.transfer(size)
	done := max(l.outFree, p.clock[p.makers[s]+1]) + time
	small := time < 2*l.link.LatencyNs
	if small || done > p.clock[at] || l.link.hostLimit > 0 && l.bytes+size > l.link.hostLimit {
		return false
	}
	place, _ := slices.BinarySearchFunc(*waiting, due, func(s int32, due int64) int { return cmp.Compare(l.due[s], due) })
	next := slices.Insert(slices.Clone(*waiting), place, s)
	l.due[s] = due
	back := p.clock[at]
	for _, w := range next {
		if back += l.link.transfer(p.sizes[w]); back > l.due[w] {
			return false
		}
	}
	*waiting = next
	l.outFree, l.bytes = done, l.bytes+size
	l.out, l.moved[s] = append(l.out, s), true
	return true
}

// transfers returns what was chosen, or nil if nothing was.
func (l *linkSchedule) transfers() *transfers {
	if len(l.out) == 0 {
		return nil
	}
	t := &transfers{out: l.out, back: slices.Clone(l.out), start: make([]int64, len(l.out)), moved: l.moved, due: l.due}
	slices.SortFunc(t.back, func(a, b int32) int { return cmp.Compare(l.due[a], l.due[b]) })
	next := int64(math.MaxInt64)
	for i, s := range slices.Backward(t.back) {
		next = min(next, l.due[s]) - l.link.transfer(l.plan.sizes[s])
		t.start[i] = next
	}
	return t
}

// earlier returns the same transfers for storages that are needed earlier than was known, or nil if none is.
func (l *linkSchedule) earlier(t *transfers, needed []int64) *transfers {
	l.out, l.moved, l.due = t.out, t.moved, slices.Clone(t.due)
	changed := false
	for _, s := range t.out {
		if needed[s] < l.due[s] {
			l.due[s], changed = needed[s], true
		}
	}
	if !changed {
		return nil
	}
	return l.transfers()
}

// due returns when each storage is read that is live at the moment, by the program, or to compute one again that is not
// kept.
func (r *relaxation) due(keep []bool) []int64 {
	p := r.plan
	due := slices.Repeat([]int64{math.MaxInt64}, len(p.uses))
	var evicted []int32
	for s := range p.uses {
		if !r.live(int32(s)) {
			continue
		}
		uses := p.uses[s]
		next, _ := slices.BinarySearch(uses, r.at+1)
		due[s] = p.clock[uses[next]]
		if !keep[s] && !r.locked[s] {
			evicted = append(evicted, int32(s))
		}
	}
	slices.SortFunc(evicted, func(a, b int32) int { return cmp.Compare(due[a], due[b]) })
	seen := make([]bool, len(p.uses))
	for _, s := range evicted {
		time := due[s]
		for queue := []int32{s}; len(queue) > 0; queue = queue[1:] {
			if o := p.makers[queue[0]]; o != None && !seen[queue[0]] {
				seen[queue[0]] = true
				for _, in := range p.ops[o].inputs {
					due[in] = min(due[in], time)
					if !keep[in] && !r.locked[in] {
						queue = append(queue, in)
					}
				}
			}
		}
	}
	return due
}
