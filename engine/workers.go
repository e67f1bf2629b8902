package engine

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// tasksLane is the name under which the events of tasks are recorded: one row for all of a device's.
const tasksLane = "EachDevice"

// maxQueued is how many calls of EachDevice may be under way; more wait for their turn.
const maxQueued = 16

// workers do the tasks of EachDevice: one goroutine for each device, from the first call until Close. A call's tasks
// are queued on all its devices at once, under mu, so that two calls whose tasks wait for each other (in collectives,
// say) are begun in the same order everywhere. A task is in its device's queue until the worker takes it, and runs
// then, or until its call drops it.
type workers struct {
	engine *Engine
	turns  chan struct{} // holds a token for each call that is under way
	quit   chan struct{} // closed: workers end when they have nothing to do

	mu     sync.Mutex // a leaf
	ended  bool
	queues []*queue // of the devices; nil before the first call
}

// A queue is a device's worker, and what it is to do.
type queue struct {
	device int
	wake   chan struct{}  // holds a token if there may be something new
	done   chan struct{}  // closed when the worker has ended
	id     atomic.Uintptr // of its goroutine
	tasks  []*task        // that have not begun; guarded by workers.mu
}

// A task is a call's part on one device.
type task struct {
	ctx     context.Context
	f       func(context.Context, *Session) error
	from    *site
	results chan<- error // has room
	begun   bool         // on a device: so Close lets it begin on the others, which may be waited for; guarded by workers.mu
}

// A PanicError is a task of EachDevice that panicked, or that ended its goroutine: then Value is "runtime.Goexit".
type PanicError struct {
	Value  any
	Stack  []byte // of the task, as debug.Stack writes it
	Device int
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s\n%s", e.brief(), e.Stack)
}

func (e *PanicError) brief() string {
	return fmt.Sprintf("engine: the task on device %d panicked: %v", e.Device, e.Value)
}

// Unwrap returns what the task panicked with, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A panicCause is a PanicError as the cause of other errors: EachDevice returns the stack, which is to be printed once.
type panicCause struct{ panicked *PanicError }

func (c panicCause) Error() string { return c.panicked.brief() }

// Unwrap returns the PanicError.
func (c panicCause) Unwrap() error { return c.panicked }

func newWorkers(e *Engine) *workers {
	return &workers{engine: e, turns: make(chan struct{}, maxQueued), quit: make(chan struct{})}
}

// EachDevice calls f once for each device, or for each of those that are named, at the same time, each call on the
// goroutine that does all tasks of its device, with a session of its own on that device, which is closed afterwards:
// what is to outlive it is kept (Session.Keep). Session.CopyTo takes a task's tensors to all other devices of the
// engine. EachDevice returns when none of them runs any more, with the first error, if there was one. That error
// cancels the context of the others, as its cause; tasks that have not begun by then are dropped, and so they are when
// ctx ends: the error is ctx's cause. Close refuses calls none of whose tasks has begun, with ErrClosed, and lets the
// others go on. A task that panics is a *PanicError, and the worker lives on; its device's communicator is aborted, for
// others may wait for it. Tasks that queued work need not wait for it: the next on the device finds it in order.
//
// Up to 16 calls may be under way, one doing its tasks and the others queued; more wait, or until ctx ends. It panics
// if it is called from inside a task, which would wait for itself; one of another engine may call it, unless a task of
// this one waits for that.
func (e *Engine) EachDevice(ctx context.Context, f func(ctx context.Context, s *Session) error, devices ...int) error {
	if len(devices) == 0 {
		for i := range e.devices {
			devices = append(devices, i)
		}
	}
	for _, i := range devices {
		e.at("EachDevice", i)
	}
	devices = slices.Compact(slices.Sorted(slices.Values(devices)))
	return e.workers.each(ctx, f, here(), devices)
}

