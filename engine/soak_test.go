package engine

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

var soak = flag.Duration("soak", 0, "how long TestSoak runs at least; 0: some windows")

// A server's engine leaks nothing: 64 goroutines open and close sessions, compute, copy, and run out of memory. The
// heap, the goroutines, the descriptors and the memory of the devices do not grow.
func TestSoak(t *testing.T) {
	for _, driver := range []string{"sim", "host"} {
		t.Run(driver, func(t *testing.T) { soakEngine(t, driver+":total=128MiB", driver+":total=128MiB,ordinal=1") })
	}
}

const (
	soakers    = 64
	warmUp     = 2 // windows that are not compared
	minWindows = 6 // that are
)

// A footprint is what the process and the devices use between two windows, when no session is open.
type footprint struct{ heap, goroutines, descriptors, device int64 }

// soakEngine runs windows of work on an engine until *soak has passed, and compares them. Each ends when all its
// sessions are closed and the caches are empty.
func soakEngine(t *testing.T, specs ...string) {
	c := Config{EventLevel: 1, MaxEvents: 1000}
	for i, spec := range specs {
		c.Devices = append(c.Devices, DeviceConfig{Spec: spec, Allocator: []string{"caching", "paged"}[i], MemoryLimit: 96 << 20})
	}
	e, err := Open(t.Context(), c)
	testkit.Must(t, err)
	seed := testkit.Seed(t)
	w := &soakWork{e: e}
	var all []footprint
	start := time.Now()
	for len(all) < warmUp+minWindows || time.Since(start) < *soak {
		w.window(t, seed+uint64(len(all)), len(all) < warmUp)
		all = append(all, w.measure(t))
		if t.Failed() {
			return
		}
	}
	testkit.Must(t, e.Close(context.Background()))
	took := time.Since(start).Round(time.Second)
	t.Logf("%d windows in %v: %d sessions, %d out of memory", len(all), took, w.sessions.Load(), w.failed.Load())
	if w.failed.Load() == 0 {
		t.Error("no request was out of memory")
	}
	all = all[warmUp:]
	for _, q := range []struct {
		name  string
		of    func(footprint) int64
		slack int64 // growth that is no leak
	}{
		{"heap bytes", func(u footprint) int64 { return u.heap }, 1 << 20},
		{"goroutines", func(u footprint) int64 { return u.goroutines }, 1}, // mem/paged makes a stream when it first waits
		{"descriptors", func(u footprint) int64 { return u.descriptors }, 0},
		{"bytes of the devices", func(u footprint) int64 { return u.device }, 0},
	} {
		checkFlat(t, q.name, q.slack, all, q.of)
	}
}

// checkFlat compares the median of the last third of the windows with that of the first. A leak of something in every
// window, or in every tenth, moves it; a window that measured while something was still ending does not.
func checkFlat(t *testing.T, name string, slack int64, all []footprint, of func(footprint) int64) {
	t.Helper()
	var values []int64
	for _, u := range all {
		values = append(values, of(u))
	}
	median := func(v []int64) int64 { return slices.Sorted(slices.Values(v))[(len(v)-1)/2] } // of two, the lower one
	third := len(values) / 3
	first, last := median(values[:third]), median(values[len(values)-third:])
	t.Logf("%s: %d in the first third of the windows, %d in the last; %d to %d", name, first, last, slices.Min(values), slices.Max(values))
	if last > first+slack {
		t.Errorf("%s grow: %v", name, values)
	}
}

// soakWork is the work of the goroutines.
type soakWork struct {
	e                *Engine
	sessions, failed atomic.Int64
}

// window lets every goroutine open and close some sessions. In a window of the warm-up all have one open at a time, so
// that the engine makes as many streams as it will ever need.
func (w *soakWork) window(t *testing.T, seed uint64, together bool) {
	var group, opened sync.WaitGroup
	opened.Add(soakers)
	for n := range soakers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			sessions := 1
			if *soak > 0 {
				sessions = 4
			}
			for i := range sessions {
				meet := func() {}
				if together && i == 0 {
					meet = func() { opened.Done(); opened.Wait() }
				}
				if err := w.session(t.Context(), rng, meet); err != nil {
					t.Errorf("goroutine %d: %v", n, err)
				}
			}
		})
	}
	group.Wait()
}

// session is one session from its opening to its closing.
func (w *soakWork) session(ctx context.Context, rng *rand.Rand, meet func()) error {
	s, err := w.e.NewSession()
	meet()
	if err != nil {
		return err
	}
	w.sessions.Add(1)
	for range 1 + rng.IntN(4) {
		err = errors.Join(err, s.WithDevice(rng.IntN(w.e.Devices()), func() error { return w.step(ctx, s, rng) }))
	}
	return errors.Join(err, s.Close())
}

// step is one of the things that a session does. It is no error if there is no room: the session goes on.
func (w *soakWork) step(ctx context.Context, s *Session, rng *rand.Rand) error {
	defer s.Event("step").End()
	var err error
	switch rng.IntN(6) {
	case 0: // memory that other sessions may have taken; now and then more than there is
		size := 1 + rng.IntN(8)
		if rng.IntN(16) == 0 {
			size = 200
		}
		_, err = tensor.Empty(s.Place(), dtype.Int8, size<<20)
	case 1: // garbage: storage that is dropped without Release
		_, err = s.Place().Alloc(int64(1 + rng.IntN(1<<20)))
	case 2:
		if err = s.ReserveCache(1 << 20); err == nil {
			err = s.UseCache(func() error { return w.compute(s) })
		}
	case 3:
		var x *tensor.Tensor
		if x, err = tensor.FromSlice(s.Place(), make([]float32, 1000)); err == nil {
			_, err = s.CopyTo(ctx, x, rng.IntN(w.e.Devices()))
		}
	case 4:
		err = errors.Join(w.compute(s), s.Collect(ctx))
	default:
		err = w.compute(s)
	}
	if errors.Is(err, mem.ErrNoMemory) {
		w.failed.Add(1)
		return nil
	}
	return err
}

func (w *soakWork) compute(s *Session) error {
	x, err := tensor.FromSlice(s.Place(), make([]float32, 10_000))
	if err != nil {
		return err
	}
	_, err = compute.Add(s.Place(), x, x)
	return err
}

// measure empties the caches and returns what is in use.
func (w *soakWork) measure(t *testing.T) (u footprint) {
	t.Helper()
	testkit.Must(t, w.e.ResetEvents(t.Context()))
	for i := range w.e.Devices() {
		w.e.Place(i).Reclaim() // what was dropped without Release
	}
	for i := range w.e.Devices() {
		if c, ok := mem.Find[mem.Trimmer](w.e.Allocator(i)); ok {
			testkit.Must(t, c.EmptyCache())
		}
		info, err := w.e.DeviceInfo(i)
		testkit.Must(t, err)
		if info.Allocated != 0 {
			t.Errorf("device %d: %d bytes are live, and no session is open", i, info.Allocated)
		}
		u.device += info.Total - info.Free
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap, u.goroutines = int64(m.HeapAlloc), int64(runtime.NumGoroutine())
	if open, err := os.ReadDir("/proc/self/fd"); err == nil { // elsewhere they are not counted
		u.descriptors = int64(len(open))
	}
	return u
}
