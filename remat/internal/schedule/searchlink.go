package schedule

import "slices"

// loads are the parts of the link's time before a peak that are tried.
var loads = []float64{1, 0.7, 0.4}

// copying tries variants of the best plan so far with copies to the host: what is copied, other weights, and weights of
// single storages.
func (s *search) copying() {
	s.effort = s.config.Effort
	without := *s.best
	online := without
	online.online, online.copies, online.without = true, true, &without
	s.try(&online)
	with := online
	with.online = false
	for _, load := range loads {
		for _, c := range choices {
			next := with
			if next.stays, next.transfers = s.moves(&with, c.share, c.urgency, load); next.transfers == nil {
				continue
			}
			unbiased := next
			unbiased.bias = nil
			s.adapt(&next)
			s.adapt(&unbiased)
		}
	}
	if s.best.transfers == nil {
		return
	}
	best := *s.best
	for _, w := range portfolio {
		next := best
		next.weights = w
		s.adapt(&next)
	}
	s.improve()
}

// adapt tries a plan with transfers, and again with copies that start earlier where storages were needed earlier than
// the plan knew: to compute others again.
func (s *search) adapt(p *Plan) {
	for range adaptRounds {
		if s.effort < s.config.Effort/4 {
			return
		}
		time := s.simulate(p, s.least+s.least/patience)
		s.keep(p, time)
		next := *p
		if next.transfers = newLinkSchedule(p, s.config).earlier(p.transfers, s.needed); next.transfers == nil {
			return
		}
		p = &next
	}
}

const (
	adaptRounds = 4
	patience    = 8 // a plan that takes so much longer than the best one, as a part of its time, is not adapted
)

// moves returns what stays in memory at the peaks of a plan and what is copied, if so much of the budget and of the
// link's time is taken for it.
func (s *search) moves(plan *Plan, share, urgency, load float64) ([]stay, *transfers) {
	link := newLinkSchedule(plan, s.config)
	stays := s.atPeaks(plan, func(at int32) []bool {
		budget, carried := int64(share*float64(s.config.Budget)), int64(load*float64(link.capacity(at)))
		for round := 1; ; round++ {
			keep, r := s.relax(plan, at, budget+carried, urgency)
			if keep == nil {
				return nil
			}
			next := link.clone()
			rest := next.move(r, keep, plan.bytes(keep)-(r.free-carried))
			if carried -= rest; rest == 0 || carried <= 0 || round == linkRounds {
				link = next
				return keep
			}
		}
	})
	return stays, link.transfers()
}

// linkRounds is how often it is chosen what stays at a peak. The storages that it chooses have other sizes than those
// that fill the link's time, so after the first round less is taken to be copied.
const linkRounds = 3

// bytes returns the sum of the sizes of storages.
func (p *Plan) bytes(storages []bool) (sum int64) {
	for s, in := range storages {
		if in {
			sum += p.sizes[s]
		}
	}
	return sum
}

// clone returns a copy that can be changed apart.
func (l *linkSchedule) clone() *linkSchedule {
	c := *l
	c.out, c.moved, c.due = slices.Clone(l.out), slices.Clone(l.moved), slices.Clone(l.due)
	return &c
}
