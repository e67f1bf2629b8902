package pinned

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// RecordStream records that work queued on s uses b: once b is freed, it is not allocated again before s has done all
// work that was queued on it at that time. Call it after queuing the work, as PyTorch does after each asynchronous
// copy, and before Free; b may come from Find. The error matches ErrNotLive if b is not live, where PyTorch returns
// false. If the device has Graphs, it is asked whether s captures.
//
// If s is part of a capture, the work runs whenever the graph is launched, which the allocator cannot see. So b is
// kept: it is not allocated again after Free until ReleaseCaptured. If asking the device whether s captures fails, b is
// kept and also waits for s, and the error says so.
func (a *Allocator) RecordStream(b mem.Block, s driver.Stream) error {
	check.Stream("pinned: Record", s)
	capturing, failure := a.capturing(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.live(b)
	if r == nil {
		return ErrNotLive
	}
	if capturing || failure != nil {
		r.captured = true
	}
	if !capturing && !slices.Contains(r.uses, s) {
		r.uses = append(r.uses, s)
	}
	if failure != nil {
		return fmt.Errorf("%w; the block is kept until ReleaseCaptured", failure)
	}
	return nil
}

// ReleaseCaptured declares that no captured work will use b: the graphs of its RecordStream calls are closed and their
// launches done. If b was freed it may be allocated again; if not, it is as if no capture had used it. A block that is
// not kept stays as it is. ReleaseCaptured panics if b is neither live nor a freed block that is kept or waits.
func (a *Allocator) ReleaseCaptured(b mem.Block) {
	a.mu.Lock()
	r := a.pieceOf(b)
	if r == nil {
		a.mu.Unlock()
		panic(fmt.Sprintf("pinned: ReleaseCaptured of a block that is neither live nor kept (%d bytes at %#x)",
			b.Size, uint64(b.Ptr)))
	}
	r.captured = false
	leaves := r.state == captured && a.retire(r)
	a.mu.Unlock()
	if leaves {
		a.recordError(a.giveBack(r))
	}
}

// capturing reports whether s is part of a capture.
func (a *Allocator) capturing(s driver.Stream) (bool, error) {
	if a.graphs == nil {
		return false, nil
	}
	capturing, err := a.graphs.Capturing(s)
	if err != nil {
		return false, fmt.Errorf("pinned: ask whether stream %d captures: %w", s.ID(), err)
	}
	return capturing, nil
}
