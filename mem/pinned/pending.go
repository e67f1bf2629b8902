package pinned

import (
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
	passed int // number of waits removed so far
}

// A wait is one mark that must be reached before a pending block can be reused. A mark that could not be taken is taken
// later; this can only prolong the wait.
type wait struct {
	rec    *piece
	mark   driver.Mark
	marked bool
}

// addWaits makes a pending block wait for the streams that use it. The caller holds no lock.
func (a *Allocator) addWaits(r *piece) {
	waits := make([]wait, len(r.uses))
	for i, s := range r.uses {
		waits[i].rec = r
		a.recordError(a.takeMark(&waits[i], s))
	}
	w := &a.waiting
	w.Lock()
	defer w.Unlock()
	for i, s := range r.uses {
		// Compare streams, not numbers: a closed stream with the same number may still have a list.
		at := slices.IndexFunc(w.lists, func(l *waitList) bool { return l.stream == s })
		if at < 0 {
			at = len(w.lists)
			w.lists = append(w.lists, &waitList{stream: s})
		}
		w.lists[at].waits = append(w.lists[at].waits, waits[i])
	}
	r.waits = len(waits)
	clear(r.uses)
	r.uses = r.uses[:0]
	a.busy.Store(true)
	if a.cfg.BackgroundThreads && !w.polling {
		w.polling = true
		a.poller.Go(a.poll)
	}
}

// takeMark takes a mark on s, unless s captures: work queued before the capture may still run when a mark of the
// capture is reached. It asks before and after, so that it sees a capture that begins or ends in between.
func (a *Allocator) takeMark(w *wait, s driver.Stream) error {
	before, _ := a.capturing(s) // if this fails, the call below fails, too
	mark, err := s.Mark()
	if errors.Is(err, driver.ErrClosed) {
		w.mark, w.marked = driver.Mark{}, true // a closed stream has done its work: the zero mark is reached
		return nil
	}
	if err != nil {
		return fmt.Errorf("pinned: mark on stream %d: %w", s.ID(), err)
	}
	after, err := a.capturing(s)
	if err == nil && !before && !after {
		w.mark, w.marked = mark, true
	}
	return err
}

// reached reports whether the work that w waits for is done.
func (a *Allocator) reached(w *wait, s driver.Stream) (bool, error) {
	if !w.marked {
		if err := a.takeMark(w, s); err != nil || !w.marked {
			return false, err
		}
	}
	if w.mark.Tick == 0 {
		return true, nil
	}
	done, err := s.Reached(w.mark)
	if errors.Is(err, driver.ErrClosed) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("pinned: ask stream %d whether a mark is reached: %w", s.ID(), err)
	}
	return done, nil
}

// reclaimFinished retires the blocks whose streams have reached their marks. On each stream it stops at the first
// mark that is not. The caller holds no lock.
func (a *Allocator) reclaimFinished() {
	var leave []*piece
	a.waiting.Lock()
	for _, l := range a.waiting.lists {
		leave = append(leave, a.finishWaits(l, func(w *wait) bool {
			done, err := a.reached(w, l.stream)
			a.recordError(err)
			return done
		})...)
	}
	a.dropEmptyLists()
	a.waiting.Unlock()
	a.giveBackAll(leave)
}

// finishWaits removes finished waits from the front of a list, and returns the blocks that become returning.
// The caller holds waiting.
func (a *Allocator) finishWaits(l *waitList, done func(*wait) bool) (leave []*piece) {
	for len(l.waits) > 0 && done(&l.waits[0]) {
		r := l.waits[0].rec
		l.waits[0] = wait{}
		l.waits = l.waits[1:]
		l.passed++
		if a.finish(r) {
			leave = append(leave, r)
		}
	}
	return leave
}

// dropEmptyLists drops empty lists. The caller holds waiting.
func (a *Allocator) dropEmptyLists() {
	a.waiting.lists = slices.DeleteFunc(a.waiting.lists, func(l *waitList) bool { return len(l.waits) == 0 })
	a.busy.Store(len(a.waiting.lists) > 0)
}

// giveBackAll frees blocks whose waits have ended and that are too large to be cached. The caller holds no lock.
func (a *Allocator) giveBackAll(leave []*piece) {
	for _, r := range leave {
		a.recordError(a.giveBack(r))
	}
}

// finish counts one mark of a block as reached, and retires the block if it was the last. It reports whether the block
// becomes returning. The caller holds waiting.
func (a *Allocator) finish(r *piece) (leaves bool) {
	if r.waits--; r.waits > 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.retire(r)
}

// wait blocks until the streams that frees wait for have done the work that is queued on them. Blocks of a stream that
// cannot be waited for stay pending, unless their marks are reached. The caller holds neither waiting nor mu.
func (a *Allocator) wait() error {
	type goal struct {
		*waitList
		upTo int
	}
	var goals []goal
	a.waiting.Lock()
	for _, l := range a.waiting.lists {
		goals = append(goals, goal{l, l.passed + len(l.waits)})
	}
	a.waiting.Unlock()
	var failures []error
	for _, g := range goals {
		if err := g.stream.Sync(context.Background()); err != nil && !errors.Is(err, driver.ErrClosed) {
			failures = append(failures, fmt.Errorf("pinned: wait for stream %d: %w", g.stream.ID(), err))
			continue
		}
		// All work is done, whether or not a mark was taken for it.
		a.waiting.Lock()
		leave := a.finishWaits(g.waitList, func(*wait) bool { return g.passed < g.upTo })
		a.dropEmptyLists()
		a.waiting.Unlock()
		a.giveBackAll(leave)
	}
	a.reclaimFinished()
	return errors.Join(failures...)
}

// poll reclaims finished blocks at intervals, until nothing waits or Close ends it.
func (a *Allocator) poll() {
	for {
		select {
		case <-a.cfg.After(a.cfg.Interval):
		case <-a.stop:
			return
		}
		a.reclaimFinished()
		a.waiting.Lock()
		if len(a.waiting.lists) == 0 {
			a.waiting.polling = false
			a.waiting.Unlock()
			return
		}
		a.waiting.Unlock()
	}
}
