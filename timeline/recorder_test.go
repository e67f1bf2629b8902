package timeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/timeline"
)

func read(t *testing.T, r *timeline.Recorder) *timeline.Recording {
	t.Helper()
	rec, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// A span that is not recorded costs nothing: no call of the device, no memory.
func TestOffCostsNothing(t *testing.T) {
	b := newBench(t, sim.Options{}, 1, nil)
	r := timeline.New(b.dev, timeline.Options{Level: 1, Memory: func() int64 { t.Error("asked for memory"); return 0 }})
	lane := r.Lane("main")
	var none *timeline.Lane
	calls := b.sim.Calls()
	step := func() {
		lane.Begin(b.streams[0], "step", 2, 1e9).End(b.streams[0])
		none.Begin(b.streams[0], "step", 0, 0).End(b.streams[0])
		none.Mark(b.streams[0], "tokens", 1)
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations above the level", n)
	}
	r.SetLevel(timeline.Off)
	if n := testing.AllocsPerRun(100, func() {
		step()
		lane.Begin(b.streams[0], "step", 0, 0).End(b.streams[0])
		lane.Begin(b.streams[0], "step", -7, 0).End(b.streams[0])
		lane.Mark(b.streams[0], "tokens", 1)
	}); n != 0 {
		t.Errorf("%v allocations when off", n)
	}
	if b.sim.Calls() != calls {
		t.Error("the device was called")
	}
	if rec := read(t, r); len(rec.Spans)+len(rec.Samples) != 0 {
		t.Errorf("recorded %+v", rec)
	}
	b.clean(r)
}

// program records a bit of everything, and returns what it looks like when nothing fails.
func program(b *bench, r *timeline.Recorder) (spans, samples int) {
	lane := r.Lane("main")
	for i := range 3 {
		outer := lane.Begin(b.streams[0], "step", 0, 0)
		inner := lane.Begin(b.streams[1], "copy", 0, 0)
		b.work(0, time.Millisecond)
		if i != 1 {
			inner.End(b.streams[i])
		}
		lane.Mark(b.streams[0], "tokens", int64(i))
		outer.End(b.streams[0])
	}
	lane.Begin(b.streams[2], "open", 0, 0)
	return 7, 3
}

// Whichever call of the device fails, alone or with all after it: every span is there, the error surfaces, and nothing
// stays on the device. On a device that completes nothing by itself, so that Read must wait.
func TestEveryCallFails(t *testing.T) {
	kinds := []intercept.Kind{
		intercept.Stamp, intercept.Elapsed, intercept.Discard, intercept.NewStream, intercept.WaitFor, intercept.Sync, intercept.CloseStream,
	}
	for _, kind := range kinds {
		for _, onwards := range []bool{false, true} {
			for nth := int64(1); ; nth++ {
				var broken *fault.Device
				opts := sim.Options{Completion: sim.OnDemand}
				b := newBench(t, opts, 3, func(d driver.Device) driver.Device { broken = fault.Wrap(d); return broken })
				r := timeline.New(b.dev, timeline.Options{})
				name := fmt.Sprintf("%s %d onwards=%t", kind, nth, onwards)
				broken.SetRules(fault.Rule{Kind: kind, Nth: nth, Onwards: onwards})
				spans, samples := program(b, r)
				rec, err := r.Read(t.Context())
				if rec == nil || len(rec.Spans) != spans || len(rec.Samples) != samples {
					t.Fatalf("%s: %+v, %v", name, rec, err)
				}
				failed := broken.Failed() > 0
				timeless := 0
				for _, e := range rec.Spans {
					if e.Start == timeline.Unknown {
						timeless++
					}
				}
				if timeless > 0 && err == nil {
					t.Errorf("%s: %d spans without a time and no error", name, timeless)
				}
				if failed && kind == intercept.Stamp && !errors.Is(err, driver.ErrNoMemory) {
					t.Errorf("%s: %v", name, err)
				}
				if failed && (kind == intercept.NewStream || kind == intercept.Sync) && err == nil {
					t.Errorf("%s: no error", name)
				}
				checkForms(t, rec, make([]*modelled, spans))
				err = r.Close()
				if !failed && broken.Failed() > 0 && err == nil && kind != intercept.Discard {
					t.Errorf("%s: Close failed and did not say", name)
				}
				done := broken.Failed() == 0
				broken.SetRules()
				if err := r.Close(); err != nil {
					t.Errorf("%s: Close again: %v", name, err)
				}
				b.clean(r)
				if done {
					break // nothing failed: there are not so many calls
				}
			}
		}
	}
}

// Beyond Max the innermost of the older spans go, with their stamps. Those that were open when they went end as
// nothing.
func TestInnermostAreDropped(t *testing.T) {
	b := newBench(t, sim.Options{}, 1, nil)
	r := timeline.New(b.dev, timeline.Options{Max: 4})
	lane := r.Lane("main")
	outer := lane.Begin(b.streams[0], "outer", 0, 0)
	var dropped timeline.Span
	for i := range 100 {
		sp := lane.Begin(b.streams[0], fmt.Sprint(i), 0, 0)
		lane.Mark(b.streams[0], "i", int64(i))
		b.work(0, time.Millisecond)
		switch {
		case i%2 == 0:
			sp.End(b.streams[0])
		case i == 51:
			dropped = sp
		}
	}
	if n := len(b.sim.Leaks().Stamps); n > 12 {
		t.Errorf("%d stamps are kept for 4 spans and 4 samples", n)
	}
	calls := b.sim.Calls()[sim.CallStamp].Count
	dropped.End(b.streams[0])
	if b.sim.Calls()[sim.CallStamp].Count != calls {
		t.Error("a span that was dropped was stamped")
	}
	outer.End(b.streams[0])
	rec := read(t, r)
	if len(rec.Spans) != 4 || len(rec.Samples) != 4 || rec.Dropped != 97+96 {
		t.Errorf("%d spans, %d samples, %d dropped", len(rec.Spans), len(rec.Samples), rec.Dropped)
	}
	var got []string
	for _, e := range rec.Spans {
		got = append(got, fmt.Sprintf("%s in %d, depth %d, %v", e.Name, e.Parent, e.Depth, e.State))
	}
	want := "outer in -1, depth 0, done; 1 in 0, depth 1, unfinished; 98 in 1, depth 2, done; 99 in 1, depth 2, unfinished"
	if strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	b.clean(r)
}

// A span around more short ones than are kept stays, with its time, and so do those of the middle; the memory is
// bounded.
func TestDefect21_LongRecordingsKeepTheirOutermostSpans(t *testing.T) {
	b := newBench(t, sim.Options{}, 1, nil)
	r := timeline.New(b.dev, timeline.Options{})
	lane, s := r.Lane("main"), b.streams[0]
	run := lane.Begin(s, "run", 0, 0)
	for range 10 {
		epoch := lane.Begin(s, "epoch", 0, 0)
		for range 10 {
			step := lane.Begin(s, "step", 0, 0)
			for range 200 {
				lane.Begin(s, "layer", 0, 0).End(s)
			}
			b.work(0, time.Millisecond)
			step.End(s)
		}
		epoch.End(s)
	}
	run.End(s)
	rec := read(t, r)
	count := map[string]int{}
	for i, e := range rec.Spans {
		count[e.Name]++
		took, ok := e.Duration()
		if want := map[string]time.Duration{"run": 100 * time.Millisecond, "epoch": 10 * time.Millisecond}[e.Name]; !ok || took < want {
			t.Errorf("span %d, %q, took %v, %v; want %v at least", i, e.Name, took, ok, want)
		}
		if in := map[string]string{"epoch": "run", "step": "epoch", "layer": "step"}[e.Name]; in != "" && rec.Spans[e.Parent].Name != in {
			t.Errorf("span %d, %q, lies in %q, want %q", i, e.Name, rec.Spans[e.Parent].Name, in)
		}
	}
	const layers = timeline.DefaultMax - 1 - 10 - 100
	if count["run"] != 1 || count["epoch"] != 10 || count["step"] != 100 || count["layer"] != layers {
		t.Errorf("kept %v, want all but the oldest layers", count)
	}
	if rec.Dropped != 20000-layers || rec.Spans[len(rec.Spans)-1].Name != "layer" {
		t.Errorf("%d dropped, want %d; the last is %q", rec.Dropped, 20000-layers, rec.Spans[len(rec.Spans)-1].Name)
	}
	b.clean(r)
}

// After Close nothing is recorded, nothing fails, and nothing stays.
func TestClosed(t *testing.T) {
	b := newBench(t, sim.Options{}, 1, nil)
	r := timeline.New(b.dev, timeline.Options{})
	lane := r.Lane("main")
	open := lane.Begin(b.streams[0], "open", 0, 0)
	b.ok(r.Close())
	open.End(b.streams[0])
	r.SetLevel(0)
	lane.Begin(b.streams[0], "late", 0, 0).End(b.streams[0])
	lane.Mark(b.streams[0], "late", 1)
	r.Reset()
	if rec, err := r.Read(t.Context()); rec != nil || !errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v, %v", rec, err)
	}
	if _, err := timeline.Align(t.Context(), r); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v", err)
	}
	b.clean(r)
}

