package schedule

import (
	"errors"
	"math"
	"math/rand/v2"
)

// A PlanConfig says how a planned program will run.
type PlanConfig struct {
	Budget    int64 // bytes; 0 is no limit
	Link      Link
	HostLimit int64
	// Effort is how many operations are simulated in search of a better plan; 0 is defaultEffort, less than 0 none.
	Effort int
	Stop   <-chan struct{} // ends the search early when it is closed; nil is never
}

const (
	defaultEffort = 300_000 // about a second
	linkEffort    = 6       // what an operation counts if copies are simulated too
	maxTries      = 400     // plans with other weights of single storages
	slowest       = 10      // simulations end after this many times the time with unlimited memory
)

// portfolio are the weights that are tried.
var portfolio = []weights{
	defaultWeights,
	{0.3, 0, 0.25},
	{0, 0, 0.25},
	{1, 0, 0.25},
	{0.3, 0, 0.5},
	{0, 0, 0.5},
	{1, 0, 0.5},
	{0.3, 0.1, 0.5},
	{1, 0.3, 0.5},
	{0.3, 0, 1},
	{0.3, 0.1, 1},
	{1, 0.1, 1},
	{1, 1, 1},
	{0.3, 0.03, 0.1},
}

// MakePlan returns the plan of a program: what is known of its future, and weights of the policy and of single
// storages with which it took the least time when it was simulated.
func MakePlan(p *Program, c PlanConfig) *Plan {
	s := &search{program: p, config: c, best: timetable(p), effort: c.Effort}
	if s.effort == 0 {
		s.effort = defaultEffort
	}
	if c.Budget <= 0 || len(s.best.ops) == 0 || s.effort < 0 {
		return s.best
	}
	s.least = slowest * s.best.clock[len(s.best.ops)]
	s.try(s.best)
	for _, w := range portfolio[1:] {
		if s.effort <= 0 {
			break
		}
		next := *s.best
		next.weights = w
		s.try(&next)
	}
	s.improve()
	return s.best
}

// A search looks for the plan with the least time.
type search struct {
	program *Program
	config  PlanConfig
	effort  int // operations that may still be simulated
	best    *Plan
	least   int64   // its time in ns
	evicted []int32 // the storages that it evicts, by number
	last    []int32 // the same of the last simulation
}

// try simulates a plan and keeps it if it is no worse.
func (s *search) try(p *Plan) bool {
	time := s.simulate(p)
	if time > s.least {
		return false
	}
	s.best, s.least = p, time
	s.evicted = append(s.evicted[:0], s.last...)
	return true
}

// improve changes the weights of single storages at random, and keeps what helps.
func (s *search) improve() {
	rng := rand.New(rand.NewPCG(1, 1))
	for range maxTries {
		if s.effort <= 0 || len(s.evicted) == 0 {
			return
		}
		next := *s.best
		next.bias = make([]float64, len(s.best.uses))
		for i := range next.bias {
			next.bias[i] = 1
		}
		copy(next.bias, s.best.bias)
		for range 1 + rng.IntN(2) {
			change := math.Exp(3 * rng.Float64())
			if rng.IntN(2) == 0 {
				next.bias[s.evicted[rng.IntN(len(s.evicted))]] *= change
			} else {
				next.bias[rng.IntN(len(next.bias))] /= change
			}
		}
		s.try(&next)
	}
}

// simulate returns the time that the program takes with a plan, or more than the least known time if that is longer.
func (s *search) simulate(p *Plan) int64 {
	x := &stopwatch{search: s, limit: s.least}
	x.e = New(Config{Budget: s.config.Budget, Link: s.config.Link, HostLimit: s.config.HostLimit}, x)
	s.last = s.last[:0]
	x.e.Follow(p)
	err := s.program.Run(x.e)
	if stats := x.e.Stats(); err == nil {
		return stats.ComputeNs + stats.StallNs
	}
	return math.MaxInt64
}

// A stopwatch is an executor that has no contents and ends a simulation that takes too long.
type stopwatch struct {
	*search
	e     *Engine
	limit int64
}

var (
	errSlow    = errors.New("slower than the best plan")
	errStopped = errors.New("the search was stopped")
)

func (x *stopwatch) Compute(*Run) (int64, error) {
	if x.effort--; x.config.Link.BytesPerSecond > 0 {
		x.effort -= linkEffort - 1
	}
	select {
	case <-x.config.Stop:
		x.effort = 0
		return 0, errStopped
	default:
	}
	if stats := x.e.Stats(); stats.ComputeNs+stats.StallNs > x.limit {
		return 0, errSlow
	}
	return 0, nil
}

func (x *stopwatch) Drop(s Storage) {
	f := &x.e.follow
	if int(s) < len(f.number) && f.number[s] != None && x.e.storages[s].refs > 0 {
		x.last = append(x.last, f.number[s])
	}
}

func (x *stopwatch) ForgetStorage(Storage) {}
func (x *stopwatch) ForgetOp(Op)           {}
