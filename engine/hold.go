package engine

import (
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A Hold keeps blocks where they are: nothing is moved to make room, nor by Session.Collect or Engine.Freeze. It is
// BMEngine's GCStopper. Safe for concurrent use.
type Hold struct {
	caches *caches
	owner  *Session // whose caches are held; nil: all

	mu    sync.Mutex
	holds []*arena.Hold
}

// Pin keeps the blocks of a device where they are, those in caches too, also in caches that are reserved later,
// until the hold is released: addresses may be handed to kernels, and captured in graphs. Holds count: blocks may move
// again when all are released. On an allocator that moves nothing it holds the caches.
func (e *Engine) Pin(i int) (*Hold, error) {
	d := e.at("Pin", i)
	if err := e.open(); err != nil {
		return nil, err
	}
	var h *Hold
	err := d.lanes.during(func() error { h = d.caches.hold(nil); return nil })
	return h, err
}

// Pin is Engine.Pin of the session's current device, with this session's caches alone. The hold may outlive
// the session.
func (s *Session) Pin() (*Hold, error) {
	if err := s.enter("Pin"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	return s.seat().device.caches.hold(s), nil
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

// add holds a cache, if it is one of those that are held.
func (h *Hold) add(k *cache) {
	if h.owner == nil || h.owner == k.owner {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.holds = append(h.holds, k.Arena.Pin())
	}
}

// hold holds what is below, and the caches of a session, or all.
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