// A stream that captures takes no stamps: its spans have no time, and say why.
func TestSpansOfACapture(t *testing.T) {
	b := newBench(t, sim.Options{}, 2, nil)
	r := timeline.New(b.dev, timeline.Options{})
	lane := r.Lane("main")
	b.ok(b.dev.Graphs().Begin(b.streams[0]))
	captured := lane.Begin(b.streams[0], "captured", 0, 0)
	b.work(0, time.Millisecond)
	captured.End(b.streams[0])
	g, err := b.dev.Graphs().End(b.streams[0])
	b.ok(err)
	launch := lane.Begin(b.streams[0], "launch", 0, 0)
	b.ok(g.Launch(b.streams[0]))
	launch.End(b.streams[0])
	rec, err := r.Read(t.Context())
	if !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("%v", err)
	}
	if s := rec.Spans[0]; s.State != timeline.Failed || !errors.Is(s.Err, driver.ErrCapturing) || s.Start != timeline.Unknown {
		t.Errorf("captured: %+v", s)
	}
	if took, ok := rec.Spans[1].Duration(); !ok || took != time.Millisecond {
		t.Errorf("launch took %v, %t", took, ok)
	}
	b.ok(g.Close())
	b.clean(r)
}

// hostDevice is real memory, goroutines and a real clock.
func hostDevice(t *testing.T) (driver.Device, driver.Stream) {
	t.Helper()
	d := drivertest.OpenDevice(t, "host:total=16MiB")
	s := drivertest.NewStream(t, d)
	return d, s
}

