package arena

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Child returns an arena of size bytes, rounded up, of this one's memory, from the highest hole that fits. It has its
// own lock, limit, statistics, pins and children, and compacts within itself. To its parent it is one block that does
// not move. If no hole fits, Child first compacts on the device's default stream. With pages the memory comes from the
// lowest hole, since the end of the region has no memory yet. Children are closed in any order, before their parent.
// Child panics if size is not positive. The error is that of Alloc.
func (a *Arena) Child(size int64) (*Arena, error) {
	if size <= 0 {
		panic(fmt.Sprintf("arena: Child of %d bytes", size))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c, err := a.child(size)
	a.verify()
	return c, err
}

func (a *Arena) child(size int64) (*Arena, error) {
	if a.closed {
		return nil, closedError("Child")
	}
	take := a.holes.TakeLast
	if a.paged() {
		take = a.holes.Take
	}
	f, err := a.take(a.dev.DefaultStream(), size, mem.AllocOptions{}, take)
	if err != nil {
		return nil, err
	}
	i := a.addBlock(block{at: f.at, size: f.size, requested: size, state: child})
	cfg := a.cfg
	cfg.Limit = 0
	c := newArena(a.dev, cfg, a.region, f.at, f.at+f.size)
	c.parent, c.index = a, i
	c.begin()
	c.setUsers(slices.Collect(a.streams.All(f.deps.Users)))
	return c, nil
}

// setUsers records the streams that used the memory before. A stream waits for them when it reuses the memory.
func (a *Arena) setUsers(users []driver.Stream) {
	var set reuse.Set
	for _, s := range users {
		set = a.streams.Union(set, a.streams.Register(s))
	}
	a.holes.TakeAt(a.lo, a.Size())
	a.holes.Give(a.lo, a.Size(), a.streams.Freed(set))
}
