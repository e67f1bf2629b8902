package remat

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// during runs f with a runtime of which search makes a plan.
func during(t *testing.T, search func(stop <-chan struct{}) *schedule.Plan, f func(r *Runtime)) {
	t.Helper()
	dev := sim.New(sim.Options{})
	defer dev.Close()
	p, err := compute.On(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, err := New(p, Config{Budget: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r.steps.making = startPlanning(search)
	f(r)
}

func step(r *Runtime) error { return r.Step(func() error { return nil }) }

// Steps do not wait for a plan that is being made, and Close ends it.
func TestCloseEndsThePlanning(t *testing.T) {
	ended := false
	search := func(stop <-chan struct{}) *schedule.Plan {
		<-stop
		ended = true
		return nil
	}
	during(t, search, func(r *Runtime) {
		for range 3 {
			if err := step(r); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if !ended {
				t.Error("the planning goes on after Close")
			}
		}
	})
}

// A panic of the planner reaches the next step or, without one, the error of Close. The runtime can be used further.
func TestPanicsOfThePlanner(t *testing.T) {
	search := func(<-chan struct{}) *schedule.Plan { panic("a bug") }
	during(t, search, func(r *Runtime) {
		r.WaitForPlan()
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "a bug") {
					t.Errorf("the step panics with %v, want the panic of the planner", err)
				}
			}()
			step(r)
		}()
		for range 3 {
			if err := step(r); err != nil {
				t.Error(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	during(t, search, func(r *Runtime) {
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "a bug") {
			t.Errorf("Close returns %v, want the panic of the planner", err)
		}
	})
}
