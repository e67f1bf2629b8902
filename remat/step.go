package remat

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// steps are the repetitions of a program.
type steps struct {
	count   int
	inside  bool
	plan    *schedule.Plan // nil until a step was recorded, and its plan made
	making  *planning      // the plan that is being made, or nil
	planned int64          // steps that followed the plan to the end
	trial   trial
}

// Step runs f, one repetition of a program that repeats, such as a training step. The first times the operations and
// the second is recorded. Then a plan is made, on a goroutine of its own, with simulations that take some seconds of a
// processor's time, and up to half a minute for steps of 10,000 operations; steps go on without it until it is ready
// (see WaitForPlan). From then on the runtime knows when each tensor is read next, and chooses by that what to evict
// and what to copy. It times the first planned steps, with and without the plan and copies to the host, and goes on
// with what is fastest. If a step runs other operations than the recorded one, the runtime goes on without a plan, and
// records the next step again. Step returns the error of f. Steps do not nest; calls outside of steps are not planned.
func (r *Runtime) Step(f func() error) (err error) {
	if err := r.beginStep(); err != nil {
		return err
	}
	failed := true
	defer func() { r.endStep(failed) }() // also if f panics
	err = f()
	failed = err != nil
	return err
}

func (r *core) beginStep() error {
	r.lock("Step")
	defer r.unlock()
	s := &r.steps
	if s.inside {
		return errors.New("remat: Step inside a step")
	}
	s.takePlan()
	s.inside = true
	s.count++
	s.trial.poll(r.costs.timing)
	mode := online
	if s.plan != nil {
		mode = s.trial.choose(r.spill != nil)
	}
	r.engine.PauseCopies(mode == plannedWithoutCopies || mode == onlineWithoutCopies)
	switch {
	case mode == planned || mode == plannedWithoutCopies:
		r.engine.Follow(s.plan)
	case s.plan == nil && s.count > 1 && s.making == nil:
		r.engine.Record()
	}
	s.trial.begin(r.costs.timing, r.costs.stream, mode)
	return nil
}

// WaitForPlan waits until the plan of the recorded step is made, if it is being made: the next step follows it.
// Programs need not call it. It makes the steps of a short program or of a measurement comparable.
func (r *core) WaitForPlan() {
	r.lock("WaitForPlan")
	p := r.steps.making
	r.unlock()
	if p != nil {
		<-p.done
	}
}

// takePlan takes the plan that is being made, if it is ready. It panics if making it did.
func (s *steps) takePlan() {
	if p := s.making; p != nil && p.ready() {
		s.making = nil
		if p.err != nil {
			panic(p.err)
		}
		s.plan = p.plan
	}
}

func (r *core) endStep(failed bool) {
	r.lock("Step")
	defer r.unlock()
	s := &r.steps
	s.inside = false
	followed := r.engine.Unfollow()
	s.trial.end(r.costs.timing, r.costs.stream, !failed && s.count > 1)
	r.engine.PauseCopies(false)
	switch mode := s.trial.mode; {
	case s.plan == nil:
		if p := r.engine.Recorded(); p != nil && !failed {
			c := r.engine.Planning()
			s.making = startPlanning(func(stop <-chan struct{}) *schedule.Plan {
				c.Stop = stop
				return schedule.MakePlan(p, c)
			})
		}
	case followed:
		s.planned++
	case !failed && (mode == planned || mode == plannedWithoutCopies): // it departed
		s.plan = nil
		s.trial.forget(r.costs.timing)
	}
}

// The modes of a step.
const (
	online = iota
	planned
	plannedWithoutCopies
	onlineWithoutCopies
	modes
)

// enoughSteps is the number of steps that are timed in a mode. The least time counts.
const enoughSteps = 2

// A trial finds the fastest mode by the device's clock.
type trial struct {
	mode     int          // of the present step, or of the last
	started  [modes]int   // steps that were or will be timed
	least    [modes]int64 // ns; 0 before a step of the mode was timed
	from, to driver.Stamp
	running  bool // from is taken
	pending  bool // from and to are taken
	of       int  // their mode
}

// choose returns the mode of the next step: one that was not timed enough, or the fastest.
func (t *trial) choose(copies bool) int {
	best := planned
	for _, mode := range []int{planned, plannedWithoutCopies, onlineWithoutCopies, online} {
		if !copies && (mode == plannedWithoutCopies || mode == onlineWithoutCopies) {
			continue
		}
		if t.started[mode] < enoughSteps && mode != online {
			return mode
		}
		if t.least[mode] != 0 && (t.least[best] == 0 || t.least[mode] < t.least[best]) {
			best = mode
		}
	}
	return best
}

// begin starts a step. It is timed if its mode was not timed enough.
func (t *trial) begin(timing driver.Timing, s driver.Stream, mode int) {
	t.mode = mode
	if timing == nil || t.pending || t.started[mode] >= enoughSteps {
		return
	}
	if from, err := timing.Stamp(s); err == nil {
		t.from, t.running = from, true
	}
}

// end ends a step. It does not count if it is not valid.
func (t *trial) end(timing driver.Timing, s driver.Stream, valid bool) {
	if !t.running {
		return
	}
	t.running = false
	t.started[t.mode]++
	to, err := timing.Stamp(s)
	if err != nil || !valid {
		timing.Discard(t.from)
		if err == nil {
			timing.Discard(to)
		}
		return
	}
	t.to, t.of, t.pending = to, t.mode, true
}

// poll takes the time of the last step that was timed, if the device has done it.
func (t *trial) poll(timing driver.Timing) {
	if !t.pending {
		return
	}
	took, err := timing.Elapsed(t.from, t.to)
	if errors.Is(err, driver.ErrNotReady) {
		return
	}
	if ns := max(took.Nanoseconds(), 1); err == nil && (t.least[t.of] == 0 || ns < t.least[t.of]) {
		t.least[t.of] = ns
	}
	t.discard(timing)
}

// discard forgets a step whose time was not taken.
func (t *trial) discard(timing driver.Timing) error {
	if !t.pending {
		return nil
	}
	t.pending = false
	return errors.Join(timing.Discard(t.from), timing.Discard(t.to))
}

// forget starts the trial again.
func (t *trial) forget(timing driver.Timing) {
	t.discard(timing)
	*t = trial{}
}