func (w *workers) each(ctx context.Context, f func(context.Context, *Session) error, from *site, devices []int) error {
	w.mustBeOutside(from)
	select { // first: if both are ready, the end counts
	case <-w.quit:
		return ErrClosed
	default:
	}
	select {
	case w.turns <- struct{}{}:
		defer func() { <-w.turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.quit:
		return ErrClosed
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make(chan error, len(devices))
	t := &task{ctx: inner, f: f, from: from, results: results}
	left, err := w.queue(t, devices)
	ended := inner.Done()
	for left > 0 {
		select {
		case e := <-results:
			left--
			if err == nil && e != nil {
				err = e
				cancel(e)
			}
		case <-ended:
			ended = nil
			if n := w.drop(t); n > 0 {
				left -= n
				err = cmp.Or(err, context.Cause(inner))
			}
		}
	}
	return err
}

// mustBeOutside panics inside a task.
func (w *workers) mustBeOutside(from *site) {
	me := goroutine.ID()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.queues, func(q *queue) bool { return q.id.Load() == me }) {
		panic(fmt.Sprintf("engine: EachDevice at %v inside a task of EachDevice", from))
	}
}

// queue queues a task on devices, and returns their number.
func (w *workers) queue(t *task, devices []int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, ErrClosed
	}
	if w.queues == nil {
		for i := range w.engine.devices {
			q := &queue{device: i, wake: make(chan struct{}, 1), done: make(chan struct{})}
			w.queues = append(w.queues, q)
			go w.work(q)
		}
	}
	for _, i := range devices {
		q := w.queues[i]
		q.tasks = append(q.tasks, t)
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return len(devices), nil
}

// drop takes a task off the devices where it has not begun, and returns their number.
func (w *workers) drop(t *task) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if i := slices.Index(q.tasks, t); i >= 0 {
			q.tasks = slices.Delete(q.tasks, i, i+1)
			n++
		}
	}
	return n
}

// work does a device's tasks until the end. A task may end the goroutine: then another goes on.
func (w *workers) work(q *queue) {
	again := true
	defer func() {
		q.id.Store(0) // another goroutine may have it next
		if again {
			go w.work(q)
		} else {
			close(q.done)
		}
	}()
	q.id.Store(goroutine.ID())
	for {
		t, end := w.next(q)
		switch {
		case end:
			again = false
			return
		case t != nil:
			w.do(q, t)
		default:
			select {
			case <-q.wake:
			case <-w.quit:
			}
		}
	}
}

// next takes the next task of a queue, nil if there is none, and then reports whether this is the end.
func (w *workers) next(q *queue) (t *task, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(q.tasks) > 0 {
		t = q.tasks[0]
		t.begun = true
		q.tasks = slices.Delete(q.tasks, 0, 1)
	}
	return t, t == nil && w.ended
}

// do does a task, unless its call is over: each may not have got to dropping it.
func (w *workers) do(q *queue, t *task) {
	err := context.Cause(t.ctx)
	if err != nil {
		t.results <- err
		return
	}
	finished := false
	defer func() {
		if !finished {
			value := recover()
			if value == nil {
				value = "runtime.Goexit"
			}
			panicked := &PanicError{Value: value, Stack: debug.Stack(), Device: q.device}
			w.engine.ranks.abort(q.device, panicCause{panicked})
			err = panicked
		}
		t.results <- err
	}()
	err = w.engine.session(t, q.device)
	finished = true
}

// session does a task in a session of its own, and closes that however the task ends.
func (e *Engine) session(t *task, device int) (err error) {
	s, err := e.newSession(t.from, []int{device}, true)
	if err != nil {
		return err
	}
	if err := s.enter("EachDevice"); err != nil {
		return err // Close came first, and closes it
	}
	s.guard.blame(t.from)
	s.task = true
	s.name, s.seats[device].lane = tasksLane, e.devices[device].tasks
	defer func() {
		if e := s.close(); err == nil {
			err = e
		}
		s.guard.leave()
	}()
	return t.f(t.ctx, s)
}

// stop refuses calls of which nothing has begun, and waits until the others have ended, or ctx ends.
func (w *workers) stop(ctx context.Context) error {
	w.mu.Lock()
	if !w.ended {
		w.ended = true
		close(w.quit)
	}
	queues := w.queues
	for _, q := range queues {
		q.tasks = slices.DeleteFunc(q.tasks, func(t *task) bool {
			if !t.begun {
				t.results <- ErrClosed
			}
			return !t.begun
		})
	}
	w.mu.Unlock()
	for _, q := range queues {
		select {
		case <-q.done:
		case <-ctx.Done():
			return fmt.Errorf("engine: Close: the tasks of EachDevice on device %d have not ended: %w", q.device, context.Cause(ctx))
		}
	}
	return nil
}
