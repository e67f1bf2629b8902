package engine

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/internal/callsite"
	"github.com/ashlar-go/ashlar/internal/goroutine"
)

// tasksLane is the name under which the events of tasks are recorded: one row for all of a device's.
const tasksLane = "EachDevice"

// maxQueued is the maximum number of calls of EachDevice that run or are queued; further calls wait.
const maxQueued = 16

// workers run the tasks of EachDevice on one goroutine for each device, from the first call until Close. A call's tasks
// are queued on all its devices at once, under mu. So calls whose tasks wait for each other, as in collectives, begin
// in the same order on all devices. A task is in its device's queue until the worker runs it or its call drops it.
type workers struct {
	engine *Engine
	slots  chan struct{} // holds a token for each call that is under way
	quit   chan struct{} // closed: workers end when they have nothing to do

	mu     sync.Mutex // a leaf
	ended  bool
	queues []*queue // of the devices; nil before the first call
}

// A queue is a device's worker and its tasks.
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
	started bool         // on some device: then Close lets it begin on the others; guarded by workers.mu
}

// A PanicError is the error of a task of EachDevice that panicked, or that called runtime.Goexit: then Value is
// "runtime.Goexit".
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

// A panicCause is a PanicError as the cause of other errors. It prints no stack: the error of EachDevice does.
type panicCause struct{ panicked *PanicError }

func (c panicCause) Error() string { return c.panicked.brief() }

// Unwrap returns the PanicError.
func (c panicCause) Unwrap() error { return c.panicked }

func newWorkers(e *Engine) *workers {
	return &workers{engine: e, slots: make(chan struct{}, maxQueued), quit: make(chan struct{})}
}

// EachDevice calls f once for each device, or for each of the named devices, at the same time. Each call is a task: it
// runs on its device's goroutine, with a session of its own on the device. The session is closed when f returns;
// Session.Keep keeps tensors beyond it, and Session.CopyTo copies to all devices of the engine. A task need not wait
// for the work that it queues: work of later tasks on the device is ordered after it.
//
// EachDevice returns when all its tasks have ended, with the first error, if any. That error is the cause with which
// the context of the other tasks is cancelled. Tasks that have not begun by then are dropped, and also when ctx ends:
// then the error is ctx's cause. A task that panics gives a *PanicError, and its device's communicator is aborted,
// since other ranks may wait for it. Engine.Close lets a call go on if one of its tasks has begun, and ends other calls
// with ErrClosed.
//
// Up to 16 calls may run or be queued; further calls wait until one ends or ctx ends. EachDevice panics inside a task
// of the same engine, since it would wait for itself.
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
	return e.workers.run(ctx, f, callsite.Here(), devices)
}

func (w *workers) run(ctx context.Context, f func(context.Context, *Session) error, from *site, devices []int) error {
	w.mustBeOutside(from)
	select { // first, since the select below takes any channel that is ready
	case <-w.quit:
		return ErrClosed
	default:
	}
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
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

// queue queues a task on devices, and returns the number of devices.
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

// drop removes a task from the devices where it has not begun, and returns their number.
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

// work runs a device's tasks until the workers end. If a task ends the goroutine, another replaces it.
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
			w.runTask(q, t)
		default:
			select {
			case <-q.wake:
			case <-w.quit:
			}
		}
	}
}

// next removes and returns the next task of a queue; nil if there is none, and then end says whether the workers ended.
func (w *workers) next(q *queue) (t *task, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(q.tasks) > 0 {
		t = q.tasks[0]
		t.started = true
		q.tasks = slices.Delete(q.tasks, 0, 1)
	}
	return t, t == nil && w.ended
}

// runTask runs a task, unless its call has ended and has not dropped it yet.
func (w *workers) runTask(q *queue, t *task) {
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
			w.engine.communicators.abort(q.device, panicCause{panicked})
			err = panicked
		}
		t.results <- err
	}()
	err = w.engine.runInSession(t, q.device)
	finished = true
}

// runInSession runs a task in a session of its own, and closes the session however the task ends.
func (e *Engine) runInSession(t *task, device int) (err error) {
	s, err := e.newSession(t.from, []int{device}, true, nil)
	if err != nil {
		return err
	}
	if err := s.enter("EachDevice"); err != nil {
		return err // Close came first, and closes it
	}
	s.guard.setSite(t.from)
	s.task = true
	s.name, s.devices[device].lane = tasksLane, e.devices[device].tasks
	defer func() {
		if e := s.close(); err == nil {
			err = e
		}
		s.guard.leave()
	}()
	return t.f(t.ctx, s)
}

// stop ends calls of which no task has begun, and waits until the others have ended, or ctx ends.
func (w *workers) stop(ctx context.Context) error {
	w.mu.Lock()
	if !w.ended {
		w.ended = true
		close(w.quit)
	}
	queues := w.queues
	for _, q := range queues {
		q.tasks = slices.DeleteFunc(q.tasks, func(t *task) bool {
			if !t.started {
				t.results <- ErrClosed
			}
			return !t.started
		})
	}
	w.mu.Unlock()
	for _, q := range queues {
		select {
		case <-q.done:
		case <-ctx.Done():
			return fmt.Errorf("engine: Close: the tasks of EachDevice on device %d have not ended: %w", q.device,
				context.Cause(ctx))
		}
	}
	return nil
}
