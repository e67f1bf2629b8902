package timeline_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/timeline"
)

// coarse tells times as libcuda does: as 32-bit floating-point milliseconds.
type coarse struct{ driver.Device }

type coarseTiming struct{ driver.Timing }

func (d coarse) Timing() driver.Timing { return coarseTiming{d.Device.Timing()} }

func (t coarseTiming) Elapsed(from, to driver.Stamp) (time.Duration, error) {
	d, err := t.Timing.Elapsed(from, to)
	return time.Duration(float64(float32(float64(d)/1e6)) * 1e6), err
}

// Hours after time zero spans are still exact to the microsecond, though the device's clock could not say so: 32-bit
// milliseconds are a quarter of one apart by then.
func TestHoursOfACoarseClock(t *testing.T) {
	b := newBench(t, sim.Options{}, 2, func(d driver.Device) driver.Device { return coarse{d} })
	r := timeline.New(b.dev, timeline.Options{})
	lane := r.Lane("main")
	const took = 12345 * time.Nanosecond
	var starts []time.Duration
	for i := range 2000 {
		on := i / 7 % 2
		starts = append(starts, b.sim.Now())
		outer := lane.Begin(b.streams[on], "step", 0, 0)
		for range 2 {
			inner := lane.Begin(b.streams[on], "layer", 0, 0)
			b.work(on, took)
			inner.End(b.streams[on])
		}
		outer.End(b.streams[on])
		b.work(on, 4*time.Second) // more than two hours in all
	}
	rec := read(t, r)
	if len(rec.Spans) != 6000 {
		t.Fatalf("%d spans", len(rec.Spans))
	}
	checkSums(t, rec)
	for i := range rec.Spans {
		e := &rec.Spans[i]
		want := took
		if e.Name == "step" {
			want = 2 * took
			// The clock is exact to an eighth of a microsecond over the four seconds from anchor to anchor.
			if off := (e.Start - (starts[i/3] - starts[0])).Abs(); off > 300*time.Microsecond {
				t.Fatalf("step %d began %v from where it did", i/3, off)
			}
		}
		if got, ok := e.Duration(); !ok || (got-want).Abs() > time.Microsecond {
			t.Fatalf("span %d took %v, want %v", i, got, want)
		}
	}
	b.clean(r)
}

// Two devices whose clocks have nothing to do with each other are aligned as well as Align says.
func TestAlign(t *testing.T) {
	a, b := newBench(t, sim.Options{Cost: sim.H200()}, 1, nil), newBench(t, sim.Options{Cost: sim.H200()}, 1, nil)
	b.work(0, time.Second) // so that b's clock is ahead
	ra, rb := timeline.New(a.dev, timeline.Options{Name: "a"}), timeline.New(b.dev, timeline.Options{Name: "b", Index: 1})
	la, lb := ra.Lane("main"), rb.Lane("main")
	la.Begin(a.streams[0], "forgotten", 0, 0)
	skew, err := timeline.Align(t.Context(), ra, rb)
	a.ok(err)
	if skew <= 0 || skew > time.Millisecond {
		t.Errorf("skew %v", skew)
	}
	la.Begin(a.streams[0], "on a", 0, 0).End(a.streams[0])
	lb.Begin(b.streams[0], "on b", 0, 0).End(b.streams[0])
	ofA, ofB := read(t, ra), read(t, rb)
	if len(ofA.Spans) != 1 || ofA.Spans[0].Start <= 0 {
		t.Errorf("on a: %+v", ofA.Spans)
	}
	if at := ofB.Spans[0].Start; at < -skew || at > 10*time.Millisecond {
		t.Errorf("on b it began at %v, with a skew of %v", at, skew)
	}
	var text strings.Builder
	a.ok(timeline.WriteChromeTrace(&text, ofA, ofB))
	pids := map[int]int{}
	for _, e := range checkTrace(t, text.String()) {
		if e.Phase == "X" {
			pids[*e.PID]++
		}
	}
	if pids[0] != 1 || pids[1] != 1 {
		t.Errorf("spans by process: %v", pids)
	}
	a.clean(ra)
	b.clean(rb)
}

// The host's devices have one clock, so what Align makes of it can be held against the truth: what one device did
// before another has earlier times, but for the skew.
func TestAlignOnOneClock(t *testing.T) {
	da, a := hostDevice(t)
	db, b := hostDevice(t)
	dc, c := hostDevice(t)
	ra, rb, rc := timeline.New(da, timeline.Options{}), timeline.New(db, timeline.Options{}), timeline.New(dc, timeline.Options{})
	if skew, err := timeline.Align(t.Context()); err != nil || skew != 0 {
		t.Errorf("none: %v, %v", skew, err)
	}
	skew, err := timeline.Align(t.Context(), ra, rb, rc)
	if err != nil {
		t.Fatal(err)
	}
	last := time.Duration(math.MinInt64)
	for i, on := range []struct {
		r *timeline.Recorder
		s driver.Stream
	}{{ra, a}, {rb, b}, {rc, c}, {rb, b}, {ra, a}} {
		sp := on.r.Lane("main").Begin(on.s, "step", 0, 0)
		if err := on.s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		sp.End(on.s)
		if err := on.s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		spans := read(t, on.r).Spans
		e := spans[len(spans)-1]
		if i > 0 && e.Start < last-skew {
			t.Errorf("step %d began at %v, after something that ended at %v on another device; skew %v", i, e.Start, last, skew)
		}
		last = e.End
	}
	if err := errors.Join(ra.Close(), rb.Close(), rc.Close(), a.Close(), b.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// Align that fails, at whichever call, leaves no stamps, and recorders that work.
func TestAlignFails(t *testing.T) {
	for _, kind := range []intercept.Kind{intercept.Stamp, intercept.Elapsed, intercept.NewStream, intercept.Sync} {
		for nth := int64(1); ; nth++ {
			var broken [2]*fault.Device
			var of [2]*bench
			var r [2]*timeline.Recorder
			for i := range of {
				of[i] = newBench(t, sim.Options{}, 1, func(d driver.Device) driver.Device { broken[i] = fault.Wrap(d); return broken[i] })
				r[i] = timeline.New(of[i].dev, timeline.Options{})
				r[i].Lane("main").Begin(of[i].streams[0], "before", 0, 0).End(of[i].streams[0])
				broken[i].SetRules(fault.Rule{Kind: kind, Nth: nth})
			}
			_, err := timeline.Align(t.Context(), r[0], r[1])
			failed := broken[0].Failed()+broken[1].Failed() > 0
			if failed != (err != nil) {
				t.Errorf("%s %d: failed %t, %v", kind, nth, failed, err)
			}
			for i, b := range of {
				broken[i].SetRules()
				if n := len(read(t, r[i]).Spans); (n == 1) != failed {
					t.Errorf("%s %d: %d spans, failed %t", kind, nth, n, failed)
				}
				b.clean(r[i])
			}
			if !failed {
				break
			}
		}
	}
}

func TestAlignNeedsClocksAndTime(t *testing.T) {
	b := newBench(t, sim.Options{}, 1, func(d driver.Device) driver.Device { return noClock{d} })
	r := timeline.New(b.dev, timeline.Options{})
	if _, err := timeline.Align(t.Context(), r); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	b.clean(r)
	d, s := hostDevice(t)
	r = timeline.New(d, timeline.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := timeline.Align(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(r.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
