package tune

import (
	"math"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/replay"
)

// batch is the number of settings that are tried before the search looks at the results.
const batch = 6

// A searcher is the state of Search.
type searcher struct {
	opts   Options
	space  *space
	groups int // of works, for progress: whole recordings, first halves and second halves
	done   float64
}

// A group is works that settings are tried on together: the whole recordings, or a half of each.
type group struct {
	works    []*replay.Work  // without limits in their settings
	bounds   []int64         // lower bounds of the works in bytes
	budgets  []time.Duration // of the driver in the later part of each work: see within
	halves   bool
	recorded *Trial
	settings []setting // that were tried
	trials   []*Trial  // by setting
}

// open runs the recorded settings on a new group.
func (s *searcher) open(g *group) error {
	for _, w := range g.works {
		g.bounds = append(g.bounds, w.Program.LowerBound())
	}
	trials, err := s.try(g, []string{replay.AsRecorded})
	if err == nil {
		g.recorded = trials[0]
	}
	return err
}

// unlimited is a budget that allows everything.
const unlimited = time.Duration(math.MaxInt64)

// budget returns the budget for a work: that of the options, or the driver's time in the whole recording with the
// recorded settings if that is more. In a short recording a part of the time may be less than a single call takes.
func (s *searcher) budget(w *replay.Work) (time.Duration, error) {
	row, err := replay.Simulate(w, replay.AsRecorded, s.opts.LimitOf(w), s.opts.Capacity)
	if err == nil && !row.Completed() {
		row, err = replay.Simulate(w, replay.AsRecorded, 0, s.opts.Capacity)
	}
	switch l := row.Later; {
	case err != nil:
		return 0, err
	case s.opts.Budget.Time > 0 && l != nil:
		return max(s.opts.Budget.Time, row.DriverTime), nil
	case l == nil || l.Recorded == 0:
		return unlimited, nil
	default:
		return max(time.Duration(s.opts.Budget.Part*float64(l.Recorded)), row.DriverTime), nil
	}
}

// try runs specs on the works of a group.
func (s *searcher) try(g *group, specs []string) ([]*Trial, error) {
	var searches []replay.LimitSearch
	for _, spec := range specs {
		for i, w := range g.works {
			searches = append(searches, replay.LimitSearch{
				Work: w, Spec: spec, Limit: s.opts.LimitOf(w), Accept: g.within(i),
			})
		}
	}
	weight := float64(len(specs)) / float64(s.opts.Tries+1) / float64(s.groups)
	found, err := replay.SearchLimits(searches, replay.LimitOptions{
		Capacity: s.opts.Capacity,
		Progress: func(done float64) { s.report(s.done + weight*done) },
	})
	if err != nil {
		return nil, err
	}
	s.done += weight
	trials := make([]*Trial, len(specs))
	for t := range trials {
		trials[t] = &Trial{keys: 1}
		for i := range g.works {
			n := t*len(g.works) + i
			need := Need{Bytes: found[n].Limit, FoundLimit: found[n]}
			if need.Limit > 0 {
				need.Bytes = max(need.Limit, need.Smallest.ReservedPeak)
			}
			within := need.Limited.Completed() && searches[n].Accept(&need.Limited)
			if s.opts.Limit > 0 {
				within = within && need.Limited.ReservedPeak <= s.opts.Limit
			}
			need.Fits = within || need.Bytes > 0 && need.Bytes <= searches[n].Limit
			trials[t].Needs = append(trials[t].Needs, need)
		}
	}
	return trials, nil
}

// within returns a condition for the searches of a limit for a work: the driver takes no more time than the budget. A
// half begins with an empty cache, so its driver calls are mostly those that fill the cache, and the budget bounds the
// time that a limit adds.
func (g *group) within(work int) func(*replay.Row) bool {
	budget, first := g.budgets[work], true
	return func(r *replay.Row) bool {
		if r.Later == nil || budget == unlimited {
			return true
		}
		if g.halves && first {
			budget += r.Later.DriverTime
		}
		first = false
		return r.Later.DriverTime <= budget
	}
}

func (s *searcher) report(done float64) {
	if s.opts.Progress != nil {
		s.opts.Progress(min(done, 1))
	}
}

// climb tries settings on a group: single keys first, then the neighbors of the best settings.
func (s *searcher) climb(g *group) error {
	next := s.untried(g, s.space.start(g.works))
	for expanded := make(map[setting]bool); ; {
		if next = next[:min(len(next), s.opts.Tries-len(g.settings))]; len(next) > 0 {
			if err := s.add(g, next); err != nil {
				return err
			}
		}
		if len(g.settings) == s.opts.Tries {
			return nil
		}
		best, ok := judge{g}.best(expanded)
		if !ok {
			return nil // every setting was tried
		}
		next = s.untried(g, s.space.neighbors(best))
		next = next[:min(len(next), batch)]
		expanded[best] = len(next) == 0
	}
}

// untried returns the settings that are left to try on a group.
func (s *searcher) untried(g *group, settings []setting) []setting {
	return slices.DeleteFunc(settings, func(c setting) bool {
		return slices.Contains(g.settings, c) || !s.space.valid(c) || s.space.recorded(c, g.works)
	})
}

// add tries settings on a group.
func (s *searcher) add(g *group, settings []setting) error {
	specs := make([]string, len(settings))
	for i, c := range settings {
		specs[i] = s.space.spec(c)
	}
	trials, err := s.try(g, specs)
	if err != nil {
		return err
	}
	for i, c := range settings {
		trials[i].Settings, trials[i].keys = c.text(), c.size()
	}
	g.settings, g.trials = append(g.settings, settings...), append(g.trials, trials...)
	return nil
}
