package memtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkFaults runs short histories once for every driver call that the allocator makes in them. Each time that call
// fails, alone or with all later calls of the history; a failed call does nothing. The allocator must not panic, must
// return an error if it cannot serve a request, and must still agree with the model. As soon as the device works again,
// the failed operations must succeed. At the end no memory may be lost.
func checkFaults(t testing.TB, cfg Config) {
	failures := int64(0)
	for i, v := range []struct {
		tight, onwards bool
		code           error
	}{
		{false, false, nil},
		{true, false, nil},
		{false, true, nil},
		{true, true, nil},
		{false, false, driver.ErrNoMemory},
		{true, false, driver.ErrInvalid},
	} {
		cfg := cfg
		cfg.Seed += uint64(i)
		h := generate(cfg, cfg.Seed, cfg.FaultOps, 12)
		for j := 9; j < len(h); j += 10 { // more memory to free than usual
			h[j] = op{kind: opEmpty}
		}
		failures += h.failEach(t, cfg, v.tight, fault.Rule{Onwards: v.onwards, Code: v.code})
	}
	t.Logf("%d driver calls have failed, each in a run of its own", failures)
}

// failEach runs a history once for every driver call that the allocator makes in it; the call fails by the rule for its
// number. It returns the number of calls.
func (h history) failEach(t testing.TB, cfg Config, tight bool, rule fault.Rule) int64 {
	t.Helper()
	for {
		rule.Nth++
		fired := false
		run := func(h history) *failure { return h.runFailing(t, cfg, tight, rule, &fired) }
		if f := run(h); f != nil {
			t.Fatalf("seed %d, tight %v: driver call %d of the allocator fails (onwards %v, code %v):\n%s",
				cfg.Seed, tight, rule.Nth, rule.Onwards, rule.Code, shrink(h, run, f))
		}
		if !fired {
			return rule.Nth - 1
		}
	}
}

// runFailing runs a history in a new world, in which driver calls made by the allocator fail by a rule with an Nth.
func (h history) runFailing(t testing.TB, cfg Config, tight bool, rule fault.Rule, fired *bool) *failure {
	in := injector{rule: rule}
	r := runner{tolerate: in.tolerate}
	reason := try(t, func(t testing.TB) {
		w := newModel(t, cfg, func(d driver.Device) driver.Device {
			in.dev = fault.Wrap(d)
			return in.dev
		})
		if tight {
			w.reserveMemory(t, 3*cfg.MaxBlock)
		}
		w.callWrapper, in.model = in.call, w
		testkit.Must(t, in.run(&r, w, h))
	})
	*fired = in.failed > 0
	if reason == "" {
		return nil
	}
	return &failure{at: r.at, script: r.script(h), reason: reason}
}

// An injector makes driver calls of the allocator fail by a rule.
type injector struct {
	dev     *fault.Device
	model   *model
	rule    fault.Rule
	calls   int64 // number of calls of the allocator
	failed  int64 // number of failed calls
	last    int64 // number of failed calls in the last call of the allocator
	lost    bool  // the allocator has reported lost contents
	stopped bool  // no more failures
}

func (in *injector) call(call func()) {
	rule := in.rule
	rule.Nth -= in.calls
	if rule.Nth < 1 && rule.Onwards {
		rule.Nth = 1
	}
	if in.stopped || rule.Nth < 1 {
		in.dev.SetRules()
	} else {
		in.dev.SetRules(rule)
	}
	call()
	in.last = in.dev.Failed()
	in.calls += in.dev.Calls()
	in.failed += in.last
	in.dev.SetRules()
}

// tolerate reports whether the allocator had a reason to fail, and returned it.
func (in *injector) tolerate(err error) bool {
	if errors.Is(err, mem.ErrContentsLost) {
		return in.tolerateLoss()
	}
	if in.last == 0 {
		return false
	}
	var e *driver.Error
	return errors.As(err, &e) || errors.Is(err, mem.ErrNoMemory)
}

// tolerateLoss reports whether an allocator may lose contents of blocks, or refuse a move because it has: only where all
// calls fail, those that undo a move too. The blocks are those of the move.
func (in *injector) tolerateLoss() bool {
	if !in.lost && in.rule.Onwards && in.last > 0 {
		in.lost = true
		in.model.loseContents()
	}
	return in.lost
}

// run is runner.run, but repeats failed operations.
func (in *injector) run(r *runner, w *model, h history) error {
	r.users = map[int][]int{}
	for i, o := range h {
		r.at = i
		in.last = 0
		if err := r.step(w, o); err != nil {
			return err
		}
		if err := w.checkReports(false); err != nil {
			return err
		}
		// If only one call fails, the device works again, and so must the failed operation.
		undone := o.kind == opAlloc && w.numbers[o.block] == nil || o.kind == opEmpty || o.kind == opCompact
		if in.last > 0 && undone && !in.rule.Onwards {
			if err := r.step(w, o); err != nil {
				return fmt.Errorf("again, with no call failing: %w", err)
			}
		}
	}
	r.at = len(h)
	in.stopped = true
	return w.finish()
}
