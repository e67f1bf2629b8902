package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// After Close every method of the engine and its sessions returns ErrClosed, nothing crashes, and no device is called.
func TestDeviceAfterClose(t *testing.T) {
	c, devs := onSim(t, 2, Config{EventLevel: 9, Devices: []DeviceConfig{{Allocator: "arena:size=8MiB"}, {MemoryLimit: 1 << 20}}})
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	s, err := e.NewSession()
	testkit.Must(t, err)
	early := e.Place(0)
	kept := s.Keep(floats(t, s.Place(), 4))
	event := s.Event("not ended")
	event.End()
	ctx := context.Background()
	if err := e.Close(ctx); !errors.Is(err, ErrAlive) {
		t.Fatalf("Close: %v, want %v: a session and a tensor are alive", err, ErrAlive)
	}
	hashes := [2]uint64{devs[0].Hash(), devs[1].Hash()}

	nothing := func() error { return nil }
	failing := map[string]func() error{
		"NewSession":               func() error { _, err := e.NewSession(); return err },
		"DeviceInfo":               func() error { _, err := e.DeviceInfo(1); return err },
		"Handles":                  func() error { _, err := e.Handles(0); return err },
		"Freeze":                   func() error { return e.Freeze(0) },
		"MemorySummary":            func() error { return e.MemorySummary(io.Discard) },
		"EachDevice":               func() error { return e.EachDevice(ctx, func(context.Context, *Session) error { return nil }) },
		"Events":                   func() error { _, err := e.Events(ctx); return err },
		"ResetEvents":              func() error { return e.ResetEvents(ctx) },
		"WriteTree":                func() error { return e.WriteTree(ctx, io.Discard) },
		"WriteTimeline":            func() error { return e.WriteTimeline(ctx, io.Discard) },
		"Communicator":             func() error { _, err := e.Communicator(0); return err },
		"Allocator.Alloc":          func() error { _, err := e.Allocator(1).Alloc(early.Stream(), 1); return err },
		"Place":                    func() error { _, err := tensor.Zeros(e.Place(1), dtype.Float32, 3); return err },
		"a place from before":      func() error { _, err := tensor.Zeros(early, dtype.Float32, 3); return err },
		"Session.WithDevice":       func() error { return s.WithDevice(0, nothing) },
		"Session.OnDevice":         func() error { return s.OnDevice(1, nothing) },
		"Session.WithDebug":        func() error { return s.WithDebug(1, nothing) },
		"Session.Place":            func() error { _, err := tensor.Zeros(s.Place(), dtype.Float32, 3); return err },
		"Session.Place.Sync":       func() error { return s.Place().Sync(ctx) },
		"Session.Collect":          func() error { return s.Collect(ctx) },
		"Session.Sync":             func() error { return s.Sync(ctx) },
		"Session.ReserveCache":     func() error { return s.ReserveCache(1) },
		"Session.UseCache":         func() error { return s.UseCache(nothing) },
		"Session.FreeCache":        s.FreeCache,
		"Session.CopyTo":           func() error { _, err := s.CopyTo(ctx, kept, 1); return err },
		"Session.ClearCopies":      s.ClearCopies,
		"Session.SetEventLevel":    func() error { return s.SetEventLevel(1) },
		"Session.Events":           func() error { _, err := s.Events(ctx); return err },
		"Session.WriteChromeTrace": func() error { return s.WriteChromeTrace(ctx, io.Discard) },
		"Session.Communicator":     func() error { _, err := s.Communicator(); return err },
		"a kept tensor":            func() error { _, err := kept.Clone(nil); return err },
	}
	for name, f := range failing {
		if err := f(); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: %v, want %v", name, err, driver.ErrClosed)
		} else if !errors.Is(err, ErrClosed) && !strings.Contains(name, "tensor") {
			t.Errorf("%s: %v, want %v", name, err, ErrClosed)
		}
	}
	if s.Event("late") != nil || s.UsedMemory() != 0 || s.PeakMemory() != 0 || s.Device() != 0 || s.Debug() != 0 {
		t.Error("a closed session has events, memory, or a device")
	}
	var written bytes.Buffer
	if e.WriteChromeTrace(ctx, &written) == nil || written.Len() > 0 {
		t.Errorf("a closed engine writes %q", &written)
	}
	event.End()
	kept.Release()
	if b := (mem.Block{Ptr: 1, Size: 2, Tag: 3}); mem.Movable(e.Allocator(0), b, nil) {
		t.Error("a block can be moved after Close")
	} else {
		e.Allocator(0).Free(b)
	}
	testkit.Must(t, s.Close())
	testkit.Must(t, e.Close(ctx))
	if e.Devices() != 2 {
		t.Errorf("%d devices, want 2", e.Devices())
	}
	if now := [2]uint64{devs[0].Hash(), devs[1].Hash()}; now != hashes {
		t.Error("a device was called after Close")
	}
}

