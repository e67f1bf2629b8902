package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// elsewhere calls f on another goroutine, and waits for it.
func elsewhere(f func()) {
	var done sync.WaitGroup
	done.Go(f)
	done.Wait()
}

func TestSessionFromTwoGoroutines(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 2})
	s := session(t, e)
	scopes := map[string]func(inside func()){
		"WithDevice": func(f func()) { s.WithDevice(1, func() error { f(); return nil }) },
		"OnDevice":   func(f func()) { s.OnDevice(1, func() error { f(); return nil }) },
		"WithDebug":  func(f func()) { s.WithDebug(1, func() error { f(); return nil }) },
	}
	calls := map[string]func(){
		"Place":        func() { s.Place() },
		"Device":       func() { s.Device() },
		"OnDevice":     func() { s.OnDevice(0, func() error { return nil }) },
		"UsedMemory":   func() { s.UsedMemory() },
		"Collect":      func() { s.Collect(t.Context()) },
		"Sync":         func() { s.Sync(t.Context()) },
		"ReserveCache": func() { s.ReserveCache(1) },
		"Close":        func() { s.Close() },
	}
	for scope, open := range scopes {
		for call, f := range calls {
			open(func() {
				elsewhere(func() {
					testkit.Contains(t, testkit.Panic(t, f),
						"engine: session used from two goroutines at once: "+call+" at session_test.go:",
						"while another is inside "+scope+" at session_test.go:")
				})
				s.Place() // still its owner's
			})
		}
	}
	elsewhere(func() { // no scope is open: another goroutine may use the session
		testkit.Must(t, s.WithDevice(1, func() error { s.Place(); return nil }))
	})
	s.Place()
}

// Two short calls that overlap are detected too. A lock that the test holds delays one of them in the device.
func TestSessionCallsThatOverlap(t *testing.T) {
	c, devs := onSim(t, 1, Config{})
	var once sync.Once
	freeing, goOn := make(chan struct{}), make(chan struct{})
	slow := intercept.Wrap(devs[0], func(c intercept.Call, next func() error) error {
		if c.Kind == intercept.Free {
			once.Do(func() { close(freeing); <-goOn })
		}
		return next()
	})
	c.Devices[0].Spec = prepare(t, func() (driver.Device, error) { return slow, nil })
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	s, err := e.NewSession()
	testkit.Must(t, err)
	floats(t, s.Place(), 1).Release() // Collect has something to free

	var other sync.WaitGroup
	other.Go(func() { testkit.Must(t, s.Collect(t.Context())) })
	<-freeing
	testkit.Contains(t, testkit.Panic(t, func() { s.UsedMemory() }),
		"two goroutines at once: UsedMemory", "inside Collect at session_test.go:")
	close(goOn)
	other.Wait()
	s.UsedMemory()
	testkit.Must(t, s.Close())
	testkit.Must(t, e.Close(t.Context()))
	wellLeft(t, devs[0])
}

// However a scope ends, the previous state is restored, and other goroutines may use the session.
func TestScopesAreRestored(t *testing.T) {
	e, _ := simulated(t, 2, Config{EventLevel: 9, Devices: []DeviceConfig{{Allocator: "arena:size=8MiB"}, {Allocator: "arena:size=8MiB"}}})
	s := session(t, e)
	testkit.Must(t, s.ReserveCache(1<<20))
	failed := errors.New("failed")
	ways := map[string]struct {
		out  func() error
		want error
	}{
		"return": {out: func() error { return nil }},
		"error":  {out: func() error { return failed }, want: failed},
		"panic":  {out: func() error { panic(failed) }},
		"Goexit": {out: func() error { runtime.Goexit(); return nil }},
		"event":  {out: func() error { s.Event("not ended"); s.Event("neither"); return nil }},
	}
	scopes := map[string]func(func() error) error{
		"WithDevice": func(f func() error) error { return s.WithDevice(1, f) },
		"OnDevice":   func(f func() error) error { return s.OnDevice(1, f) },
		"WithDebug":  func(f func() error) error { return s.WithDebug(3, f) },
		"UseCache":   func(f func() error) error { return s.UseCache(f) },
		"WithAllocOptions": func(f func() error) error {
			return s.WithAllocOptions(mem.AllocOptions{NoRetry: true}, f)
		},
		"all of them": func(f func() error) error {
			return s.WithDevice(1, func() error {
				return s.OnDevice(0, func() error {
					return s.UseCache(func() error { return s.WithDebug(7, func() error { return s.OnDevice(1, f) }) })
				})
			})
		},
	}
	arena := e.Allocator(0)
	for scope, within := range scopes {
		for way, w := range ways {
			t.Run(scope+"/"+way, func(t *testing.T) {
				elsewhere(func() {
					defer func() { recover() }()
					if err := within(w.out); err != w.want {
						t.Errorf("got the error %v, want %v", err, w.want)
					}
				})
				if s.options != nil {
					t.Errorf("options %+v of allocations, want none", *s.options)
				}
				if s.Device() != 0 || s.Debug() != 0 {
					t.Errorf("device %d and debug level %d, want 0 and 0", s.Device(), s.Debug())
				}
				testkit.Must(t, s.WithDevice(1, func() error { return nil })) // none is active
				before := liveBytes(arena)
				x := floats(t, s.Place().Unscoped(), 1024)
				if liveBytes(arena) == before {
					t.Error("memory still comes from the cache")
				}
				x.Release()
			})
		}
	}
}

