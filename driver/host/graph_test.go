package host

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// begin captures on a new stream.
func begin(t *testing.T, d driver.Device) driver.Stream {
	t.Helper()
	s := newStreams(t, d, 1)[0]
	testkit.Must(t, d.Graphs().Begin(s))
	return s
}

func end(t *testing.T, d driver.Device, s driver.Stream) driver.Graph {
	t.Helper()
	g, err := d.Graphs().End(s)
	testkit.Must(t, err)
	return g
}

func markOf(t *testing.T, s driver.Stream) driver.Mark {
	t.Helper()
	m, err := s.Mark()
	testkit.Must(t, err)
	return m
}

// TestMarksOfACaptureComeAfterWorkBeforeIt: a block that was used before a capture and freed in it is not free yet.
func TestMarksOfACaptureComeAfterWorkBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		streams := newStreams(t, d, 2)
		s, other := streams[0], streams[1]
		release := hold(t, d, s)
		before := markOf(t, s)
		testkit.Must(t, d.Graphs().Begin(s))
		in := markOf(t, s)
		end(t, d, s)
		after := markOf(t, s)
		testkit.Must(t, other.WaitFor(s, in))
		last := hold(t, d, other)
		last()
		waits := markOf(t, other)
		synctest.Wait()
		if reached(t, s, before) || reached(t, s, in) || reached(t, s, after) || reached(t, other, waits) {
			t.Error("a mark before, in or after a capture is reached before the work that was queued before it")
		}
		release()
		testkit.Must(t, other.Sync(context.Background()))
		if !reached(t, s, in) {
			t.Error("a mark of a capture is not reached after a stream that waited for it went on")
		}
		testkit.Must(t, s.Sync(context.Background()))
		if !reached(t, s, after) {
			t.Error("a mark after a capture is not reached after Sync")
		}
	})
}

// TestLaunchesOfOneGraphDoNotOverlap: the second waits, on any stream.
func TestLaunchesOfOneGraphDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		streams := newStreams(t, d, 2)
		gate := make(chan struct{})
		runs := 0
		s := begin(t, d)
		testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: "gate", Func: func(driver.Memory) error {
			runs++ // the launches order it
			<-gate
			return nil
		}}))
		g := end(t, d, s)
		for _, s := range streams {
			testkit.Must(t, g.Launch(s))
		}
		synctest.Wait()
		if runs != 1 {
			t.Errorf("%d launches run at once", runs)
		}
		testkit.Must(t, g.Close()) // with both under way
		close(gate)
		for _, s := range streams {
			testkit.Must(t, s.Sync(context.Background()))
		}
		if runs != 2 {
			t.Errorf("%d launches run, want 2", runs)
		}
	})
}

// TestFailuresInAGraph: the stream returns the first error, and the rest of the work is done.
func TestFailuresInAGraph(t *testing.T) {
	d := open(t)
	p := drivertest.Alloc(t, d, 1)
	bad := errors.New("bad")
	s := begin(t, d)
	for _, f := range []func(driver.Memory) error{
		func(driver.Memory) error { return bad },
		func(driver.Memory) error { panic("worse") },
	} {
		testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: "fails", Func: f}))
	}
	testkit.Must(t, s.Fill(p, 5, 1))
	g := end(t, d, s)
	for range 2 {
		testkit.Must(t, g.Launch(s))
		err := s.Sync(context.Background())
		if e := (*driver.Error)(nil); !errors.Is(err, bad) || !errors.As(err, &e) || e.Call != "kernel fails" {
			t.Errorf("Sync: %v, want a *driver.Error of the kernel with %v", err, bad)
		}
	}
	got := make([]byte, 1)
	testkit.Must(t, s.CopyOut(got, p))
	if got[0] != 5 {
		t.Error("the work after a kernel that failed was not done")
	}
}

// TestLaunchLooksForItsMemory: if memory was freed since the capture, a launch causes an error, not a crash.
func TestLaunchLooksForItsMemory(t *testing.T) {
	d := open(t)
	p := drivertest.Alloc(t, d, 4096)
	b, err := d.Pinned().AllocHost(8)
	testkit.Must(t, err)
	s := begin(t, d)
	testkit.Must(t, s.Fill(p, 5, 4096))
	fills := end(t, d, s)
	testkit.Must(t, d.Graphs().Begin(s))
	testkit.Must(t, d.Pinned().CopyOutAsync(s, b, p))
	testkit.Must(t, d.Pinned().FreeHost(b)) // while capturing: what is captured is not queued
	copies := end(t, d, s)
	if err := copies.Launch(s); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Launch after FreeHost: %v, want ErrInvalid", err)
	}
	testkit.Must(t, fills.Launch(s))
	testkit.Must(t, d.Free(p))
	if err := fills.Launch(s); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Launch after Free: %v, want ErrInvalid", err)
	}
	testkit.Must(t, s.Sync(context.Background()))
}

