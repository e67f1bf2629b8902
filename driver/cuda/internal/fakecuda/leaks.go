//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"fmt"
	"maps"
	"slices"
)

// Leaks describes the resources that callers have not freed, now or when the machine was closed, and those that were
// left in destroyed contexts. It omits contexts that were broken when they were destroyed.
func (m *Machine) Leaks() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	leaks := slices.Clone(m.abandoned)
	for _, d := range m.devices {
		if d.holds > 0 {
			leaks = append(leaks, fmt.Sprintf("context of device %d, retained %d times", d.ordinal, d.holds))
		}
		if d.context.live {
			leaks = append(leaks, m.leaksOf(d.context)...)
		}
	}
	leaks = append(leaks, m.leaksOf(nil)...)
	for _, r := range m.space {
		if r.reservation {
			leaks = append(leaks, fmt.Sprintf("reservation at %#x, %d bytes, %d mappings", r.start, r.end-r.start,
				len(r.maps)))
		}
	}
	return leaks
}

// leaksOf describes the resources left in a context or, if p is nil, those that belong to no context.
func (m *Machine) leaksOf(p *primary) []string {
	var leaks []string
	for _, h := range m.handlesOf(func(x any) bool { return owner(x) == p }) {
		if name := kindOf(m.handles[h]); name != "" {
			leaks = append(leaks, fmt.Sprintf("%s %#x", name, h))
		}
	}
	for _, r := range m.space {
		if b := r.block; b != nil && b.ctx == p {
			leaks = append(leaks, fmt.Sprintf("%s at %#x, %d bytes", b.kind, b.base, b.size))
		}
	}
	for _, h := range m.host {
		if h.ctx == p {
			leaks = append(leaks, fmt.Sprintf("host memory at %#x, %d bytes", h.start, h.size))
		}
	}
	return leaks
}

func (k blockKind) String() string {
	return [...]string{"memory", "memory of another process"}[k]
}

// handlesOf returns the handles of the objects that accept selects, oldest first.
func (m *Machine) handlesOf(accept func(any) bool) []uint64 {
	var handles []uint64
	for _, h := range slices.Sorted(maps.Keys(m.handles)) {
		if accept(m.handles[h]) {
			handles = append(handles, h)
		}
	}
	return handles
}

// owner returns the context of an object, or nil.
func owner(x any) *primary {
	switch x := x.(type) {
	case *stream:
		return x.ctx
	case *event:
		return x.ctx
	case *module:
		return x.ctx
	case *function:
		return x.module.ctx
	}
	return nil
}

// kindOf returns the name of an object's kind; "" if it does not count as a leak.
func kindOf(x any) string {
	switch x.(type) {
	case *stream:
		return "stream"
	case *event:
		return "event"
	case *module:
		return "module"
	case *graph:
		return "graph"
	case *graphExec:
		return "graph exec"
	case *pages:
		return "page"
	}
	return ""
}