// Read gives up when its context ends, with what there is by then, and the next one goes on. Nothing that it does
// touches the stream: not what is queued behind, and not the error that the stream's owner waits for.
func TestReadIsCancelled(t *testing.T) {
	d, s := hostDevice(t)
	r := timeline.New(d, timeline.Options{})
	lane := r.Lane("main")
	boom := errors.New("boom")
	lane.Begin(s, "before", 0, 0).End(s)
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	launch := func(f func() error) {
		t.Helper()
		k := driver.Kernel{Name: "k", Func: func(driver.Memory) error { return f() }}
		if err := d.Kernels().Launch(s, k); err != nil {
			t.Fatal(err)
		}
	}
	held := lane.Begin(s, "held", 0, 0)
	launch(func() error { <-gate; return boom })
	held.End(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // the second finds what the first put back
		rec, err := r.Read(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if rec == nil || len(rec.Spans) != 2 {
			t.Fatalf("%+v", rec)
		}
		if e := rec.Spans[0]; e.State != timeline.Done || e.End < e.Start {
			t.Errorf("before: %+v", e)
		}
		if e := rec.Spans[1]; e.State != timeline.Pending || e.End != timeline.Unknown {
			t.Errorf("held: %+v", e)
		}
		var bars strings.Builder
		err = timeline.WriteTimeline(&bars, rec, timeline.TimelineOptions{})
		if err != nil || !strings.Contains(bars.String(), "2 spans") {
			t.Errorf("%v\n%s", err, bars.String())
		}
	}
	close(gate)
	rec := read(t, r)
	if e := rec.Spans[1]; e.State != timeline.Done || e.Start < rec.Spans[0].End || e.End < e.Start {
		t.Errorf("held: %+v after %+v", e, rec.Spans[0])
	}
	if err := s.Sync(t.Context()); !errors.Is(err, boom) {
		t.Errorf("the stream's error is %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// beforeNewStream returns d, with a call of f before each NewStream.
func beforeNewStream(d driver.Device, f func()) driver.Device {
	return intercept.Wrap(d, func(c intercept.Call, next func() error) error {
		if c.Kind == intercept.NewStream {
			f()
		}
		return next()
	})
}

// A second Read that waits for the first is let go when its context ends, and gets nothing.
func TestReadWaitsForRead(t *testing.T) {
	d, s := hostDevice(t)
	reading := make(chan struct{})
	r := timeline.New(beforeNewStream(d, func() { close(reading) }), timeline.Options{})
	gate := make(chan struct{})
	k := driver.Kernel{Name: "k", Func: func(driver.Memory) error { <-gate; return nil }}
	if err := d.Kernels().Launch(s, k); err != nil {
		t.Fatal(err)
	}
	r.Lane("main").Begin(s, "held", 0, 0).End(s)
	first := make(chan error)
	go func() {
		_, err := r.Read(context.Background())
		first <- err
	}()
	<-reading // the first waits for the device
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if rec, err := r.Read(ctx); rec != nil || !errors.Is(err, why) {
		t.Errorf("%v, %v", rec, err)
	}
	close(gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// What is dropped, or forgotten, while Read waits for it leaves nothing.
func TestDroppedWhileReading(t *testing.T) {
	during := func() {} // called when Read makes the stream that it waits on
	opts := sim.Options{Completion: sim.OnDemand}
	b := newBench(t, opts, 1, func(d driver.Device) driver.Device {
		return beforeNewStream(fault.Wrap(d, fault.Rule{Kind: intercept.Sync}), func() { during() })
	})
	r := timeline.New(b.dev, timeline.Options{Max: 2})
	lane := r.Lane("main")
	step := func(name string) {
		lane.Begin(b.streams[0], name, 0, 0).End(b.streams[0])
		lane.Mark(b.streams[0], "n", 0)
	}
	step("first")
	step("second")
	during = func() { step("third") }
	rec, err := r.Read(t.Context())
	if !errors.Is(err, driver.ErrLost) {
		t.Errorf("%v", err)
	}
	if len(rec.Spans) != 2 || rec.Spans[0].Name != "second" || rec.Spans[0].State != timeline.Pending ||
		rec.Spans[1].Name != "third" {
		t.Errorf("%+v", rec.Spans)
	}
	b.clean(r)
}

// Streams may be closed before what was recorded on them is read.
func TestStreamsThatAreGone(t *testing.T) {
	d, s := hostDevice(t)
	r := timeline.New(d, timeline.Options{})
	r.Lane("main").Begin(s, "step", 0, 0).End(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := read(t, r).Spans[0].Duration(); !ok {
		t.Error("no time")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Several lanes record while others read, reset, change the level and align. The race detector watches; spans nest
// within their lanes; nothing stays on the device.
func TestLanesAtOnce(t *testing.T) {
	const lanes, steps = 4, 60
	b := newBench(t, sim.Options{Completion: sim.AtRandom, Seed: 1}, lanes, nil)
	r := timeline.New(b.dev, timeline.Options{Level: 2, Max: 64})
	var work, control sync.WaitGroup
	stop := make(chan struct{})
	check := func() {
		rec, err := r.Read(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		for i := range rec.Spans {
			e := &rec.Spans[i]
			if e.Parent >= 0 && (rec.Spans[e.Parent].Lane != e.Lane || rec.Spans[e.Parent].Name != "step") {
				t.Errorf("%+v lies in %+v", e, rec.Spans[e.Parent])
			}
		}
		checkSums(t, rec)
	}
	for i := range lanes {
		work.Go(func() {
			lane, s := r.Lane(fmt.Sprint("lane ", i)), b.streams[i]
			for n := range steps {
				outer := lane.Begin(s, "step", 0, 0)
				inner := lane.Begin(s, "layer", 1+n%2, 0)
				if err := s.Fill(b.blocks[i], 1, 1000); err != nil {
					t.Error(err)
				}
				inner.End(s)
				lane.Mark(s, "n", int64(n))
				outer.End(s)
			}
		})
	}
	for _, f := range []func(int){
		func(int) { check() },
		func(int) { check() },
		func(n int) { r.SetLevel(n % 3) },
		func(n int) {
			if n%8 == 0 {
				r.Reset()
			}
		},
		func(n int) {
			if n%8 != 0 {
				return
			}
			if _, err := timeline.Align(context.Background(), r); err != nil {
				t.Error(err)
			}
		},
	} {
		control.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					f(n)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	control.Wait()
	check()
	b.clean(r)
}

// A recorder that is closed while lanes record leaves nothing either.
func TestClosedMeanwhile(t *testing.T) {
	b := newBench(t, sim.Options{}, 2, nil)
	r := timeline.New(b.dev, timeline.Options{})
	var work sync.WaitGroup
	begun := make(chan struct{}, 2)
	for i := range 2 {
		work.Go(func() {
			lane := r.Lane("lane")
			for n := range 200 {
				sp := lane.Begin(b.streams[i], "step", 0, 0)
				lane.Mark(b.streams[i], "n", int64(n))
				sp.End(b.streams[i])
				if n == 20 {
					begun <- struct{}{}
				}
			}
		})
	}
	<-begun
	b.ok(r.Close())
	work.Wait()
	b.clean(r)
}

func TestNewPanics(t *testing.T) {
	b := newBench(t, sim.Options{}, 0, nil)
	r := timeline.New(b.dev, timeline.Options{})
	for want, f := range map[string]func(){
		"timeline: New with device":               func() { timeline.New(nil, timeline.Options{}) },
		"and Max -1":                              func() { timeline.New(b.dev, timeline.Options{Max: -1}) },
		"timeline: Align with one Recorder twice": func() { _, _ = timeline.Align(t.Context(), r, r) },
	} {
		testkit.Contains(t, testkit.Panic(t, f), want)
	}
	b.clean(r)
}

// A span that is given up is unfinished, keeps its stamp until it is read, and holds no later span; the others go on.
func TestAbandon(t *testing.T) {
	b := newBench(t, sim.Options{}, 1, nil)
	r := timeline.New(b.dev, timeline.Options{})
	lane, s := r.Lane("main"), b.streams[0]
	outer := lane.Begin(s, "outer", 0, 0)
	lost := lane.Begin(s, "lost", 0, 0)
	inner := lane.Begin(s, "inner", 0, 0)
	lost.Abandon()
	lost.End(s) // is nothing
	lane.Begin(s, "in inner", 0, 0).End(s)
	inner.End(s)
	lane.Begin(s, "in outer", 0, 0).End(s)
	outer.End(s)
	outer.Abandon() // is nothing
	timeline.Span{}.Abandon()
	var got []string
	for _, e := range read(t, r).Spans {
		_, timed := e.Duration()
		got = append(got, fmt.Sprintf("%s in %d %v %v", e.Name, e.Parent, e.State, timed))
	}
	want := "outer in -1 done true, lost in 0 unfinished false, inner in 1 done true, in inner in 2 done true, in outer in 0 done true"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	late := lane.Begin(s, "forgotten", 0, 0)
	r.Reset()
	late.Abandon()
	b.clean(r)
}
