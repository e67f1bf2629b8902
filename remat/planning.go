package remat

import (
	"fmt"
	"runtime/debug"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// A planning is a plan that is being made, on a goroutine of its own.
type planning struct {
	stop chan struct{} // closed to end it early
	done chan struct{} // closed when it has ended; then the others are valid
	plan *schedule.Plan
	err  error // of a panic
}

// startPlanning starts to make a plan. The function returns soon after stop is closed.
func startPlanning(search func(stop <-chan struct{}) *schedule.Plan) *planning {
	p := &planning{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer func() {
			if v := recover(); v != nil {
				p.err = fmt.Errorf("remat: panic while a plan was made: %v\n\n%s", v, debug.Stack())
			}
		}()
		p.plan = search(p.stop)
	}()
	return p
}

// ready reports whether the plan is made, without waiting.
func (p *planning) ready() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// cancel ends the planning and waits for its goroutine. It returns the error of a panic.
func (p *planning) cancel() error {
	if p == nil {
		return nil
	}
	close(p.stop)
	<-p.done
	return p.err
}
