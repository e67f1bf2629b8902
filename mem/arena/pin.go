package arena

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
)

// A Hold keeps the blocks of an arena at their addresses. It is safe for concurrent use.
type Hold struct {
	a        *Arena
	released bool // guarded by a.mu
}

// Pin keeps all blocks of this arena, except those in its children, at their addresses until the hold is released, so
// that addresses may be passed to kernels and captured in graphs. It waits for a compaction in progress. Blocks may
// move again when all holds are released. Until then Compact and Freeze return ErrPinned, and an Alloc that needs
// compaction finds no room.
func (a *Arena) Pin() *Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pins++
	return &Hold{a: a}
}

// Release ends the hold. Releasing it again is a no-op.
func (h *Hold) Release() {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	if !h.released {
		h.released = true
		h.a.pins--
	}
}

// Freeze compacts and then fixes all live blocks at their addresses, such as a model's weights. Later compactions skip
// them, and their holders are released and not called again. Freeze may be repeated: it adds the blocks allocated
// since. A frozen block is freed like any other, and its memory is reused. Blocks without a holder are frozen too;
// child arenas are not. The error is that of Compact; then nothing was frozen.
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
