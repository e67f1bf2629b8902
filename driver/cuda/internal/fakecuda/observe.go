//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"fmt"
	"reflect"
	"slices"
)

// What tests see of a machine, and how they make calls fail.
type observed struct {
	calls     map[string]int
	log       []Call
	faults    []*fault
	misuses   []string
	abandoned []string // what contexts still had when they were destroyed
	staged    int
}

// A Call is one call that was made.
type Call struct {
	Symbol string
	Thread int      // of the kernel's numbering
	Args   []uint64 // as the function got them
	Result Result
}

const logMost = 20000

// note records a call; it runs when the call returns.
func (m *Machine) note(name string, tid int, args []reflect.Value, r Result) {
	m.calls[name]++
	if len(m.log) == logMost {
		m.log = slices.Delete(m.log, 0, logMost/2)
	}
	words := make([]uint64, len(args))
	for i, a := range args {
		switch {
		case a.CanUint():
			words[i] = a.Uint()
		case a.CanInt():
			words[i] = uint64(a.Int())
		default:
			words[i] = uint64(a.Pointer())
		}
	}
	c := Call{name, tid, words, r}
	m.log = append(m.log, c)
	if m.opts.Called != nil {
		m.opts.Called(c)
	}
}

// Calls returns how often a function was called and has returned.
func (m *Machine) Calls(symbol string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[symbol]
}

// Log returns the calls that have returned, oldest first: the last ten thousand at least.
func (m *Machine) Log() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// A fault is a call that is to fail.
type fault struct {
	symbol string
	left   int
	result Result
}

// Fail makes the nth call of a function from now on (1 is the next) answer result and do nothing else.
func (m *Machine) Fail(symbol string, nth int, result Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &fault{symbol, nth, result})
}

// fault counts a call and says whether it is to fail.
func (m *Machine) fault(name string) (Result, bool) {
	for i, f := range m.faults {
		if f.symbol != name {
			continue
		}
		if f.left--; f.left == 0 {
			m.faults = slices.Delete(m.faults, i, i+1)
			return f.result, true
		}
	}
	return Success, false
}

// Break makes a device's context answer result to everything from now on, as after an illegal address.
func (m *Machine) Break(device int, result Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices[device].context.broken = result
	m.changed.Broadcast()
}

// misuse notes what CUDA leaves undefined and returns the result that the machine gives it.
func (m *Machine) misuse(r Result, format string, args ...any) Result {
	m.misuses = append(m.misuses, fmt.Sprintf(format, args...))
	return r
}

// Misuses says what callers did that the real driver leaves undefined or notices too late: handles that are not there,
// another device's stream, work that touches memory that was given back. A test of a driver wants none. What the driver
// reliably refuses, such as freeing what is no allocation, is not among them.
func (m *Machine) Misuses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.misuses)
}

// Staged returns how many copies used memory that the device could not reach by itself.
func (m *Machine) Staged() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.staged
}

// ThreadContexts returns how many contexts are on the stacks of all threads.
func (m *Machine) ThreadContexts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, t := range m.threads {
		for _, p := range t.contexts {
			if p != nil {
				n++
			}
		}
	}
	return n
}

// Used returns the bytes of physical memory that exist on a device.
func (m *Machine) Used(device int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.devices[device].used
}

// RDMA reports whether network cards can reach the mapped page at an address. It panics if none is mapped there.
func (m *Machine) RDMA(address uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.find(address); r != nil {
		for _, x := range r.maps {
			if x.start <= address && address < x.end {
				return x.pages.rdma
			}
		}
	}
	panic(fmt.Sprintf("fakecuda: no page is mapped at %#x", address))
}

// Bytes returns the device memory at an address, which tests may read and write while no work uses it. It panics if
// nothing is there.
func (m *Machine) Bytes(address uint64, n int64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known(address, n) {
		panic(fmt.Sprintf("fakecuda: nothing is at %#x, %d bytes", address, n))
	}
	return bytesAt(address, n)
}
