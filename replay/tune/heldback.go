package tune

import (
	"slices"

	"github.com/ashlar-go/ashlar/replay"
)

// minHalf is the number of ops from which a half of a recording is worth a check.
const minHalf = 100

// divisible reports whether the works are long enough for checks with halves.
func divisible(works []*replay.Work) bool {
	return !slices.ContainsFunc(works, func(w *replay.Work) bool { return len(w.Program.Ops) < 2*minHalf })
}

// halve tries the settings of whole on the first halves of the recordings, and on the second ones.
func (s *searcher) halve(whole *group) (halves []*group, err error) {
	for half := range 2 {
		g := &group{budgets: whole.budgets, halves: true}
		for _, w := range whole.works {
			n := len(w.Program.Ops)
			g.works = append(g.works, w.Part(half*(n/2), n/2+half*(n-n/2)))
		}
		if err := s.open(g); err != nil {
			return nil, err
		}
		if err := s.add(g, whole.settings); err != nil {
			return nil, err
		}
		halves = append(halves, g)
	}
	return halves, nil
}

// checks chooses settings without a part of the recordings, and returns what they save there: without each recording,
// and without each half of all.
func (j judge) checks() (checks []Check) {
	n := len(j[0].works)
	for i := range n {
		rest := slices.Delete(all(n), i, i+1)
		if len(rest) > 0 {
			checks = append(checks, j.check(j[0], j.choose(rest), Check{Work: i}, []int{i}))
		}
	}
	if len(j) == 1 {
		return checks
	}
	first, second := j[1], j[2]
	return append(checks,
		j.check(second, judge{first}.choose(all(n)), Check{Part: SecondHalf, Work: -1}, all(n)),
		j.check(first, judge{second}.choose(all(n)), Check{Part: FirstHalf, Work: -1}, all(n)))
}

// check completes a check: the chosen trial, by its index, on the works that were held back.
func (j judge) check(held *group, chosen int, c Check, on []int) Check {
	c.Chosen = j[0].trial(chosen)
	t := held.trial(chosen)
	c.Saving = saving(held.recorded, t, on)
	c.Complete = !slices.ContainsFunc(on, func(i int) bool {
		return t.Needs[i].Bytes < 0 && held.recorded.Needs[i].Bytes > 0
	})
	return c
}