// After a session is closed, its methods fail and the engine still works.
func TestSessionAfterClose(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	s := session(t, e)
	x := floats(t, e.Place(0), 4)
	testkit.Must(t, s.Close())
	if _, err := tensor.Zeros(s.Place(), dtype.Float32, 3); !errors.Is(err, ErrClosed) {
		t.Errorf("a tensor made at the place of a closed session: %v", err)
	}
	if err := s.Place().Sync(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync: %v", err)
	}
	if _, err := x.Clone(s.Place()); !errors.Is(err, ErrClosed) {
		t.Errorf("Clone: %v", err)
	}
	x.Release()
}

func TestCloseReportsWhatIsAlive(t *testing.T) {
	c, devs := onSim(t, 2, Config{})
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	_, err = e.NewSession(1)
	testkit.Must(t, err)
	floats(t, e.Place(1), 25)
	floats(t, e.Place(1), 25)
	err = e.Close(t.Context())
	var alive *AliveError
	if !errors.As(err, &alive) || !errors.Is(err, ErrAlive) || !errors.Is(err, tensor.ErrLeaked) {
		t.Fatalf("Close: %v", err)
	}
	if len(alive.Sessions) != 1 || !strings.HasPrefix(alive.Sessions[0], "close_test.go:") {
		t.Errorf("sessions alive: %q, want one of close_test.go", alive.Sessions)
	}
	if len(alive.Tensors) != 1 || alive.Tensors[0].Device != 1 || alive.Tensors[0].Leaks.Count != 2 || alive.Tensors[0].Leaks.Bytes != 200 {
		t.Errorf("tensors alive: %+v, want two of 100 bytes on device 1", alive.Tensors)
	}
	if text := err.Error(); !strings.Contains(text, "rig_test.go") {
		t.Errorf("the error does not name the place that made them: %s", text)
	}
	for _, dev := range devs { // everything was closed all the same
		if _, _, err := dev.Available(); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a device was not closed: %v", err)
		}
	}
}

// The report of an unreleased tensor names the engine's setting that records where tensors are made.
func TestDefect24_LeaksTellHowToRecordSites(t *testing.T) {
	c, _ := onSim(t, 1, Config{})
	c.Compute.Sites = false
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	x := floats(t, e.Place(0), 3)
	const want = "engine.Config{Compute: compute.Options{Sites: true}} records it"
	if err := e.Close(t.Context()); !errors.Is(err, ErrAlive) || !strings.Contains(err.Error(), want) {
		t.Errorf("Close: %v, want %q in it", err, want)
	}
	x.Release()
}

// Close waits, until its context ends, for a session that is inside a scope. The session's work continues.
func TestCloseWaitsForScopes(t *testing.T) {
	c, devs := onSim(t, 1, Config{})
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	s, err := e.NewSession()
	testkit.Must(t, err)
	inside, leave := make(chan struct{}), make(chan struct{})
	var worker sync.WaitGroup
	worker.Go(func() {
		testkit.Must(t, s.WithDevice(0, func() error {
			close(inside)
			<-leave
			floats(t, s.Place(), 10) // still works
			return s.OnDevice(0, func() error { return s.Collect(t.Context()) })
		}))
		if err := s.WithDevice(0, func() error { return nil }); !errors.Is(err, ErrClosed) {
			t.Errorf("a scope after Close has begun: %v, want %v", err, ErrClosed)
		}
	})
	<-inside
	short, cancel := context.WithCancel(t.Context())
	cancel()
	err = e.Close(short)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "close_test.go:") {
		t.Errorf("Close while a session is inside a scope: %v, want %v and where it was opened", err, context.Canceled)
	}
	if _, err := e.NewSession(); !errors.Is(err, ErrClosed) {
		t.Errorf("NewSession while Close is under way: %v, want %v", err, ErrClosed)
	}
	if _, _, err := devs[0].Available(); err != nil {
		t.Errorf("the device was closed under a session: %v", err)
	}
	close(leave)
	var alive *AliveError
	if err := e.Close(t.Context()); !errors.As(err, &alive) || len(alive.Sessions) != 1 || alive.Tensors != nil {
		t.Errorf("Close: %v, want the session alone", err)
	}
	worker.Wait()
	wellLeft(t, devs[0])
}

// Close waits for queued work until its context ends, including the work of closed sessions.
func TestCloseWaitsForWork(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "host:total=64MiB"}}})
	testkit.Must(t, err)
	s, err := e.NewSession()
	testkit.Must(t, err)
	running, finish := make(chan struct{}), make(chan struct{})
	done := false
	kernels := s.Place().Device().Kernels()
	testkit.Must(t, kernels.Launch(s.Place().Stream(), driver.Kernel{Name: "slow", Func: func(driver.Memory) error {
		close(running)
		<-finish
		done = true
		return nil
	}}))
	testkit.Must(t, s.Close())
	<-running
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Close while work runs: %v, want %v", err, context.Canceled)
	}
	close(finish)
	testkit.Must(t, e.Close(t.Context()))
	if !done {
		t.Error("Close did not wait")
	}
}