// liveBytes returns the bytes of an allocator's own blocks that are allocated.
func liveBytes(a mem.Allocator) int64 {
	r, _ := mem.Find[mem.StatsReporter](a)
	return r.Stats().AllocatedBytes.All.Current
}

func TestDevicesOfASession(t *testing.T) {
	e, _ := simulated(t, 3, Config{})
	s := session(t, e, 2, 0)
	if got := s.Devices(); !slices.Equal(got, []int{0, 2}) || s.Device() != 2 {
		t.Errorf("devices %v and current %d, want 0 and 2, and 2", got, s.Device())
	}
	if err := s.OnDevice(1, func() error { t.Error("called"); return nil }); err == nil {
		t.Error("OnDevice of a device that the session does not have: no error")
	}
	testkit.Must(t, s.WithDevice(0, func() error {
		if !s.Place().SameDevice(e.Place(0)) {
			t.Error("the place is not on device 0")
		}
		testkit.Contains(t, testkit.Panic(t, func() { s.WithDevice(2, nil) }),
			"WithDevice at session_test.go:", "inside WithDevice(0) at session_test.go:")
		return s.OnDevice(2, func() error {
			testkit.Contains(t, testkit.Panic(t, func() { s.WithDevice(2, nil) }),
				"inside OnDevice(2) at session_test.go:")
			if !s.Place().SameDevice(e.Place(2)) {
				t.Error("the place is not on device 2")
			}
			return nil
		})
	}))
	testkit.Contains(t, testkit.Panic(t, func() { e.NewSession(3) }),
		"NewSession of device 3: the engine has 3, from 0 on")
}

// Each session has its own streams. Closing a session returns its stream for the next one.
func TestSessionStreams(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	a, b := session(t, e), session(t, e)
	first := a.Place().Stream()
	if first == b.Place().Stream() || first.ID() == 0 {
		t.Error("two sessions share a stream, or use the default one")
	}
	testkit.Must(t, a.Close())
	if c := session(t, e); c.Place().Stream() != first {
		t.Error("a stream was not used again")
	}
}

func TestSessionReleasesItsTensors(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	s := session(t, e)
	x := floats(t, s.Place(), 1000)
	y, err := compute.Add(s.Place(), x, x)
	testkit.Must(t, err)
	kept := s.Keep(y)
	if n := e.Place(0).Leaks().Count; n != 2 {
		t.Fatalf("%d storages alive, want 2", n)
	}
	testkit.Must(t, s.Close())
	if n := e.Place(0).Leaks().Count; n != 1 {
		t.Errorf("%d storages alive after Close, want the one that was kept", n)
	}
	if kept.Place().Stream() != e.Place(0).Stream() {
		t.Error("what was kept needs the session's stream")
	}
	if got, err := tensor.ToSlice[float32](kept); err != nil || !slices.Equal(got, make([]float32, 1000)) {
		t.Errorf("what was kept is %v, %v", got, err)
	}
	kept.Release()
}

