package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/internal/goroutine"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

func TestEachDevice(t *testing.T) {
	e, _ := simulated(t, 3, Config{})
	var workers [3]atomic.Uintptr
	for range 5 {
		testkit.Must(t, e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
			i := s.Device()
			if !s.Place().SameDevice(e.Place(i)) || len(s.Devices()) != 1 {
				t.Errorf("the session of device %d has %v", i, s.Devices())
			}
			if me := goroutine.ID(); !workers[i].CompareAndSwap(0, me) && workers[i].Load() != me {
				t.Errorf("a task of device %d is on another goroutine than the last", i)
			}
			_, err := compute.Add(s.Place(), floats(t, s.Place(), 100), floats(t, s.Place(), 1))
			return err // what was made is released with the session
		}))
	}
	if workers[0].Load() == workers[1].Load() || workers[1].Load() == workers[2].Load() {
		t.Error("two devices have one worker")
	}
}

// A call may name some devices, each once, and its tasks may copy to others. Tensors made there are released with the
// tasks' sessions.
func TestDefect20_TasksOnSomeDevicesCopyToOthers(t *testing.T) {
	e, _ := simulated(t, 3, Config{EventLevel: 2})
	for _, devices := range [][]int{{1}, {2, 0, 2}} {
		var mu sync.Mutex
		var on []int
		var kept []*tensor.Tensor
		testkit.Must(t, e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
			x, err := tensor.FromSlice(s.Place(), []float32{float32(s.Device()), 7})
			testkit.Must(t, err)
			s.Event("copy")
			y, err := s.CopyTo(ctx, x, 1)
			testkit.Must(t, err)
			again, err := s.CopyTo(ctx, x, 1)
			testkit.Must(t, err)
			if y != again || !y.Place().SameDevice(e.Place(1)) {
				t.Errorf("a copy of %v at %v, and then another at %v", x, y.Place(), again.Place())
			}
			if got := s.Devices(); !slices.Equal(got, []int{s.Device()}) {
				t.Errorf("the session of a task has devices %v", got)
			}
			if err := s.OnDevice((s.Device()+1)%3, func() error { return nil }); err == nil {
				t.Error("a task works on another device")
			}
			if _, err := s.CopyTo(ctx, x, 3); err == nil {
				t.Error("a copy to a device that there is not")
			}
			mu.Lock()
			defer mu.Unlock()
			on = append(on, s.Device())
			kept = append(kept, s.Keep(y))
			return nil
		}, devices...))
		slices.Sort(on)
		if want := slices.Compact(slices.Sorted(slices.Values(devices))); !slices.Equal(on, want) {
			t.Errorf("tasks on %v, want %v", on, want)
		}
		for _, y := range kept {
			if got, err := tensor.ToSlice[float32](y); err != nil || got[1] != 7 {
				t.Errorf("what was kept is %v, %v", got, err)
			}
			y.Release()
		}
		for i := range 3 {
			if n := e.Place(i).Leaks().Count; n != 0 {
				t.Errorf("%d tensors left on device %d", n, i)
			}
		}
	}
	testkit.Contains(t, testkit.Panic(t, func() { e.EachDevice(t.Context(), nil, 3) }),
		"EachDevice of device 3: the engine has 3")
	s := session(t, e, 0)
	if _, err := s.CopyTo(t.Context(), floats(t, s.Place(), 1), 1); err == nil {
		t.Error("a session that is no task's copies to a device that it does not have")
	}
}

// The call returns the first error, which cancels running tasks and tasks that have not begun.
func TestFirstErrorCancelsTheRest(t *testing.T) {
	e, _ := simulated(t, 3, Config{})
	failed := errors.New("failed")
	var began atomic.Int32
	err := e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
		began.Add(1)
		if s.Device() == 1 {
			return failed
		}
		<-ctx.Done()
		if context.Cause(ctx) != failed {
			t.Errorf("the cause is %v, want %v", context.Cause(ctx), failed)
		}
		return errors.New("a later error")
	})
	if err != failed {
		t.Errorf("got %v, want %v", err, failed)
	}
	if n := began.Load(); n > 3 {
		t.Errorf("%d tasks began", n)
	}
}

