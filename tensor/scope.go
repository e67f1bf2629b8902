package tensor

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/callsite"
)

// A Scope is a place that releases the tensors made at it. The usual shape is
//
//	s := p.Scope()
//	defer s.Close()
//	h, err := compute.MatMul(s.Place, x, w)
//	...
//	return s.Keep(h), nil
//
// Only tensors made at the scope's Place, or at a place made from it, are in the scope. If an operation is given no
// place, the caller releases its result.
//
// A Scope is safe for concurrent use.
type Scope struct {
	*Place // where the scope's tensors are made

	onStream func(driver.Stream) // may be nil

	mu     sync.Mutex
	outer  *Place
	made   []*Tensor
	closed bool
}

// Scope opens a scope. Its Close releases the tensors made at its Place that still own something. Scopes nest.
func (p *Place) Scope() *Scope {
	s := &Scope{outer: p}
	if p.scope != nil {
		s.onStream = p.scope.onStream
	}
	s.Place = &Place{
		state: p.state, stream: p.stream, scope: s, options: p.options, unscoped: p.Unscoped(),
		stripped: p.strip(),
	}
	return s
}

// OnStream sets a function to call with each stream that Place.On selects for a place of the scope, and of scopes
// opened within it from now on. Call it before the scope is used elsewhere.
func (s *Scope) OnStream(f func(stream driver.Stream)) { s.onStream = f }

// add adds a new owner.
func (s *Scope) add(t *Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.mustBeOpen("a tensor " + t.brief() + " made")
	}
	s.made = append(s.made, t)
}

// mustBeOpen panics if the scope is closed. The caller holds s.mu and defers its Unlock.
func (s *Scope) mustBeOpen(call string) {
	if s.closed {
		panic(fmt.Sprintf("tensor: %s at %v, in a scope that is closed", call, callsite.Here()))
	}
}

// Adopt adds t, which must own something, to the scope, and returns it. The scope's Close then releases t; the caller
// must not.
func (s *Scope) Adopt(t *Tensor) *Tensor {
	t.alive("Adopt")
	s.add(t)
	return t
}

// Keep removes t from the scope and returns it. The enclosing scope releases it, or the caller if there is none. A
// borrower becomes an owner. It panics if t's memory was released.
func (s *Scope) Keep(t *Tensor) *Tensor {
	t.alive("Keep")
	s.outer.mustBeOpen("Keep")
	s.mu.Lock()
	i := slices.Index(s.made, t)
	if i >= 0 {
		s.made = slices.Delete(s.made, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		t.Retain()
	}
	s.outer.addToScope(t)
	return t
}

// Close releases the tensors made in the scope, the last first. A second Close is a no-op; making a tensor in a closed
// scope panics.
func (s *Scope) Close() {
	s.mu.Lock()
	made := s.made
	s.made, s.closed = nil, true
	s.mu.Unlock()
	for _, t := range slices.Backward(made) {
		if t.owned.Load() > 0 && t.storage.state.releasedAt() == nil { // otherwise ReleaseBlock took the memory
			t.Release()
		}
	}
}
