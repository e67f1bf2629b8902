// Package poolscope determines the private pool of a request.
//
// A scope sends requests to a pool until it ends: all requests, or those that match a filter or a key. If a request
// matches several scopes, the last begun one wins, as in PyTorch's allocator of device memory. The package has no
// locks: the allocator holds its lock during every call, and while a filter runs.
package poolscope

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A Filter selects the requests of a scope: they must match all fields that are set.
type Filter struct {
	Stream func(driver.Stream) bool // nil: requests for any stream
	Key    any                      // mem.AllocOptions.Key; nil: requests with any key, or none
}

func (f *Filter) matches(s driver.Stream, key any) bool {
	return (f.Key == nil || f.Key == key) && (f.Stream == nil || f.Stream(s))
}

// ForKey returns the filter for requests with a key. It panics if the key is nil or cannot be compared.
func ForKey(call string, key any) Filter {
	if key == nil {
		panic(call + " without a key")
	}
	CheckKey(call, key)
	return Filter{Key: key}
}

// A Scope is a pool and the requests that go there.
type Scope[P comparable] struct {
	Pool   P
	Graph  bool // for captured work, not for the user of a pool
	Filter Filter
}

// Scopes holds the open scopes in the order in which they were begun.
type Scopes[P comparable] []*Scope[P]

// Begin begins a scope.
func (l *Scopes[P]) Begin(s Scope[P]) *Scope[P] {
	*l = append(*l, &s)
	return &s
}

// End ends a scope. It reports false if the scope has ended already or is nil.
func (l *Scopes[P]) End(s *Scope[P]) bool {
	i := slices.Index(*l, s)
	if i >= 0 {
		*l = slices.Delete(*l, i, i+1)
	}
	return i >= 0
}

// Graph returns the scope in which captured work allocates from a pool, or nil. There is at most one.
func (l Scopes[P]) Graph(p P) *Scope[P] {
	for _, s := range l {
		if s.Graph && s.Pool == p {
			return s
		}
	}
	return nil
}

// SendTo reports whether any scope sends requests to a pool.
func (l Scopes[P]) SendTo(p P) bool {
	return slices.ContainsFunc(l, func(s *Scope[P]) bool { return s.Pool == p })
}

// Capturing reports whether captured work allocates from any pool.
func (l Scopes[P]) Capturing() bool {
	return slices.ContainsFunc(l, func(s *Scope[P]) bool { return s.Graph })
}

// Find returns the pool of a request for a stream with a key, and false if it matches no scope.
func (l Scopes[P]) Find(stream driver.Stream, key any) (pool P, ok bool) {
	for _, s := range slices.Backward(l) {
		if s.Filter.matches(stream, key) {
			return s.Pool, true
		}
	}
	return pool, false
}

// CheckKey panics if a key is not nil and cannot be compared. An allocator calls it before it locks anything.
func CheckKey(call string, key any) {
	if key != nil && !reflect.ValueOf(key).Comparable() {
		panic(fmt.Sprintf("%s with a key of type %T, which cannot be compared", call, key))
	}
}