func TestWorkerPanics(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 2})
	cause := errors.New("a bug")
	err := e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
		if s.Device() == 0 {
			<-ctx.Done()
			return nil
		}
		floats(t, s.Place(), 100)
		s.Event("not ended")
		return s.OnDevice(1, func() error { panic(cause) })
	})
	var p *PanicError
	if !errors.As(err, &p) || p.Value != any(cause) || p.Device != 1 || !errors.Is(err, cause) {
		t.Fatalf("got %v, want the panic of device 1", err)
	}
	if !strings.Contains(string(p.Stack), "TestWorkerPanics") || !strings.Contains(err.Error(), "device 1 panicked: a bug") {
		t.Errorf("the error does not show the stack: %v", err)
	}
	err = e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
		if s.Device() == 1 {
			runtime.Goexit()
		}
		return nil
	})
	if !errors.As(err, &p) || p.Value != "runtime.Goexit" || p.Device != 1 {
		t.Fatalf("got %v, want that the task of device 1 ended its goroutine", err)
	}
	var calls atomic.Int32
	for range 3 { // the workers live on
		testkit.Must(t, e.EachDevice(t.Context(), func(context.Context, *Session) error { calls.Add(1); return nil }))
	}
	if calls.Load() != 6 {
		t.Errorf("%d tasks done, want 6", calls.Load())
	}
	if n := e.Place(1).Leaks().Count; n != 0 {
		t.Errorf("%d tensors of the task that panicked are alive", n)
	}
}

func TestTaskQueuedAtClose(t *testing.T) {
	c, devs := onSim(t, 2, Config{})
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	running, finish := make(chan struct{}, 2), make(chan struct{})
	var first, calls sync.WaitGroup
	first.Go(func() {
		testkit.Must(t, e.EachDevice(context.Background(), func(ctx context.Context, s *Session) error {
			running <- struct{}{}
			<-finish
			floats(t, s.Place(), 10) // work goes on
			return nil
		}))
	})
	<-running
	<-running
	for range 30 { // more than may be under way: some are queued, some wait to be
		calls.Go(func() {
			err := e.EachDevice(context.Background(), func(context.Context, *Session) error {
				t.Error("a task began after Close")
				return nil
			})
			if !errors.Is(err, ErrClosed) {
				t.Errorf("a task queued at Close: %v, want %v", err, ErrClosed)
			}
		})
	}
	for e.workers.waiting() < 2*(maxQueued-1) { // until the queues are full
		runtime.Gosched()
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(short); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "device 0") {
		t.Errorf("Close while tasks run: %v", err)
	}
	calls.Wait() // while the first call's tasks still run
	close(finish)
	testkit.Must(t, e.Close(t.Context()))
	first.Wait()
	for _, dev := range devs {
		wellLeft(t, dev)
	}
}

// waiting returns how many tasks are queued.
func (w *workers) waiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		n += len(q.tasks)
	}
	return n
}

// When the context ends, tasks that have not begun are dropped, including those that wait for a slot. The call waits
// for running tasks.
func TestEachDeviceEndsWithItsContext(t *testing.T) {
	e, _ := simulated(t, 2, Config{})
	running, finish := make(chan struct{}, 2), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		testkit.Must(t, e.EachDevice(t.Context(), func(context.Context, *Session) error {
			running <- struct{}{}
			<-finish
			return nil
		}))
	})
	<-running
	<-running
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	var others sync.WaitGroup
	for range 2 * maxQueued {
		others.Go(func() {
			err := e.EachDevice(ctx, func(context.Context, *Session) error { t.Error("began"); return nil })
			if err != stop {
				t.Errorf("got %v, want %v", err, stop)
			}
		})
	}
	for e.workers.waiting() < 2*(maxQueued-1) {
		runtime.Gosched()
	}
	cancel(stop)
	others.Wait() // while the first call's tasks still run
	close(finish)
	first.Wait()

	ctx, cancel = context.WithCancelCause(t.Context())
	var ended atomic.Int32
	err := e.EachDevice(ctx, func(inner context.Context, s *Session) error {
		cancel(stop)
		<-inner.Done()
		ended.Add(1)
		return context.Cause(inner)
	})
	if err != stop {
		t.Errorf("got %v, want %v", err, stop)
	}
	if ended.Load() == 0 {
		t.Error("EachDevice did not wait for a task that ran")
	}
}

