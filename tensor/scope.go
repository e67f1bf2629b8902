package tensor

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A Scope is a place that releases what was made at it. The usual shape is
//
//	s := p.Scope()
//	defer s.Close()
//	h, err := compute.MatMul(s.Place, x, w)
//	...
//	return s.Keep(h), nil
//
// Only what is made at the scope's Place, or a place that came from it, is in the scope: where an operation is given no place,
// its result is the caller's to release.
//
// Safe for concurrent use.
type Scope struct {
	*Place // where the scope's tensors are made

	onStream func(driver.Stream) // nil: nobody is told

	mu     sync.Mutex
	outer  *Place
	made   []*Tensor
	closed bool
}

// Scope opens a scope: tensors that are made at its Place are released by its Close, if they still own something then.
// Scopes nest.
func (p *Place) Scope() *Scope {
	s := &Scope{outer: p}
	if p.scope != nil {
		s.onStream = p.scope.onStream
	}
	s.Place = &Place{home: p.home, stream: p.stream, scope: s, options: p.options, plain: p.Unscoped(), bare: p.base()}
	return s
}

// OnStream has f called with each stream that Place.On puts a place of the scope on, and of scopes within that are opened from
// now on. It is for who opens the scope, before others use it.
func (s *Scope) OnStream(f func(stream driver.Stream)) { s.onStream = f }

// add takes a new owner in.
func (s *Scope) add(t *Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustBeOpen("a tensor " + t.brief() + " made")
	s.made = append(s.made, t)
}

// mustBeOpen panics if the scope is closed. s.mu is held by a caller that defers its Unlock.
func (s *Scope) mustBeOpen(call string) {
	if s.closed {
		panic(fmt.Sprintf("tensor: %s at %v, in a scope that is closed", call, here()))
	}
}

// Adopt has the scope release t, which must own something that nobody else will release.
func (s *Scope) Adopt(t *Tensor) *Tensor {
	t.alive("Adopt")
	s.add(t)
	return t
}

// Keep takes t out of the scope and returns it: it is released by the scope around this one, if there is one, or else by
// the caller. A borrower becomes an owner. It panics if t's memory is gone.
func (s *Scope) Keep(t *Tensor) *Tensor {
	t.alive("Keep")
	s.outer.open("Keep")
	s.mu.Lock()
	i := slices.Index(s.made, t)
	if i >= 0 {
		s.made = slices.Delete(s.made, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		t.Retain()
	}
	s.outer.adopt(t)
	return t
}

// Close releases what was made in the scope, the last first. Closing twice is nothing; making a tensor in a scope that is
// closed panics.
func (s *Scope) Close() {
	s.mu.Lock()
	made := s.made
	s.made, s.closed = nil, true
	s.mu.Unlock()
	for _, t := range slices.Backward(made) {
		if t.owned.Load() > 0 && t.storage.r.gone() == nil { // else its owner was taken from it, by ReleaseBlock
			t.Release()
		}
	}
}
