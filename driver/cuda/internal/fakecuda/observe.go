//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"fmt"
	"reflect"
	"slices"
)

// This file lets tests observe a machine and make its calls fail.
type observed struct {
	calls     map[string]int
	log       []Call
	faults    []*fault
	misuses   []string
	abandoned []string // leaks of contexts that were destroyed
	staged    int
}

// A Call is one call that was made.
type Call struct {
	Symbol string
	Thread int      // of the kernel's numbering
	Args   []uint64 // as passed to the function
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

// Log returns the calls that have returned, oldest first. It has at least the last ten thousand.
func (m *Machine) Log() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// A fault is a future call that must fail.
type fault struct {
	symbol string
	left   int
	result Result
}

// Fail makes the nth call of a function from now on (1 is the next) return result and do nothing else.
func (m *Machine) Fail(symbol string, nth int, result Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &fault{symbol, nth, result})
}

// fault counts a call, and reports whether it must fail and with which result.
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

// Break makes all later calls in a device's context return result, as after an illegal address.
func (m *Machine) Break(device int, result Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices[device].context.broken = result
	m.changed.Broadcast()
}

// misuse records a use that CUDA leaves undefined, and returns the machine's result for it.
func (m *Machine) misuse(r Result, format string, args ...any) Result {
	m.misuses = append(m.misuses, fmt.Sprintf(format, args...))
	return r
}

// Misuses describes calls whose effect the real driver leaves undefined or detects too late: with stale handles, with
// another device's stream, or of work that uses freed memory. A test of a driver expects none. Calls that the driver
// reliably refuses, such as freeing an address that is no allocation, are not misuses.
func (m *Machine) Misuses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.misuses)
}

// Staged returns how many copies used memory that the device could not reach directly.
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

// Bytes returns the device memory at an address. Tests may read and write it while no work uses it. Bytes panics if no
// memory is there.
func (m *Machine) Bytes(address uint64, n int64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known(address, n) {
		panic(fmt.Sprintf("fakecuda: nothing is at %#x, %d bytes", address, n))
	}
	return bytesAt(address, n)
}