// If the tasks of each of two calls wait for each other, as in collectives, they begin in the same order on all
// devices.
func TestCallsOfEachDeviceDoNotCross(t *testing.T) {
	e, _ := simulated(t, 3, Config{})
	var calls sync.WaitGroup
	for range 10 {
		var meeting sync.WaitGroup
		meeting.Add(3)
		calls.Go(func() {
			testkit.Must(t, e.EachDevice(t.Context(), func(context.Context, *Session) error {
				meeting.Done()
				meeting.Wait()
				return nil
			}))
		})
	}
	calls.Wait()
}

func TestEachDeviceInsideATask(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	testkit.Must(t, e.EachDevice(t.Context(), func(ctx context.Context, s *Session) error {
		testkit.Contains(t, testkit.Panic(t, func() { e.EachDevice(ctx, nil) }),
			"EachDevice at workers_test.go:", "inside a task")
		testkit.Contains(t, testkit.Panic(t, func() { e.Close(ctx) }),
			"Engine.Close at workers_test.go:", "inside EachDevice at workers_test.go:")
		elsewhere(func() { testkit.Contains(t, testkit.Panic(t, func() { s.Place() }), "two goroutines at once") })
		return nil
	}))
}

// A call after Close returns ErrClosed, also on a goroutine that reuses the identity of a worker that has ended.
func TestEachDeviceAfterItsWorkers(t *testing.T) {
	c, _ := onSim(t, 4, Config{})
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	testkit.Must(t, e.EachDevice(t.Context(), func(context.Context, *Session) error { return nil }))
	testkit.Must(t, e.Close(t.Context()))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := e.EachDevice(t.Context(), nil); err != ErrClosed {
				t.Errorf("got %v, want %v", err, ErrClosed)
			}
		})
	}
	all.Wait()
}

// No task begins under a context that has ended, even if its worker is faster than the call that drops its tasks.
func TestEachDeviceUnderAnEndedContext(t *testing.T) {
	e, _ := simulated(t, 2, Config{})
	stop := errors.New("stop")
	for range 100 {
		ctx, cancel := context.WithCancelCause(t.Context())
		running, finish := make(chan struct{}, 2), make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() {
			testkit.Must(t, e.EachDevice(t.Context(), func(context.Context, *Session) error {
				running <- struct{}{}
				<-finish
				cancel(stop)
				return nil
			}))
		})
		<-running
		<-running
		never := func(context.Context, *Session) error { t.Error("began"); return nil }
		calls.Go(func() {
			if err := e.EachDevice(ctx, never); err != stop {
				t.Errorf("got %v, want %v", err, stop)
			}
		})
		for e.workers.waiting() < 2 {
			runtime.Gosched()
		}
		close(finish)
		calls.Wait()
		if err := e.EachDevice(ctx, never); err != stop {
			t.Errorf("after the end: %v, want %v", err, stop)
		}
	}
}

// A task may use another engine's devices.
func TestEachDeviceOfTwoEngines(t *testing.T) {
	a, _ := simulated(t, 2, Config{})
	b, _ := simulated(t, 2, Config{})
	var calls atomic.Int32
	testkit.Must(t, a.EachDevice(t.Context(), func(ctx context.Context, _ *Session) error {
		return b.EachDevice(ctx, func(context.Context, *Session) error { calls.Add(1); return nil })
	}))
	if calls.Load() != 4 {
		t.Errorf("%d tasks, want 4", calls.Load())
	}
}
