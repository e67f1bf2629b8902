package caching

import (
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// Reuse during a capture is turned on by Config.GraphCaptureRecordStreamReuse.
//
// A block that other streams use can be freed while all of them, and its own stream, are part of a capture. Their
// marks are reached only after the capture has ended, and later nodes of the graph may use the block only after those
// streams. But once the streams have joined, the next work captured on its own stream follows all users, in every
// launch, so the block may be allocated again there. driver.Graphs.Ordered tells whether this holds.
//
// PyTorch requires every user to precede everything that its own stream follows, and does not check work from before
// the capture. Here one direction suffices, and such work must be done: a launch does not wait for it.

// capturedMarks takes marks of streams that have used a block of own, if all of them are being captured and reuse is
// on; otherwise it returns nil. The caller holds mu.
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

// processPendingFor frees blocks whose other users are done, before a request on a shard's stream: on all streams, or,
// while requests go to private pools, on that stream only, in the order of the capture. The caller holds mu and no
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

// joined reports whether, in the graph being captured, all users of a freed block precede the next work captured on
// its own stream. If the device cannot tell, it returns false.
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
