package remat

import (
	"errors"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// steps are the repetitions of a program.
type steps struct {
	count   int
	inside  bool
	plan    *schedule.Plan // nil until a step was recorded
	planned int64          // steps that followed the plan to the end
}

// Step runs f, one repetition of a program that repeats, such as a training step. The first times the operations and
// the second is recorded. From the third on the runtime knows when each tensor is read next, and chooses by that what
// to evict and what to copy. If a step runs other operations than the recorded one, the runtime goes on without a plan,
// and records the next step again. Step returns the error of f. Steps do not nest; calls outside of steps are not
// planned.
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
	s.inside = true
	switch s.count++; {
	case s.plan != nil:
		r.engine.Follow(s.plan)
	case s.count > 1:
		r.engine.Record()
	}
	return nil
}

func (r *core) endStep(failed bool) {
	r.lock("Step")
	defer r.unlock()
	s := &r.steps
	s.inside = false
	if s.plan != nil {
		if r.engine.Unfollow() {
			s.planned++
		} else if !failed {
			s.plan = nil
		}
		return
	}
	if p := r.engine.Recorded(); p != nil && !failed {
		s.plan = schedule.MakePlan(p)
	}
}
