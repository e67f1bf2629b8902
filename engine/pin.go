package engine

import (
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A Hold prevents moves of blocks, both to make room and by Session.Collect and Engine.Freeze. It is BMEngine's
// GCStopper. It is safe for concurrent use.
type Hold struct {
	caches *caches
	owner  *Session // only its caches are held; nil: all

	mu    sync.Mutex
	holds []*arena.Hold
}

// Pin prevents moves of a device's blocks, including those in caches and in caches reserved later, until the hold is
// released. Until then addresses may be passed to kernels and captured in graphs. Blocks may move again when all holds
// are released. On an allocator that moves no blocks Pin applies to the caches.
func (e *Engine) Pin(i int) (*Hold, error) {
	d := e.at("Pin", i)
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	var h *Hold
	err := d.allocator.whileOpen(func() error { h = d.caches.hold(nil); return nil })
	return h, err
}

// Pin is like Engine.Pin for the session's current device, but of caches only this session's are held. The hold may
// outlive the session.
func (s *Session) Pin() (*Hold, error) {
	if err := s.enter("Pin"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	return s.currentDevice().device.caches.hold(s), nil
}

// Release ends the hold. Releasing it again is a no-op.
func (h *Hold) Release() {
	h.caches.mu.Lock()
	h.caches.holds = slices.DeleteFunc(h.caches.holds, func(other *Hold) bool { return other == h })
	h.caches.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.holds {
		one.Release()
	}
	h.holds = nil
}

// add holds a cache, if the hold applies to it.
func (h *Hold) add(k *cache) {
	if h.owner == nil || h.owner == k.owner {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.holds = append(h.holds, k.Arena.Pin())
	}
}

// hold holds the allocator below, and the caches of a session; all caches if owner is nil.
func (c *caches) hold(owner *Session) *Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &Hold{caches: c, owner: owner}
	if a, ok := mem.Find[interface{ Pin() *arena.Hold }](c.below); ok {
		h.holds = append(h.holds, a.Pin())
	}
	for _, k := range c.all() {
		h.add(k)
	}
	c.holds = append(c.holds, h)
	return h
}
