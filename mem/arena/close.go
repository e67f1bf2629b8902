package arena

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Close gives the region back to the device, a child's memory to its parent, whose streams wait for those that used it, or the
// block of NewFrom to its allocator, which is told of them.
// Blocks live, and children, are an error that says how many there are; then nothing is given back, the arena goes on as
// before, and Close may be called again. With pages it waits for the streams that used the memory; without, the device
// does. If the device fails, what it did not take back is kept for the next Close, and nothing is allocated any more.
// Closing a closed arena does nothing.
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

// close ends the arena. Of one that has its memory of another allocator it returns the streams that used it, once.
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
		return nil, fmt.Errorf("arena: Close with %d live blocks, of %d bytes in all, %d of them children; layer.NewLeakTracker tells where they were allocated",
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
