//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// polls is the number of polls of a wait before it sleeps. At 0.4 us each (NVIDIA H200) they take some 20 us, about the
// cost of putting a thread to sleep and waking it.
const polls = 50

// Sync with a context that cannot end calls cuStreamSynchronize, which is the fastest method, but libcuda may spin on a
// processor. With a context that can end, Sync polls for a while and then waits for a goroutine that sleeps in libcuda.
// A stream has at most one such goroutine, however many waits begin and end; it runs until the work is done. If ctx
// ends first, the error is a *driver.Error that matches ctx.Err(), and the work continues.
func (s *stream) Sync(ctx context.Context) error {
	const call = "Stream.Sync"
	tick, done, err := s.syncNow(call, ctx.Done() == nil)
	for err == nil && !done {
		w := s.waiter(tick)
		if w == nil {
			return nil
		}
		select {
		case <-w.done:
			if done = tick <= s.marks.passed.Load(); !done {
				err = w.err
			}
		case <-ctx.Done():
			err = &driver.Error{Call: call, Code: ctx.Err(), Detail: fmt.Sprintf("stream %d still has work", s.id)}
		}
	}
	return err
}

// syncNow waits for the work queued so far: until it is done if forever is true, otherwise for a short time. If done is
// false, it returns the tick to wait for.
func (s *stream) syncNow(call string, forever bool) (tick uint64, done bool, err error) {
	if err := s.beginOrder(call); err != nil {
		return 0, false, err
	}
	defer s.d.leave()
	if err := s.refuseCapture(call); err != nil {
		s.mu.Unlock()
		return 0, false, err
	}
	if forever {
		work, tick := s.work, s.marks.last
		if idle := !s.shared && work == s.marked && tick <= s.marks.passed.Load(); idle {
			s.mu.Unlock()
			return tick, true, nil
		}
		if r := s.waitForAll(); r != cu.Success {
			return 0, false, s.d.fail(call, r, "stream %d", s.id)
		}
		s.markDone(work, tick)
		return tick, true, nil
	}
	m, err := s.mark(call)
	s.mu.Unlock()
	if err != nil {
		return 0, false, err
	}
	done, err = s.ask(call, m.Tick)
	return m.Tick, done, err
}

// markDone records that all ticks up to tick are done. If no more than work items were queued, all work is done, and
// the next Mark returns the last mark. The stream is not locked.
func (s *stream) markDone(work, tick uint64) {
	s.mu.Lock()
	if s.work == work {
		s.marked = work
	}
	s.mu.Unlock()
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	s.marks.advance(&s.d.events, tick)
}

// ask polls for a short time. Between enter and leave.
func (s *stream) ask(call string, tick uint64) (done bool, err error) {
	for i := 0; i < polls && !done && err == nil; i++ {
		s.marks.mu.Lock()
		done, err = s.poll(call, tick)
		s.marks.mu.Unlock()
	}
	return done, err
}

// await blocks until tick is done. Between enter and leave, with no lock held.
func (s *stream) await(call string, tick uint64) error {
	if done, err := s.ask(call, tick); done || err != nil {
		return err
	}
	return s.sleep(call, tick)
}

// sleep is await without polling first.
func (s *stream) sleep(call string, tick uint64) error {
	e, c, err := s.retain(call, tick)
	if e == nil {
		return err
	}
	defer s.release(e)
	if c != nil {
		return &driver.Error{Call: call, Code: driver.ErrCapturing, Detail: "it would wait for work that is only " +
			"recorded"}
	}
	if r := s.d.lib.EventSynchronize(e.handle); r != cu.Success {
		return s.d.fail(call, r, "tick %d of stream %d", tick, s.id)
	}
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	s.marks.advance(&s.d.events, tick)
	return nil
}

// A wait is a goroutine that sleeps until a tick of a stream is done.
type wait struct {
	done chan struct{}
	err  error // set before done is closed
}

// waiter returns the stream's wait, and starts one for tick if there is none. A caller that needs a later tick than
// that of the wait calls waiter again afterwards. It returns nil if tick is done.
func (s *stream) waiter(tick uint64) *wait {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if tick <= s.marks.passed.Load() {
		return nil
	}
	if w := s.marks.waiting; w != nil {
		return w
	}
	w := &wait{done: make(chan struct{})}
	s.marks.waiting = w
	go func() {
		const call = "Stream.Sync"
		if w.err = s.d.enter(call); w.err == nil {
			w.err = s.sleep(call, tick)
			s.d.leave()
		}
		s.marks.mu.Lock()
		s.marks.waiting = nil
		s.marks.mu.Unlock()
		close(w.done)
	}()
	return w
}