// Close returns errors of queued work that no other call has returned.
func TestCloseReportsErrorsOfWork(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "host:total=64MiB"}}})
	testkit.Must(t, err)
	failed := errors.New("failed")
	p := e.Place(0)
	testkit.Must(t, p.Device().Kernels().Launch(p.Stream(), driver.Kernel{Name: "bad", Func: func(driver.Memory) error {
		return failed
	}}))
	if err := e.Close(t.Context()); !errors.Is(err, failed) {
		t.Errorf("Close: %v, want %v", err, failed)
	}
}

func TestCloseInsideAScope(t *testing.T) {
	e, _ := simulated(t, 1, Config{EventLevel: 2})
	s := session(t, e)
	testkit.Must(t, s.WithDevice(0, func() error {
		testkit.Contains(t, testkit.Panic(t, func() { s.Close() }),
			"Session.Close at close_test.go:", "inside WithDevice at close_test.go:")
		testkit.Contains(t, testkit.Panic(t, func() { e.Close(t.Context()) }),
			"Engine.Close at close_test.go:", "inside WithDevice at close_test.go:")
		return nil
	}))
	if err := e.checkOpen(); err != nil {
		t.Error("a Close that panicked has begun")
	}
	s.Event("one")
	s.Event("two")
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("Close with events that have not ended: %v", err)
	}
	if err := s.WithDevice(0, func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("the session is open: %v", err)
	}
}

func TestMemorySummary(t *testing.T) {
	e, _ := simulated(t, 2, Config{Devices: []DeviceConfig{{MemoryLimit: 24 << 20}, {Allocator: "arena:size=16MiB"}}})
	s := session(t, e)
	floats(t, s.Place(), 1<<20).Release()
	floats(t, s.Place(), 1<<18)
	testkit.Must(t, s.OnDevice(1, func() error { floats(t, s.Place(), 1<<10); return nil }))
	var b bytes.Buffer
	testkit.Must(t, e.MemorySummary(&b))
	want := `device                             total       free         used      peak      limit   reserved  largest hole
0 sim:0 simulated NVIDIA H200  64.00 MiB  42.00 MiB  1024.00 KiB  4.00 MiB  24.00 MiB  22.00 MiB     20.00 MiB
1 sim:0 simulated NVIDIA H200  64.00 MiB  48.00 MiB     4.00 KiB  4.00 KiB          -  16.00 MiB     16.00 MiB
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// A Close whose context has ended loses no errors of the devices, which report each error once.
func TestCloseAgainReportsErrorsOfWork(t *testing.T) {
	e, err := Open(t.Context(), hosts(2))
	testkit.Must(t, err)
	failed := errors.New("failed")
	finish := make(chan struct{})
	launch := func(i int, f func(driver.Memory) error) driver.Stream {
		p := e.Place(i)
		testkit.Must(t, p.Device().Kernels().Launch(p.Stream(), driver.Kernel{Name: "work", Func: f}))
		return p.Stream()
	}
	bad := launch(0, func(driver.Memory) error { return failed })
	launch(1, func(driver.Memory) error { <-finish; return nil })
	at, err := bad.Mark()
	testkit.Must(t, err)
	for reached := false; !reached; {
		reached, err = bad.Reached(at)
		testkit.Must(t, err)
		runtime.Gosched()
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(short); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "device 1") {
		t.Errorf("Close while work runs on device 1: %v", err)
	}
	close(finish)
	if err := e.Close(t.Context()); !errors.Is(err, failed) {
		t.Errorf("Close: %v, want %v", err, failed)
	}
}

// A session that its user closes while Close is under way is not reported as alive.
func TestSessionClosedDuringClose(t *testing.T) {
	c, devs := onSim(t, 1, Config{})
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	s, err := e.NewSession()
	testkit.Must(t, err)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Must(t, s.WithDevice(0, func() error {
		elsewhere(func() {
			if err := e.Close(short); !errors.Is(err, context.Canceled) {
				t.Errorf("Close while a session is inside a scope: %v", err)
			}
		})
		return nil
	}))
	testkit.Must(t, s.Close())
	testkit.Must(t, e.Close(t.Context()))
	wellLeft(t, devs[0])
}

// A call that Close overtakes is refused like a later call, and does not call a closed device.
func TestCallsThatCloseOvertakes(t *testing.T) {
	for range 100 {
		c, _ := onSim(t, 1, Config{EventLevel: 1, Devices: []DeviceConfig{{Allocator: "arena:size=8MiB"}}})
		e, err := Open(t.Context(), c)
		testkit.Must(t, err)
		var all sync.WaitGroup
		for i, f := range []func() error{
			func() error { return e.Freeze(0) },
			func() error { _, err := e.DeviceInfo(0); return err },
			func() error { return e.MemorySummary(io.Discard) },
			func() error { _, err := e.Events(t.Context()); return err },
			func() error { return e.ResetEvents(t.Context()) },
		} {
			all.Go(func() {
				var err error
				for err == nil {
					err = f()
				}
				if err != ErrClosed {
					t.Errorf("call %d: %v, want %v", i, err, ErrClosed)
				}
			})
		}
		runtime.Gosched()
		testkit.Must(t, e.Close(t.Context()))
		all.Wait()
	}
}
