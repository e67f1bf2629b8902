package arena

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Close returns the region to the device, a child's memory to its parent, or the block of NewFrom to its allocator,
// with the streams that used it. Live blocks and children are an error that gives their numbers; then nothing has
// changed. With pages Close waits for the streams that used the memory; without, the device does. If the device fails,
// the next Close frees the rest, and every Alloc fails. Closing a closed arena is a no-op.
func (a *Arena) Close() error {
	users, err := a.close()
	if err != nil || users == nil {
		return err
	}
	if a.from != nil {
		a.from.Free(a.fromBlock, *users...)
		return nil
	}
	p := a.parent
	p.mu.Lock()
	defer p.mu.Unlock()
	var set reuse.Set
	for _, s := range *users {
		set = p.streams.Union(set, p.streams.Register(s))
	}
	p.freeBlock(a.index, set)
	p.verify()
	return nil
}

// close closes the arena. If its memory belongs to another allocator it returns the streams that used it, once.
func (a *Arena) close() (users *[]driver.Stream, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed && (a.parent != nil || a.region.r == nil) {
		return nil, nil
	}
	if n := len(a.blocks) - len(a.unused); n > 0 {
		children := 0
		for _, i := range a.order {
			if a.blocks[i].state == child {
				children++
			}
		}
		return nil, fmt.Errorf("arena: Close with %d live blocks, of %d bytes in total, %d of them children; "+
			"layer.NewLeakTracker shows where they were allocated",
			n, a.stats.AllocatedBytes.All.Current, children)
	}
	var used reuse.Set
	for _, p := range a.holes.All() {
		used = a.streams.Union(used, p.Users)
	}
	if a.parent != nil {
		a.closed = true
		a.end()
		all := slices.Collect(a.streams.All(used))
		return &all, nil
	}
	if a.paged() {
		if err := a.streams.Sync(used); err != nil {
			return nil, fmt.Errorf("arena: Close: %w", err)
		}
	}
	a.closed = true
	a.end()
	if err := a.region.r.Close(); err != nil {
		a.countReserved(a.region.r.Reserved())
		return nil, fmt.Errorf("arena: Close: %w", err)
	}
	a.region.r = nil
	if a.from != nil {
		all := slices.Collect(a.streams.All(used))
		return &all, nil
	}
	return nil, nil
}
