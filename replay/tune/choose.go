package tune

import (
	"cmp"
	"math"
	"slices"
)

const (
	pricePerKey = 0.01     // the part of the memory that each key of a setting must save
	minSaving   = 40 << 20 // bytes that a setting must save in some recording: two of PyTorch's segments
	harmless    = 1.01     // as a multiple of the memory that the recorded settings need for a recording
)

// A judge chooses among the settings that were tried on each of its groups: the whole recordings, and perhaps the
// halves, so that a setting is not chosen for a single peak.
type judge []*group

// A grade is how good a setting is for some works.
type grade struct {
	fits  int     // number of recordings that fit into their limits
	harms bool    // a recording needs more than with the recorded settings
	cost  float64 // needed memory over the lower bound, averaged and with the price of the keys, in steps of 0.1 %
	time  float64 // of driver calls without a limit, in seconds
}

// grade returns the grade of a trial, by its index, for some works. Works that no setting completes do not count.
func (j judge) grade(trial int, on []int) (r grade) {
	whole := j[0]
	for _, i := range on {
		n, recorded := &whole.trial(trial).Needs[i], whole.recorded.Needs[i].Bytes
		if n.Fits {
			r.fits++
		}
		if recorded > 0 && (n.Bytes < 0 || float64(n.Bytes) > harmless*float64(recorded)) {
			r.harms = true
		}
		if n.Free.Later != nil {
			r.time += n.Free.Later.DriverTime.Seconds()
		}
	}
	counted := 0
	for _, g := range j {
		t := g.trial(trial)
		for _, i := range on {
			if g.bounds[i] == 0 || !g.possible(i) {
				continue
			}
			counted++
			if r.cost += float64(t.Needs[i].Bytes) / float64(g.bounds[i]); t.Needs[i].Bytes < 0 {
				r.cost = math.Inf(1)
			}
		}
	}
	r.cost /= float64(max(counted, 1))
	if trial != recordedTrial {
		r.cost *= 1 + pricePerKey*float64(whole.trials[trial].keys)
	}
	r.cost = math.Round(1000*r.cost) / 1000
	return r
}

// possible reports whether some setting completes a work.
func (g *group) possible(work int) bool {
	completes := func(t *Trial) bool { return t.Needs[work].Bytes > 0 }
	return completes(g.recorded) || slices.ContainsFunc(g.trials, completes)
}

// compare returns a negative number if a is better than b, and a positive one if it is worse.
func (a grade) compare(b grade) int {
	harms := func(g grade) int {
		if g.harms {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b.fits, a.fits), cmp.Compare(harms(a), harms(b)), cmp.Compare(a.cost, b.cost),
		cmp.Compare(a.time, b.time))
}

// order returns the indices of the trials, the best for some works first.
func (j judge) order(on []int) []int {
	order := all(len(j[0].trials))
	grades := make([]grade, len(order))
	for i := range grades {
		grades[i] = j.grade(i, on)
	}
	slices.SortStableFunc(order, func(a, b int) int { return grades[a].compare(grades[b]) })
	return order
}

// recordedTrial is the index of the recorded settings among trials.
const recordedTrial = -1

// choose returns the index of the trial to recommend for some works. Equal memory for less time of the driver is no
// reason to change the recorded settings.
func (j judge) choose(on []int) int {
	order := j.order(on)
	if len(order) == 0 {
		return recordedTrial
	}
	best, recorded := j.grade(order[0], on), j.grade(recordedTrial, on)
	switch {
	case best.fits > recorded.fits:
		return order[0]
	case best.fits < recorded.fits, best.harms, best.cost >= recorded.cost, !j[0].worthwhile(order[0], on):
		return recordedTrial
	}
	return order[0]
}

// worthwhile reports whether a trial saves a notable number of bytes in one of some works.
func (g *group) worthwhile(trial int, on []int) bool {
	return slices.ContainsFunc(on, func(i int) bool {
		before, after := g.recorded.Needs[i].Bytes, g.trials[trial].Needs[i].Bytes
		return after > 0 && (before < 0 || before-after >= minSaving)
	})
}

// trial returns the trial of an index.
func (g *group) trial(index int) *Trial {
	if index == recordedTrial {
		return g.recorded
	}
	return g.trials[index]
}

// best returns the best setting that is not in expanded.
func (j judge) best(expanded map[setting]bool) (best setting, ok bool) {
	for _, i := range j.order(all(len(j[0].works))) {
		if c := j[0].settings[i]; !expanded[c] {
			return c, true
		}
	}
	return best, false
}

// saving returns the part of the memory that t saves compared to recorded, averaged over the works that both complete.
func saving(recorded, t *Trial, on []int) float64 {
	sum, n := 0.0, 0
	for _, i := range on {
		if a, b := recorded.Needs[i].Bytes, t.Needs[i].Bytes; a > 0 && b > 0 {
			sum += 1 - float64(b)/float64(a)
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// all returns the indices below n.
func all(n int) []int {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i
	}
	return indices
}