// Used and peak memory count the bytes requested through this session only, and frees by any goroutine.
func TestSessionMemory(t *testing.T) {
	e, _ := simulated(t, 2, Config{})
	s, other := session(t, e), session(t, e)
	check := func(what string, used, peak int64) {
		t.Helper()
		if s.UsedMemory() != used || s.PeakMemory() != peak {
			t.Errorf("%s: used %d and peak %d, want %d and %d", what, s.UsedMemory(), s.PeakMemory(), used, peak)
		}
	}
	check("fresh", 0, 0)
	x := floats(t, s.Place(), 25)
	y := floats(t, s.Place(), 50)
	floats(t, other.Place(), 1000)
	check("two tensors", 300, 300)
	x.Release()
	check("one released", 200, 300)
	kept := s.Keep(y)
	testkit.Must(t, s.OnDevice(1, func() error {
		check("another device", 0, 0)
		floats(t, s.Place(), 1)
		check("another device", 4, 4)
		return nil
	}))
	check("kept", 200, 300)
	floats(t, s.Place(), 100)
	check("more", 600, 600)
	testkit.Must(t, s.Close())
	if s.usageOf(0) != 200 {
		t.Errorf("%d bytes used after Close, want those of the tensor that was kept", s.usageOf(0))
	}
	next := session(t, e) // on the same stream
	if next.UsedMemory() != 0 {
		t.Errorf("a session begins with %d bytes", next.UsedMemory())
	}
	kept.Release()
	if s.usageOf(0) != 0 || next.UsedMemory() != 0 {
		t.Errorf("%d and %d bytes used at the end, want none", s.usageOf(0), next.UsedMemory())
	}
}

func (s *Session) usageOf(i int) int64 { return s.devices[i].usage.used.Load() }

// Collect frees tensors that were dropped without a release, and returns cached memory to the device.
func TestCollect(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	s := session(t, e)
	before, err := e.DeviceInfo(0)
	testkit.Must(t, err)
	func() { floats(t, s.Place().Unscoped(), 1<<20) }()
	testkit.Must(t, s.Collect(t.Context()))
	after, err := e.DeviceInfo(0)
	testkit.Must(t, err)
	if before.Peak = 4 << 20; after != before {
		t.Errorf("after Collect\n%+v, want\n%+v", after, before)
	}
	if l := e.Place(0).Leaks(); l.Count != 0 || l.Dropped != 1 {
		t.Errorf("leaks: %v", l)
	}
}

// A Collect that its context stops returns the cause.
func TestCollectUnderAnEndedContext(t *testing.T) {
	e, _ := simulated(t, 1, Config{})
	s := session(t, e)
	floats(t, s.Place(), 1<<20).Release()
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := s.Collect(ctx); !errors.Is(err, stop) {
		t.Errorf("got %v, want %v", err, stop)
	}
}

// There are more sessions than the pool keeps streams. Tensors that they kept are used by others, and released, after
// their streams are closed.
func TestManySessions(t *testing.T) {
	for _, allocator := range []string{"caching", "arena:size=16MiB", "bfc", "direct", "paged"} {
		t.Run(allocator, func(t *testing.T) {
			dev := drivertest.OpenSim(t, 256<<20)
			e, err := Open(t.Context(), Config{EventLevel: 2, Devices: []DeviceConfig{{
				Spec: prepare(t, func() (driver.Device, error) { return dev, nil }), Allocator: allocator,
			}}})
			testkit.Must(t, err)
			e.devices[0].streams.Keep(16)
			const n = 50
			one, err := tensor.FromSlice(e.Place(0), []float32{1})
			testkit.Must(t, err)
			sessions, kept := make([]*Session, n), make([]*tensor.Tensor, 2*n)
			add := func(p *tensor.Place, x, y *tensor.Tensor) *tensor.Tensor {
				z, err := compute.Add(p, x, y)
				testkit.Must(t, err)
				return z
			}
			for i := range sessions {
				sessions[i], err = e.NewSession()
				testkit.Must(t, err)
				kept[i] = sessions[i].Keep(add(sessions[i].Place(), one, one))
			}
			for i, s := range sessions {
				s.Event("add").End()
				kept[n+i] = s.Keep(add(s.Place(), kept[i], kept[(i+1)%n]))
			}
			for _, s := range sessions {
				testkit.Must(t, s.Close())
			}
			s, err := e.NewSession()
			testkit.Must(t, err)
			for i, x := range kept {
				want := float32(3 + 2*(i/n))
				if got, err := tensor.ToSlice[float32](add(s.Place(), x, one)); err != nil || got[0] != want {
					t.Fatalf("tensor %d and 1 are %v, %v; want %v", i, got, err, want)
				}
				x.Release()
			}
			if all, err := e.Events(t.Context()); err != nil || len(all[0].Spans) != n {
				t.Errorf("%d events, %v", len(all[0].Spans), err)
			}
			testkit.Must(t, s.Close())
			one.Release()
			testkit.Must(t, e.Close(t.Context()))
			wellLeft(t, dev)
		})
	}
}

