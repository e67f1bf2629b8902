package caching

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
)

// A waitList holds the frees that wait for one stream, oldest first.
type waitList struct {
	stream driver.Stream
	waits  []wait
}

// A wait is one mark that must be reached before a pending block becomes free. A mark that could not be taken is taken
// later; this can only prolong the wait.
type wait struct {
	sh     *shard
	ref    blockRef
	mark   driver.Mark
	marked bool
}

// A deferredFree is a free during a capture of a block that other streams use. Its marks are taken when the capture has
// ended.
type deferredFree struct {
	sh    *shard
	ref   blockRef
	used  []driver.Stream
	marks []driver.Mark // of the streams in used, in the capture; nil: no reuse in the capture, see reuse.go
}

// deferFree adds a block to the wait lists of the other streams that use it. It returns false if there are none. The
// caller holds mu and sh.
func (a *Allocator) deferFree(sh *shard, ref blockRef, blk *block, used []driver.Stream) bool {
	var others []driver.Stream
	for _, s := range used {
		switch {
		case s == sh.stream || slices.Contains(others, s):
		case s.ID() == sh.stream.ID():
			// The block's own stream has been closed, and this stream has its number and has used the block since.
			sh.stream = s
		default:
			others = append(others, s)
		}
	}
	if len(others) == 0 {
		return false
	}
	blk.state = statePending
	p := sh.pools[blk.pool]
	p.sh.stats.markChanged()
	p.stats.cur[active]++
	p.stats.cur[activeBytes] += blk.size()
	if len(a.scopes) > 0 {
		a.deferred = append(a.deferred, &deferredFree{sh, ref, others, a.capturedMarks(sh.stream, others)})
	} else {
		a.wait(sh, ref, others)
	}
	a.setSlowPath(slowPending, true)
	return true
}

func (a *Allocator) wait(sh *shard, ref blockRef, streams []driver.Stream) {
	for _, s := range streams {
		w := wait{sh: sh, ref: ref}
		w.take(s)
		sh.slab.coldAt(ref).pending++
		i, _ := slices.BinarySearchFunc(a.pending, s.ID(), func(l *waitList, id driver.StreamID) int {
			return cmp.Compare(l.stream.ID(), id)
		})
		// Compare streams, not numbers: a closed stream with the same number may still have a list.
		for i < len(a.pending) && a.pending[i].stream != s && a.pending[i].stream.ID() == s.ID() {
			i++
		}
		if i == len(a.pending) || a.pending[i].stream != s {
			a.pending = slices.Insert(a.pending, i, &waitList{stream: s})
		}
		a.pending[i].waits = append(a.pending[i].waits, w)
	}
}

func (w *wait) take(s driver.Stream) {
	mark, err := s.Mark()
	switch {
	case err == nil:
		w.mark, w.marked = mark, true
	case errors.Is(err, driver.ErrClosed):
		w.mark, w.marked = driver.Mark{}, true // a closed stream has done its work: the zero mark is reached
	}
}

// reached reports whether the work that w waits for is done.
func (w *wait) reached(s driver.Stream) bool {
	if !w.marked {
		if w.take(s); !w.marked {
			return false
		}
	}
	if w.mark.Tick == 0 {
		return true
	}
	done, err := s.Reached(w.mark)
	return done || errors.Is(err, driver.ErrClosed)
}

// processPending frees the blocks whose other users are done. On each stream it stops at the first that is not. The
// caller holds mu and no shard, and no capture is under way.
func (a *Allocator) processPending() {
	if len(a.pending) == 0 && len(a.deferred) == 0 {
		return
	}
	a.startDeferred()
	for _, list := range a.pending {
		n := 0
		for n < len(list.waits) && list.waits[n].reached(list.stream) {
			a.finish(list.waits[n].sh, list.waits[n].ref, 1)
			n++
		}
		list.waits = list.waits[n:]
	}
	a.dropEmptyLists()
}

// startDeferred takes the marks of frees that were deferred by a capture.
func (a *Allocator) startDeferred() {
	for _, d := range a.deferred {
		if d.sh != a.locked {
			d.sh.mu.Lock()
		}
		a.wait(d.sh, d.ref, d.used)
		if d.sh != a.locked {
			d.sh.mu.Unlock()
		}
	}
	a.deferred = nil
}

// finish counts marks of a pending block as reached, and frees the block when none is left.
func (a *Allocator) finish(sh *shard, ref blockRef, marks int32) {
	if sh != a.locked {
		sh.mu.Lock()
	}
	cold := sh.slab.coldAt(ref)
	if cold.pending -= marks; cold.pending == 0 {
		blk := sh.slab.at(ref)
		sh.pools[blk.pool].freeBlock(ref, blk)
		sh.verify()
	}
	over := sh.stats.over
	if sh != a.locked {
		sh.mu.Unlock()
	}
	if over {
		a.foldChanged()
	}
}

func (a *Allocator) dropEmptyLists() {
	a.pending = slices.DeleteFunc(a.pending, func(l *waitList) bool { return len(l.waits) == 0 })
	a.setSlowPath(slowPending, len(a.pending)+len(a.deferred) > 0)
}

// waitPending blocks until all pending frees are done. A stream that cannot be waited for keeps its blocks pending. The
// caller holds mu, perhaps one shard, and no capture is under way.
func (a *Allocator) waitPending() error {
	a.totals.numSyncAllStreams++
	a.startDeferred()
	var failures []error
	for _, list := range a.pending {
		if err := list.stream.Sync(context.Background()); err != nil && !errors.Is(err, driver.ErrClosed) {
			failures = append(failures, fmt.Errorf("caching: wait for stream %d: %w", list.stream.ID(), err))
			continue
		}
		for _, w := range list.waits {
			a.finish(w.sh, w.ref, 1)
		}
		list.waits = nil
	}
	a.dropEmptyLists()
	return errors.Join(failures...)
}

// ProcessPending frees the blocks whose other users are done, as every Alloc does before it searches.
func (a *Allocator) ProcessPending() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.scopes) == 0 {
		a.processPending()
	}
}

// setSlowPath turns a reason for the slow path on or off.
func (a *Allocator) setSlowPath(reason uint32, on bool) {
	if on {
		a.slowPath.Or(reason)
	} else {
		a.slowPath.And(^reason)
	}
}
