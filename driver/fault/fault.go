// Package fault wraps a device and makes its calls fail by rule, so that a test can check how code handles each
// failure.
//
// This loop fails each call in turn, whatever their number:
//
//	d := fault.Wrap(inner)
//	for n := int64(1); ; n++ {
//		d.SetRules(fault.Rule{Nth: n})
//		work(d)
//		if d.Failed() == 0 {
//			break // n is beyond the last call
//		}
//	}
//
// The calls are those that package intercept names by its kinds: all that can return an error, except Device.Close, so
// that a test can always clean up. A call that fails does not reach the inner device: nothing is allocated, freed,
// queued, mapped, shared or closed. The error is a *driver.Error with the rule's code. The exception is Graphs.End,
// after which a stream does not capture even if it fails: the inner capture is ended, and its graph closed.
//
// Without rules a wrapped device behaves as the inner device does, and calls are counted. Counts are exact under
// concurrent use; the order of concurrent calls is not defined.
//
// The driver "fault" opens "RULES/SPEC": SPEC is a specification for driver.Open, RULES one for ParseRules, for example
// "fault:kind=VirtualMemory.Map,nth=3/host:total=1GiB".
package fault

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
)

// A Device is an inner device whose calls are counted and fail by rule. It is safe for concurrent use.
type Device struct {
	*intercept.Device

	mu     sync.Mutex // a leaf
	rules  []rule
	counts map[intercept.Kind]int64
	calls  int64
	failed int64
}

var _ driver.Device = (*Device)(nil)

// Wrap wraps inner. Closing the Device closes it.
func Wrap(inner driver.Device, rules ...Rule) *Device {
	d := &Device{}
	d.Device = intercept.Wrap(inner, d.call)
	d.SetRules(rules...)
	return d
}

// SetRules replaces the rules and sets all counts to zero.
func (d *Device) SetRules(rules ...Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = make([]rule, len(rules))
	for i, r := range rules {
		d.rules[i] = rule{Rule: r, rng: rand.New(rand.NewPCG(r.Seed, 0))}
	}
	d.counts = map[intercept.Kind]int64{}
	d.calls, d.failed = 0, 0
}

// Calls returns the number of calls since the rules were set, including those that failed by rule.
func (d *Device) Calls() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// CallsOf returns the number of calls of one kind since the rules were set.
func (d *Device) CallsOf(k intercept.Kind) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[k]
}

// Failed returns the number of calls that failed by rule since the rules were set. Errors of the
// inner device do not count.
func (d *Device) Failed() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// call makes a call on the inner device, unless it fails by rule.
func (d *Device) call(c intercept.Call, next func() error) error {
	failed := d.count(c.Kind)
	if failed != nil && c.Kind == intercept.End {
		_ = next() // ends the capture; intercept closes its graph
	} else if failed == nil {
		return next()
	}
	return failed
}

// count counts a call, and returns its error if it fails by rule. Every rule sees every call, so that one does not
// change the counts or random numbers of another. The first rule that matches gives the code.
func (d *Device) count(k intercept.Kind) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.counts[k]++
	var code error
	for i := range d.rules {
		if r := &d.rules[i]; r.matches(k) && code == nil {
			code = r.code(k)
		}
	}
	if code == nil {
		return nil
	}
	d.failed++
	return &driver.Error{
		Call: string(k), Code: code,
		Detail: fmt.Sprintf("by a rule of driver/fault: call %d, number %d of its kind", d.calls, d.counts[k]),
	}
}
