package schedule

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// A PlanConfig says how a planned program will run.
type PlanConfig struct {
	Budget    int64 // bytes; 0 means no limit
	Link      Link
	HostLimit int64
	// Effort is how many operations are simulated in search of a better plan; 0 is defaultEffort, less than 0 none.
	Effort int
	Stop   <-chan struct{} // ends the search early when it is closed; nil is never
}

const (
	defaultEffort = 1_500_000 // some seconds
	linkEffort    = 6         // what an operation counts if copies are simulated too
	poolEffort    = 256       // evictable storages among which a choice counts as an operation
	triesForEach  = 2         // plans with other weights of single storages, for each operation
	leastTries    = 200
	maxPeaks      = 16 // moments for which it is chosen what stays
	mostChange    = 5  // the logarithm of the largest change of a weight
	slowest       = 10 // simulations end after this many times the time with unlimited memory
)

// portfolio are the weights that are tried.
var portfolio = []weights{
	{0.3, 0.03, 0.5},
	{0, 0, 0.25},
	{1, 0, 0.25},
	{1, 0.1, 1},
	{0.3, 0, 0.25},
	{0.3, 0, 0.5},
	{1, 0.3, 0.5},
	{0, 0, 0.5},
	{0.3, 0, 1},
	{0.3, 0.1, 0.5},
	{1, 0, 0.5},
	{0.3, 0.1, 1},
	{1, 1, 1},
	{3, 3, 1},
}

// choices are ways to choose what stays in memory at a peak. What is made again later needs room too, so it may be
// better to keep less than fits, or above all what is read soon.
var choices = []struct{ share, urgency float64 }{
	{0.9, 0}, {1, 0}, {0.8, 0}, {1, 0.3}, {1, 1}, {1.05, 0}, {0.7, 0}, {0.95, 0}, {1, 0.1}, {0.9, 0.1},
}

// MakePlan returns the plan of a program: what is known of its future, and what it takes to run it in little time. The
// search simulates the program with candidates and keeps the best. It never is worse than the policy without a plan. If
// results may be copied to the host, it never is worse than the best plan without copies, which it has beside it.
func MakePlan(p *Program, c PlanConfig) *Plan {
	plan := timetable(p)
	if c.Effort == 0 {
		c.Effort = defaultEffort
	}
	if c.Budget <= 0 || len(plan.ops) == 0 || c.Effort < 0 {
		return plan
	}
	s := &search{program: p, config: c, least: slowest * plan.clock[len(plan.ops)], best: plan}
	s.config.Link = Link{}
	s.all(plan)
	if c.Link.BytesPerSecond > 0 {
		s.config.Link = c.Link
		s.copying()
	}
	return s.best
}

// A search looks for the plan with the least time.
type search struct {
	program *Program
	config  PlanConfig
	effort  int // operations that may still be simulated
	best    *Plan
	least   int64     // its time in ns
	made    remakings // that it takes
	last    remakings // of the last simulation
	needed  []int64   // in it, when each storage that was copied back was read
}

// remakings are the storages that a simulation made again, by number, and the time until after each of them.
type remakings struct {
	storages []int32
	ns       []int64
}

// all tries variants of a plan: the policy without it, other weights, what stays at the peaks, and single storages.
func (s *search) all(plan *Plan) {
	s.effort = s.config.Effort
	online := *plan
	online.online = true
	s.try(&online)
	all := append([]weights{plan.weights}, portfolio...)
	for _, w := range all {
		s.vary(plan, w, plan.stays)
	}
	chosen := make([][]stay, len(choices))
	for _, w := range append([]weights{s.best.weights}, all...) {
		for i, c := range choices {
			if chosen[i] == nil {
				chosen[i] = s.stays(plan, c.share, c.urgency)
			}
			s.vary(plan, w, chosen[i])
		}
	}
	s.improve()
}

// vary tries a plan with other weights, unless most of the effort was spent.
func (s *search) vary(plan *Plan, w weights, stays []stay) {
	if s.effort < s.config.Effort/4 {
		return
	}
	next := *plan
	next.weights, next.stays = w, stays
	s.try(&next)
}

// stays returns what stays in memory at the peaks of a plan, if so much of the budget is taken for it.
func (s *search) stays(plan *Plan, share, urgency float64) []stay {
	return s.atPeaks(plan, func(at int32) []bool {
		keep, _ := s.relax(plan, at, int64(share*float64(s.config.Budget)), urgency)
		return keep
	})
}

// atPeaks returns what stays at the peaks of a plan, where choose returns something.
func (s *search) atPeaks(plan *Plan, choose func(at int32) []bool) []stay {
	peaks := plan.peaks(s.config.Budget)
	stays := []stay{}
	for i, at := range peaks[:min(len(peaks), maxPeaks)] {
		if s.effort < s.config.Effort/4 || s.stopped() {
			break
		}
		if i == maxPeaks-1 {
			at = peaks[len(peaks)-1]
		}
		if keep := choose(at); keep != nil {
			stays = append(stays, stay{at, keep})
		}
	}
	return stays
}

