package drivercost_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivercost"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
)

// measure measures a device and closes it.
func measure(t *testing.T, d driver.Device, now func() time.Duration) *drivercost.Report {
	t.Helper()
	r, err := drivercost.Measure(d, drivercost.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// strange is a model of no device: every figure its own, with curves straight between the sizes that are measured.
func strange(seed uint64) *sim.CostModel {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &sim.CostModel{MapNext: time.Duration(rng.IntN(50_000)), UnmapNext: time.Duration(rng.IntN(50_000))}
	bySize := func(sizes ...int64) (c sim.Curve) {
		cost := time.Duration(rng.IntN(5_000))
		for _, size := range sizes {
			c = append(c, sim.Point{Size: size, Cost: cost})
			cost += time.Duration(rng.IntN(300_000))
		}
		return c
	}
	for c := range sim.NumCalls {
		switch c {
		case sim.CallAlloc, sim.CallFree, sim.CallCreate, sim.CallDrop, sim.CallMap, sim.CallUnmap, sim.CallReserve, sim.CallRelease:
			m.Calls[c] = bySize(2<<20, 20<<20, 256<<20)
		case sim.CallCopy, sim.CallFill, sim.CallCopyIn, sim.CallCopyOut, sim.CallCopyInAsync, sim.CallCopyOutAsync:
			m.Calls[c] = sim.Curve{
				{Size: 0, Cost: time.Duration(rng.IntN(9_000))}, {Size: 1 << 30, Cost: time.Duration(9_000 + rng.IntN(90_000_000))},
			}
		case sim.CallAllocHost, sim.CallFreeHost:
			m.Calls[c] = bySize(64<<10, 1<<20, 16<<20)
		case sim.CallEndCapture, sim.CallLaunchGraph, sim.CallCloseGraph:
			m.Calls[c] = bySize(1, 16, 128)
		default:
			m.Calls[c] = bySize(0)
		}
	}
	m.Calls[sim.CallRegister], m.Calls[sim.CallUnregister] = m.Calls[sim.CallAllocHost], m.Calls[sim.CallFreeHost]
	return m
}

// Measuring the simulated device, by its own time, finds the model that it was given.
func TestModelOfSimIsItsModel(t *testing.T) {
	for name, given := range map[string]*sim.CostModel{
		"h200": sim.H200(), "strange 1": strange(1), "strange 2": strange(2), "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			d := sim.New(sim.Options{Total: 512 << 20, Cost: given})
			r := measure(t, d, d.Now)
			found, kept := r.Model(&sim.CostModel{MapNext: 1 << 40, UnmapNext: 1 << 40}, "found")
			if kept != nil || r.Absent != nil || found.About != "found" {
				t.Errorf("not measured: %q, %q; about %q", kept, r.Absent, found.About)
			}
			near := func(what string, got, want time.Duration) {
				t.Helper()
				if d := got - want; d < -2 || d > 2 { // whole nanoseconds were measured
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			near("a further page mapped", found.MapNext, given.MapNext)
			near("a further page unmapped", found.UnmapNext, given.UnmapNext)
			for c := range sim.NumCalls {
				sizes := []int64{0, 1, 16, 40, 128}
				switch c {
				case sim.CallEndCapture, sim.CallLaunchGraph, sim.CallCloseGraph:
					sizes = sizes[1:]
				case sim.CallAlloc, sim.CallFree:
					sizes = []int64{1, 64 << 10, 1 << 20, 2 << 20, 5 << 20, 20 << 20, 100 << 20, 256 << 20}
				case sim.CallCreate, sim.CallDrop, sim.CallMap, sim.CallUnmap, sim.CallReserve, sim.CallRelease:
					sizes = []int64{2 << 20, 6 << 20, 20 << 20, 100 << 20, 256 << 20}
				case sim.CallAllocHost, sim.CallFreeHost, sim.CallRegister, sim.CallUnregister:
					sizes = []int64{64 << 10, 1 << 20, 3 << 20, 16 << 20}
				case sim.CallCopy, sim.CallFill, sim.CallCopyIn, sim.CallCopyOut, sim.CallCopyInAsync, sim.CallCopyOutAsync:
					sizes = []int64{0, 1, 512, 1 << 20, 16 << 20}
				}
				for _, size := range sizes {
					near(c.String(), found.Calls[c].At(size), given.Calls[c].At(size))
				}
			}
		})
	}
}

// Everything that is taken is given back, and nothing is left in the queues.
func TestMeasureLeavesNothing(t *testing.T) {
	d := drivertest.OpenSim(t, 256<<20)
	var seen []string
	last := -1.0
	_, err := drivercost.Measure(d, drivercost.Options{Now: d.Now, Progress: func(what string, done float64) {
		if done <= last || done >= 1 {
			t.Errorf("%s at %v after %v", what, done, last)
		}
		seen, last = append(seen, what), done
	}})
	if err != nil {
		t.Fatal(err)
	}
	if l := d.Leaks(); !l.Empty() || d.Reports() != nil || d.Pending(0) != 0 {
		t.Errorf("leaks %v, reports %v, %d pending", l, d.Reports(), d.Pending(0))
	}
	if len(seen) != 10 || seen[0] != "memory" {
		t.Errorf("progress %q", seen)
	}
}

func TestFiguresOfSim(t *testing.T) {
	model := sim.H200()
	slow := sim.Curve{{Size: 0, Cost: 0}, {Size: 1 << 30, Cost: time.Minute}}
	model.Calls[sim.CallCopyIn], model.Calls[sim.CallCopyOut] = slow, slow
	d := sim.New(sim.Options{Total: 4 << 30, Pinned: 1 << 20, Cost: model})
	r := measure(t, d, d.Now)
	find := func(call string, size int64, n int, note string) drivercost.Figure {
		t.Helper()
		i := slices.IndexFunc(r.Figures, func(f drivercost.Figure) bool {
			return f.Call == call && f.Size == size && f.N == n && f.Note == note
		})
		if i < 0 {
			t.Fatalf("no figure of %s, %d bytes, %d", call, size, n)
		}
		return r.Figures[i]
	}
	pages := make([]driver.Page, 512)
	for i := range pages {
		pages[i].Size = 2 << 20
	}
	for _, c := range []struct {
		got  drivercost.Figure
		want time.Duration
	}{
		{find("Alloc", 2<<30, 0, ""), model.Calls[sim.CallAlloc].At(2 << 30)},
		{find("VirtualMemory.Map", 2<<20, 512, ""), model.Map(pages...)},
		{find("VirtualMemory.Map", 2<<20, 512, "mapped elsewhere too"), model.Map(pages...)},
		{find("VirtualMemory.Unmap", 2<<20, 8, ""), model.Unmap(8, 2<<20)},
		{find("VirtualMemory.Reserve", 64<<30, 0, ""), model.Calls[sim.CallReserve].At(64 << 30)},
		{find("Stream.Copy", 1<<30, 0, ""), model.Calls[sim.CallCopy].At(1<<30) + model.Calls[sim.CallSync].At(0)},
	} {
		if f := c.got; f.Median != c.want || f.P10 != c.want || f.P90 != c.want || f.Samples < 5 {
			t.Errorf("%+v, want %v", f, c.want)
		}
	}
	if f := find("Stream.Copy", 1<<30, 0, ""); !f.Done || f.Samples != 31 {
		t.Errorf("%+v: want it timed 31 times until it is done", f)
	}
	if f := find("Stream.CopyIn", 64<<20, 0, ""); f.Done || f.Samples != 5 {
		t.Errorf("%+v: want a call of seconds timed five times", f)
	}
	if r.Info != d.Info() {
		t.Errorf("%+v", r.Info)
	}
}

// What a device lacks is named, and the model keeps the base's figures for it.
func TestAbsentAbilities(t *testing.T) {
	d := sim.New(sim.Options{Total: 256 << 20, NoVirtualMemory: true})
	wrapped := fault.Wrap(d, fault.Rule{Kind: intercept.Launch, Code: driver.ErrUnsupported})
	r := measure(t, wrapped, d.Now)
	base := sim.H200()
	m, kept := r.Model(base, "")
	if m.MapNext != base.MapNext || m.Calls[sim.CallLaunch].At(0) != base.Calls[sim.CallLaunch].At(0) {
		t.Errorf("%v, %v", m.MapNext, m.Calls[sim.CallLaunch])
	}
	for _, want := range []string{"VirtualMemory.Create", "Kernels.Launch"} {
		if !slices.Contains(kept, want) {
			t.Errorf("%q lacks %q", kept, want)
		}
	}
	if text := strings.Join(r.Absent, "\n"); !strings.Contains(text, "VirtualMemory: the device has none") ||
		!strings.Contains(text, "kernels: driver: Kernels.Launch: not supported") {
		t.Errorf("absent: %s", text)
	}
	if slices.Contains(kept, "Alloc") {
		t.Errorf("kept %q", kept)
	}
}

// Every call that fails ends the measurement with its error.
func TestFailuresEndIt(t *testing.T) {
	lost := errors.New("gone")
	for _, kind := range []intercept.Kind{
		intercept.Available, intercept.Alloc, intercept.Free, intercept.NewStream, intercept.Copy, intercept.CopyIn, intercept.CopyOut, intercept.Fill, intercept.Mark,
		intercept.Reached, intercept.WaitFor, intercept.Sync, intercept.Reserve, intercept.Release, intercept.Create, intercept.Drop, intercept.Map, intercept.Unmap, intercept.Launch,
		intercept.CloseStream, intercept.AllocHost, intercept.FreeHost, intercept.CopyInAsync, intercept.CopyOutAsync, intercept.Stamp, intercept.Elapsed,
		intercept.Discard, intercept.Begin, intercept.End, intercept.LaunchGraph, intercept.CloseGraph,
	} {
		d := sim.New(sim.Options{Total: 64 << 20, Granularity: 1 << 20, Unchecked: true})
		wrapped := fault.Wrap(d, fault.Rule{Kind: kind, Nth: 2, Code: lost})
		if _, err := drivercost.Measure(wrapped, drivercost.Options{Now: d.Now}); !errors.Is(err, lost) ||
			!strings.HasPrefix(err.Error(), "measure ") {
			t.Errorf("%s failed: %v", kind, err)
		}
	}
	small := drivertest.OpenSim(t, 1<<20)
	if _, err := drivercost.Measure(small, drivercost.Options{Now: small.Now}); err == nil || !strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("too little memory: %v", err)
	}
}

// A real device is measured by a clock; this one ticks a microsecond whenever it is read.
func TestMeasureHost(t *testing.T) {
	d, err := host.Open(host.Options{Total: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var clock time.Duration
	r := measure(t, d, func() time.Duration { clock += time.Microsecond; return clock })
	for _, f := range r.Figures {
		if f.Median != 0 || f.Samples != 31 { // the clock's own microsecond is taken off
			t.Errorf("%+v", f)
		}
	}
	if len(r.Figures) < 20 {
		t.Errorf("%d figures", len(r.Figures))
	}
}

func TestSummarize(t *testing.T) {
	var times []time.Duration
	for i := range 21 {
		times = append(times, time.Duration(20-i))
	}
	want := drivercost.Figure{Call: "Open", Median: 10, P10: 2, P90: 18, Samples: 21}
	if got := drivercost.Summarize("Open", times); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := drivercost.Summarize("Open", []time.Duration{7}); got.Median != 7 || got.P10 != 7 || got.P90 != 7 {
		t.Errorf("%+v", got)
	}
}
