package arena

import (
	"github.com/ashlar-go/ashlar/internal/check"

	"github.com/ashlar-go/ashlar/driver"
)

// A Hold keeps the blocks of an arena where they are. Safe for concurrent use.
type Hold struct {
	a        *Arena
	released bool // guarded by a.mu
}

// Pin keeps all blocks of this arena, though not those in its children, where they are until the hold is released:
// addresses may be handed to kernels and captured in graphs. A compaction that is under way ends first. Holds count: blocks
// may move again when all of them are released. Meanwhile Compact and Freeze fail with ErrPinned, and an Alloc that only
// compaction would make room for finds none.
func (a *Arena) Pin() *Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pins++
	return &Hold{a: a}
}

// Release ends the hold. Releasing it again does nothing.
func (h *Hold) Release() {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	if !h.released {
		h.released = true
		h.a.pins--
	}
}

// Freeze compacts and then leaves all live blocks where they are for good, as a model's weights: they are not looked at in
// later compactions, and their holders are let go and not called again. It may be repeated: blocks allocated since join
// those that are frozen. A frozen block is freed like any other, and its bytes are allocated again. Blocks that nobody made
// movable are frozen too; child arenas are not. The error is that of Compact, and nothing was frozen.
func (a *Arena) Freeze(s driver.Stream) error {
	check.Stream("arena: Freeze", s)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.compact(s, 0); err != nil {
		return err
	}
	kept := a.order[:0]
	for _, i := range a.order {
		r := &a.blocks[i]
		if r.state == child {
			r.orderIndex = uint32(len(kept))
			kept = append(kept, i)
			continue
		}
		r.state, r.holder = frozen, nil
	}
	a.order = kept
	a.verify()
	return nil
}