// relax returns what stays in memory at an operation, or nil if there is no room, with the relaxation.
func (s *search) relax(plan *Plan, at int32, budget int64, urgency float64) ([]bool, *relaxation) {
	s.effort -= priceRounds * len(plan.ops) / poolEffort
	r := relax(plan, at, budget)
	r.urgency = urgency
	keep, _ := r.solve()
	return keep, r
}

// stopped reports whether the search shall end.
func (s *search) stopped() bool {
	select {
	case <-s.config.Stop:
		s.effort = 0
		return true
	default:
		return false
	}
}

// try simulates a plan and keeps it if it is no worse.
func (s *search) try(p *Plan) { s.keep(p, s.simulate(p, s.least)) }

// keep keeps a plan that was simulated if it is no worse.
func (s *search) keep(p *Plan, time int64) {
	if time <= s.least {
		s.best, s.least = p, time
		s.made, s.last = s.last, s.made
	}
}

// improve changes the weights of single storages at random, and keeps what helps: larger ones for those that took much
// time to make again, and less for large ones.
func (s *search) improve() {
	rng := rand.New(rand.NewPCG(1, 1))
	var bytes []int64
	sum := int64(0)
	for _, size := range s.best.sizes {
		sum += size
		bytes = append(bytes, sum)
	}
	for range max(triesForEach*len(s.best.ops), leastTries) {
		if s.effort <= 0 || len(s.made.storages) == 0 {
			return
		}
		next := *s.best
		next.online = false
		next.bias = slices.Clone(next.bias)
		if next.bias == nil {
			next.bias = slices.Repeat([]float64{1}, len(next.uses))
		}
		kind := rng.IntN(3)
		for range 1 + rng.IntN(2) {
			if kind > 0 {
				next.bias[s.made.storages[draw(rng, s.made.ns)]] *= math.Exp(mostChange * rng.Float64())
			}
			if kind < 2 {
				next.bias[draw(rng, bytes)] /= math.Exp(mostChange * rng.Float64())
			}
		}
		s.try(&next)
	}
}

// draw returns an index with a probability in proportion to its share of the sums of all up to each.
func draw(rng *rand.Rand, sums []int64) int {
	i, found := slices.BinarySearch(sums, rng.Int64N(sums[len(sums)-1]))
	if found {
		i++ // the sum is exclusive
	}
	return i
}

// simulate returns the time that the program takes with a plan, or more than the limit if that is longer.
func (s *search) simulate(p *Plan, limit int64) int64 {
	x := &stopwatch{search: s, limit: limit}
	x.e = New(Config{Budget: s.config.Budget, Link: s.config.Link, HostLimit: s.config.HostLimit}, x)
	s.last.storages, s.last.ns = s.last.storages[:0], s.last.ns[:0]
	x.e.Follow(p)
	err := s.program.Run(x.e)
	s.needed = x.e.follow.needed
	if stats := x.e.Stats(); err == nil {
		return stats.ComputeNs + stats.StallNs
	}
	return math.MaxInt64
}

// A stopwatch is an executor that has no contents and ends a simulation that takes too long.
type stopwatch struct {
	*search
	e         *Engine
	limit     int64
	decisions int64
}

var (
	errSlow    = errors.New("slower than the best plan")
	errStopped = errors.New("the search was stopped")
)

func (x *stopwatch) Compute(r *Run) (int64, error) {
	stats := x.e.Stats()
	x.effort -= 1 + int(stats.Decisions-x.decisions)*len(x.e.pool)/poolEffort
	x.decisions = stats.Decisions
	if x.e.copies() && x.e.transfers() == nil {
		x.effort -= linkEffort - 1
	}
	if x.stopped() {
		return 0, errStopped
	}
	if stats.ComputeNs+stats.StallNs > x.limit {
		return 0, errSlow
	}
	if r.Again {
		x.note(r)
	}
	return 0, nil
}

// note notes the storages that are made again.
func (x *stopwatch) note(r *Run) {
	for i, s := range r.Storages {
		if n := x.e.follow.numberOf(s); n != None && r.Keep[i] {
			before := int64(0)
			if k := len(x.last.ns); k > 0 {
				before = x.last.ns[k-1]
			}
			x.last.storages = append(x.last.storages, n)
			x.last.ns = append(x.last.ns, before+max(x.e.ops[r.Op].cost, 1))
		}
	}
}

func (x *stopwatch) Drop(Storage)          {}
func (x *stopwatch) ForgetStorage(Storage) {}
func (x *stopwatch) ForgetOp(Op)           {}