// A session's figures stay correct when its blocks move, and when others free them.
func TestUsedMemoryFollowsMoves(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "arena:size=1MiB", MemoryLimit: 1 << 20}}})
	s, other := session(t, e), session(t, e)
	gap := floats(t, s.Place(), 1000)
	x := floats(t, other.Place(), 50)
	floats(t, s.Place(), 100)
	gap.Release()
	testkit.Must(t, other.Collect(t.Context()))
	if s.UsedMemory() != 400 || other.UsedMemory() != 200 || s.PeakMemory() != 4400 {
		t.Errorf("used %d, peak %d and used %d; want 400, 4400 and 200", s.UsedMemory(), s.PeakMemory(), other.UsedMemory())
	}
	kept := s.Keep(x)
	testkit.Must(t, other.Close())
	testkit.Must(t, s.Collect(t.Context()))
	if other.usageOf(0) != 200 {
		t.Errorf("used %d after Close, want 200", other.usageOf(0))
	}
	kept.Release()
	testkit.Must(t, s.Close())
	if d := e.devices[0]; other.usageOf(0) != 0 || d.allocator.liveBytes() != 0 {
		t.Errorf("at the end %d and %d bytes are allocated", other.usageOf(0), d.allocator.liveBytes())
	}
}

// A wishList records the options of each request.
type wishList struct {
	mem.Allocator
	got []mem.AllocOptions
}

func (w *wishList) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	w.got = append(w.got, o)
	return mem.AllocWith(w.Allocator, s, size, o)
}

func (w *wishList) Unwrap() mem.Allocator { return w.Allocator }

// TestDefect19_SessionPassesAllocOptions: the allocator receives the options of WithAllocOptions with the requests made
// inside it, and with no others.
func TestDefect19_SessionPassesAllocOptions(t *testing.T) {
	lists := make([]*wishList, 2)
	var devices []DeviceConfig
	for i := range lists {
		lists[i] = &wishList{}
		devices = append(devices, DeviceConfig{Wrap: func(a mem.Allocator) mem.Allocator {
			lists[i].Allocator = a
			return lists[i]
		}})
	}
	e, _ := simulated(t, 2, Config{Devices: devices})
	s := session(t, e)
	logged := func(i int) (n int) {
		for _, o := range lists[i].got {
			if o.Logged {
				n++
			}
		}
		return n
	}
	x := floats(t, s.Place(), 1000)
	if n := logged(0); n != 0 {
		t.Errorf("%d requests outside have options", n)
	}
	testkit.Must(t, s.WithAllocOptions(mem.AllocOptions{Logged: true}, func() error {
		y, err := compute.Add(s.Place(), x, 1)
		if err != nil {
			return err
		}
		if n := logged(0); n == 0 {
			t.Error("the result's request has no options")
		}
		if _, err := s.CopyTo(t.Context(), y, 1); err != nil {
			return err
		}
		if n := logged(1); n == 0 {
			t.Error("the copy's request has no options")
		}
		before := logged(0)
		z, err := compute.Add(nil, y, 1)
		if err == nil {
			z.Release()
		}
		if n := logged(0); n != before {
			t.Error("a request with no place has options")
		}
		return err
	}))
	before := logged(0)
	floats(t, s.Place(), 1000)
	if n := logged(0); n != before {
		t.Error("options outlive their scope")
	}
}
