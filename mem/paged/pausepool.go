package paged

import "fmt"

// Pause is Allocator.Pause for the memory of the pool alone: other memory can be used while it is paused. It is an error
// if graphs use the pool: see Allocator.BeginAllocateToPool.
func (p *Pool) Pause(o PauseOptions) error {
	p.a.observing.Lock()
	defer p.a.observing.Unlock()
	if err := p.a.pause([]*space{&p.pool.space}, o); err != nil {
		return fmt.Errorf("paged: Pause of pool %v: %w", p.pool.id, err)
	}
	return nil
}

// Resume undoes the pool's Pause: see Allocator.Resume. It is an error if Allocator.Pause paused the pool.
func (p *Pool) Resume() error {
	p.a.observing.Lock()
	defer p.a.observing.Unlock()
	if err := p.a.resume(&p.pool.space); err != nil {
		return fmt.Errorf("paged: Resume of pool %v: %w", p.pool.id, err)
	}
	return nil
}

// Paused reports whether the pool is paused, or Pause is under way.
func (p *Pool) Paused() bool {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.pool.space.paused != nil
}

// pausableSpaces returns the spaces that Allocator.Pause pauses: not those that a pool's Pause did.
func (a *Allocator) pausableSpaces() []*space {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := []*space{&a.main}
	for _, pp := range a.pools() {
		if !pp.inGraphs() && pp.space.paused == nil {
			all = append(all, &pp.space)
		}
	}
	return all
}

// keptByPause reports whether a space without users must stay, because pages of it are paused.
func (a *Allocator) keptByPause(sp *space) bool {
	ps := sp.paused
	if ps == nil {
		return false
	}
	if ps.moving || len(ps.at) > 0 {
		return true
	}
	if ps.spaces[0] == sp {
		a.forgetPause(ps)
	}
	return false
}