// TestWhatACaptureRefuses: calls that a capture refuses do not affect it. It continues and ends without an error.
func TestWhatACaptureRefuses(t *testing.T) {
	d := open(t)
	g, def := d.Graphs(), d.DefaultStream()
	p := drivertest.Alloc(t, d, 8)
	graph := end(t, d, begin(t, d))
	a, b := begin(t, d), begin(t, d)
	c := newStreams(t, d, 1)[0]
	release := hold(t, d, c)
	unreached := markOf(t, c)
	drawn := newStreams(t, d, 1)[0]
	testkit.Must(t, drawn.WaitFor(a, markOf(t, a)))
	for what, refused := range map[string]struct {
		call func() error
		code error
	}{
		"a wait for another capture": {func() error { return a.WaitFor(b, markOf(t, b)) }, driver.ErrCapturing},
		"a wait for queued work":     {func() error { return a.WaitFor(c, unreached) }, driver.ErrCapturing},
		"the default stream":         {func() error { return def.WaitFor(a, markOf(t, a)) }, driver.ErrCapturing},
		"a launch":                   {func() error { return graph.Launch(a) }, driver.ErrCapturing},
		"a stamp":                    {func() error { _, err := d.Timing().Stamp(a); return err }, driver.ErrCapturing},
		"Close":                      {func() error { return a.Close() }, driver.ErrCapturing},
		"Close of a drawn stream":    {func() error { return drawn.Close() }, driver.ErrCapturing},
		"Begin on a drawn stream":    {func() error { return g.Begin(drawn) }, driver.ErrCapturing},
		"End on a drawn stream":      {func() error { _, err := g.End(drawn); return err }, driver.ErrInvalid},
		"a wait of no bytes":         {func() error { return a.CopyIn(p, nil) }, driver.ErrCapturing},
	} {
		if err := refused.call(); !errors.Is(err, refused.code) {
			t.Errorf("%s: %v, want %v", what, err, refused.code)
		}
	}
	release()
	testkit.Must(t, c.Sync(context.Background()))
	testkit.Must(t, a.WaitFor(c, unreached)) // reached by now
	testkit.Must(t, drawn.Fill(p, 3, 8))
	testkit.Must(t, a.WaitFor(drawn, markOf(t, drawn)))
	if n := end(t, d, a).Nodes(); n != 1 {
		t.Errorf("%d nodes, want 1", n)
	}
	end(t, d, b)
	testkit.Must(t, drawn.Close())
}

// TestUnjoined compares random captures with a brute-force search of the work that comes before their end.
func TestUnjoined(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	d := open(t)
	streams := newStreams(t, d, 4)
	p := drivertest.Alloc(t, d, 8)
	joined := 0
	for round := range 3000 {
		testkit.Must(t, d.Graphs().Begin(streams[0]))
		// For each stream the set of pieces of work that come before its present point, and for marks the same.
		known := make([]map[int]bool, len(streams))
		known[0] = map[int]bool{}
		type point struct {
			stream int
			mark   driver.Mark
			known  map[int]bool
		}
		var marks []point
		with := func(a, b map[int]bool) map[int]bool {
			sum := map[int]bool{}
			for _, set := range []map[int]bool{a, b} {
				for k := range set {
					sum[k] = true
				}
			}
			return sum
		}
		works, drawn := 0, 0
		for range rng.IntN(20) {
			i := rng.IntN(len(streams))
			switch {
			case known[i] != nil && rng.IntN(3) == 0:
				testkit.Must(t, streams[i].Fill(p, 1, 8))
				known[i] = with(known[i], map[int]bool{works: true})
				works++
			case known[i] != nil && rng.IntN(2) == 0:
				marks = append(marks, point{i, markOf(t, streams[i]), known[i]})
			case len(marks) > 0:
				m := marks[rng.IntN(len(marks))]
				if m.stream == i {
					continue
				}
				testkit.Must(t, streams[i].WaitFor(streams[m.stream], m.mark))
				if known[i] == nil { // being drawn in counts as something to be joined
					known[i] = map[int]bool{-1 - drawn: true}
					drawn++
				}
				known[i] = with(known[i], m.known)
			}
		}
		for i := 1; i < len(streams) && round%2 == 0; i++ { // or few would be joined
			if known[i] != nil {
				testkit.Must(t, streams[0].WaitFor(streams[i], markOf(t, streams[i])))
				known[0] = with(known[0], known[i])
			}
		}
		want := len(known[0]) == works+drawn
		g, err := d.Graphs().End(streams[0])
		if (err == nil) != want || err == nil && g.Nodes() != works {
			t.Fatalf("seed %d, round %d: End: %v; the end comes after %d of %d works and joins",
				seed, round, err, len(known[0]), works+drawn)
		}
		if want {
			joined++
		}
	}
	if joined < 300 || joined > 2700 {
		t.Errorf("%d of 3000 captures were joined: the test is one-sided", joined)
	}
}

// TestCapturesAtOnce: captures on many streams, with launches, exports and frees, do not disturb each other.
func TestCapturesAtOnce(t *testing.T) {
	d := open(t)
	var wg sync.WaitGroup
	for n := range byte(8) {
		streams := newStreams(t, d, 2)
		a, b := streams[0], streams[1]
		wg.Go(func() {
			for round := range byte(20) {
				p, err := d.Alloc(200)
				errs := []error{err, d.Graphs().Begin(a), a.Fill(p, n, 100)}
				m, err := a.Mark()
				errs = append(errs, err, b.WaitFor(a, m), b.Copy(p+100, p, 50), b.Fill(p+150, round, 50))
				m, err = b.Mark()
				errs = append(errs, err, a.WaitFor(b, m))
				g, err := d.Graphs().End(a)
				if err = errors.Join(append(errs, err)...); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, 200)
				errs = []error{g.Launch(a), g.Launch(b), g.Close(), b.Sync(context.Background()), a.CopyOut(got, p), d.Free(p)}
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
				if want := append(bytes.Repeat([]byte{n}, 150), bytes.Repeat([]byte{round}, 50)...); !slices.Equal(got, want) {
					t.Errorf("stream pair %d, round %d: other bytes came back", n, round)
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if sharing := d.Sharing(); sharing != nil {
				p, err := d.Alloc(1 << 16)
				_, e := sharing.Export(p)
				if err := errors.Join(err, e, d.Free(p)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	wg.Wait()
}
