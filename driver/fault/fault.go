// Package fault wraps a device and makes its calls fail by rule, so that a test can see what becomes of every one.
//
// The loop that fails each call in turn, whatever their number:
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
// A call that fails does not reach the inner device: nothing is allocated, freed, queued, mapped, shared or closed, and
// the error is a *driver.Error with the rule's code. The one exception is Graphs.End, whose contract is that the stream
// is an ordinary one again also when it fails: the inner capture is ended, and what it captured dropped.
//
// Every call that can return an error counts and can fail, on the device, its streams, all its abilities and what they
// make (graphs, modules, events), but for Device.Close, so that a test can always clean up. What returns no error (IsPinned,
// Graph.Nodes) does not count, nor does what kernels do with the driver.Memory that they are given.
//
// Streams are wrapped, and unwrapped when they are handed to the inner device; so are other devices that Peers is handed.
// A stream that is not of this wrapper goes to the inner device as it is, which panics as it would without the wrapper.
// An ability that the inner device lacks is nil here too. Without rules a wrapped device does what the inner one does,
// and counts.
//
// The driver "fault" opens "RULES/SPEC": SPEC is what driver.Open takes, RULES as ParseRules reads them, for example
// "fault:kind=VirtualMemory.Map,nth=3/host:total=1GiB".
//
// Counts are exact under concurrent use; which of two concurrent calls is the nth is anyone's. The one lock is a leaf:
// it is not held while the inner device works.
package fault

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A Device is an inner device whose calls are counted and fail by rule. Safe for concurrent use.
type Device struct {
	inner  driver.Device
	stream *stream // the default one

	mu     sync.Mutex
	rules  []rule
	counts map[Kind]int64
	calls  int64
	failed int64
}

var _ driver.Device = (*Device)(nil)

// Wrap wraps inner. Closing the Device closes it.
func Wrap(inner driver.Device, rules ...Rule) *Device {
	d := &Device{inner: inner}
	d.stream = &stream{d, inner.DefaultStream()}
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
	d.counts = map[Kind]int64{}
	d.calls, d.failed = 0, 0
}

// Calls returns the number of calls since the rules were set, those that failed by rule included.
func (d *Device) Calls() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// CallsOf returns the number of calls of one kind since the rules were set.
func (d *Device) CallsOf(k Kind) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[k]
}

// Failed returns the number of calls that failed by rule since the rules were set. What the inner device fails by
// itself does not count.
func (d *Device) Failed() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Unwrap returns the inner device.
func (d *Device) Unwrap() driver.Device { return d.inner }

// call counts a call and returns the error with which it fails by rule, or nil. Every rule sees every call, so that one
// does not shift the counts or the random numbers of another; the first that strikes gives the code.
func (d *Device) call(k Kind) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.counts[k]++
	var code error
	for i := range d.rules {
		if r := &d.rules[i]; r.strikes(k) && code == nil {
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

// Info is the inner device's.
func (d *Device) Info() driver.Info { return d.inner.Info() }

// Available is a call of kind Available.
func (d *Device) Available() (free, total int64, err error) {
	if err := d.call(Available); err != nil {
		return 0, 0, err
	}
	return d.inner.Available()
}

// Processes is a call of kind Processes.
func (d *Device) Processes() ([]driver.ProcessMemory, error) {
	if err := d.call(Processes); err != nil {
		return nil, err
	}
	return d.inner.Processes()
}

// Alloc is a call of kind Alloc.
func (d *Device) Alloc(size int64) (driver.Pointer, error) {
	if err := d.call(Alloc); err != nil {
		return 0, err
	}
	return d.inner.Alloc(size)
}

// Free is a call of kind Free. If it fails, the block stays allocated.
func (d *Device) Free(p driver.Pointer) error {
	if err := d.call(Free); err != nil {
		return err
	}
	return d.inner.Free(p)
}

// NewStream is a call of kind NewStream.
func (d *Device) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	if err := d.call(NewStream); err != nil {
		return nil, err
	}
	s, err := d.inner.NewStream(o)
	if err != nil {
		return nil, err
	}
	return &stream{d, s}, nil
}

// DefaultStream returns the same stream each time.
func (d *Device) DefaultStream() driver.Stream { return d.stream }

// VirtualMemory is nil if the inner device has none.
func (d *Device) VirtualMemory() driver.VirtualMemory {
	if vm := d.inner.VirtualMemory(); vm != nil {
		return virtualMemory{d, vm}
	}
	return nil
}

// Kernels is nil if the inner device has none.
func (d *Device) Kernels() driver.Kernels {
	if k := d.inner.Kernels(); k != nil {
		return kernels{d, k}
	}
	return nil
}

// Pinned is nil if the inner device has none.
func (d *Device) Pinned() driver.Pinned {
	if p := d.inner.Pinned(); p != nil {
		return pinned{d, p}
	}
	return nil
}

// Timing is nil if the inner device has none.
func (d *Device) Timing() driver.Timing {
	if t := d.inner.Timing(); t != nil {
		return timing{d, t}
	}
	return nil
}

// Graphs is nil if the inner device has none.
func (d *Device) Graphs() driver.Graphs {
	if g := d.inner.Graphs(); g != nil {
		return graphs{d, g}
	}
	return nil
}

// Peers is nil if the inner device has none.
func (d *Device) Peers() driver.Peers {
	if p := d.inner.Peers(); p != nil {
		return peers{d, p}
	}
	return nil
}

// Visible is the inner device's: nothing of it is a call that a device could fail.
func (d *Device) Visible() driver.Visible { return d.inner.Visible() }

// Sharing is nil if the inner device has none.
func (d *Device) Sharing() driver.Sharing {
	if s := d.inner.Sharing(); s != nil {
		return sharing{d, s}
	}
	return nil
}

// Close closes the inner device. It is not counted and fails by no rule.
func (d *Device) Close() error { return d.inner.Close() }
