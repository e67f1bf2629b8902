package caching

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// Reuse during a capture, which Config.GraphCaptureRecordStreamReuse turns on.
//
// A block that other streams use can be freed while all of them, and its own, are part of a capture. No mark of theirs is
// reached before the capture has ended, and what comes later in the graph may not use the block before they are done. But
// once the streams have joined, what its own stream captures next comes after all that used it, in every launch, and so
// the block may be allocated again there and then. The device knows: driver.Graphs.Ordered.
//
// PyTorch wants every user to be done before all that its own stream comes after, and does not ask about work from before
// the capture. Here one way suffices, and such work has to be done: a launch does not wait for it.

// capturedMarks takes marks of streams that have used a block of own, if all of them are being captured and reuse is on,
// and else returns nil. The caller holds mu.
func (a *Allocator) capturedMarks(own driver.Stream, used []driver.Stream) []driver.Mark {
	graphs := a.dev.Graphs()
	if !a.cfg.GraphCaptureRecordStreamReuse || graphs == nil {
		return nil
	}
	outside := func(s driver.Stream) bool {
		captured, err := graphs.Capturing(s)
		return !captured || err != nil
	}
	if outside(own) || slices.ContainsFunc(used, outside) {
		return nil
	}
	marks := make([]driver.Mark, len(used))
	for i, s := range used {
		var err error
		if marks[i], err = s.Mark(); err != nil {
			return nil
		}
	}
	return marks
}

// processPendingFor frees blocks whose other users are done, before a request on a shard's stream: everywhere, or, while
// requests go to private pools, on that stream alone, in the order of what is being captured. The caller holds mu and no
// shard.
func (a *Allocator) processPendingFor(sh *shard) {
	if len(a.scopes) == 0 {
		a.processPending()
		return
	}
	if !a.cfg.GraphCaptureRecordStreamReuse {
		return
	}
	a.deferred = slices.DeleteFunc(a.deferred, func(d *deferredFree) bool {
		if d.sh != sh || !a.joined(d) {
			return false
		}
		a.finish(d.sh, d.ref, 0)
		return true
	})
	a.dropEmptyLists()
}

// joined reports whether in the graph that is being captured all users of a freed block are done before what its own
// stream captures next. What cannot be known is not so.
func (a *Allocator) joined(d *deferredFree) bool {
	if d.marks == nil {
		return false
	}
	graphs := a.dev.Graphs()
	for i, m := range d.marks {
		if yes, err := graphs.Ordered(d.used[i], m, d.sh.stream); !yes || err != nil {
			return false
		}
	}
	return true
}
