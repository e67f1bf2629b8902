package trace_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/invariants"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// pair allocates a block and frees it.
func pair(t testing.TB, a mem.Allocator, s driver.Stream, size int64) mem.Block {
	t.Helper()
	b, err := a.Alloc(s, size)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(b)
	return b
}

// Once warm, neither recording nor a stopped recorder allocates on Go's heap.
func TestRecordingAllocatesNothing(t *testing.T) {
	for _, x := range allocators {
		for c := trace.ContextNever; c <= trace.ContextAll; c++ {
			t.Run(x.name+"/"+c.String(), func(t *testing.T) {
				r := newRig(t, x.open, trace.RecorderOptions{Max: 1000, Context: c})
				kept := [8]mem.Block{}
				work := func() {
					for i := range kept {
						kept[i], _ = r.a.Alloc(r.stream, int64(i+1)<<10)
					}
					for _, b := range kept {
						r.a.Free(b)
					}
				}
				none := func(when string, runs int) {
					if n := testing.AllocsPerRun(runs, work); n != 0 && !invariants.Enabled { // whose checks allocate
						t.Errorf("%s: %v allocations", when, n)
					}
				}
				none("recording", 500)
				r.recorder.WithMetadata("step", func() { none("with metadata", 100) })
				r.recorder.Stop()
				none("stopped", 100)
				r.recorder.Start()
				none("started again", 100)
				if got := len(r.recorder.Trace().Events); got != 1000 || r.recorder.Lost() == 0 {
					t.Errorf("%d entries, %d lost", got, r.recorder.Lost())
				}
			})
		}
	}
}

// Stacks begin with the caller of the allocator, above all its layers, and have the requested depth.
func TestStacksBeginWithTheCaller(t *testing.T) {
	for _, depth := range []int{1, 3, 0} {
		r := newRig(t, allocators[2].open, trace.RecorderOptions{Context: trace.ContextAll, Depth: depth})
		r.a = layer.NewLimiter(layer.NewCounter(r.a), 1<<30)
		r.theAlloc()
		r.theFree()
		tr := r.recorder.Trace()
		for i, e := range tr.Events {
			got := names(tr.Stacks, e.Stack)
			want := "theAlloc"
			if i >= 2 {
				want = "theFree"
			}
			if len(got) == 0 || !strings.HasSuffix(got[0], "(*rig)."+want) || depth > 0 && len(got) != depth {
				t.Fatalf("entry %d, %v: stack %q", i, e.Action, got)
			}
			if depth == 3 && i == 1 && (!strings.HasSuffix(got[1], ".TestStacksBeginWithTheCaller") || got[2] != "testing.tRunner") {
				t.Errorf("stack %q", got)
			}
			if f := tr.Stacks.Frames[tr.Stacks.At(e.Stack)[0]]; !strings.HasSuffix(f.Filename, "behaviour_test.go") || f.Line == 0 {
				t.Errorf("frame %+v", f)
			}
		}
	}
}

// The stack of segments that a request gave back is the request's; EmptyCache is no request, and leaves them their own.
func TestSegmentsOfRequests(t *testing.T) {
	small := func(dev driver.Device) (mem.Allocator, error) {
		cfg := caching.Default()
		cfg.Limit = 64 << 20
		return caching.New(dev, cfg)
	}
	r := newRig(t, small, trace.RecorderOptions{Context: trace.ContextAlloc})
	r.block = r.alloc(40 << 20)
	r.theFree()
	r.block = r.alloc(60 << 20)
	r.theFree()
	r.theTrim()
	r.theAlloc()
	r.theFree()
	r.theTrim()
	tr := r.recorder.Trace()
	var got []string
	for _, e := range tr.Events {
		if e.Action == mem.ActionSegmentFree {
			got = append(got, strings.Join(names(tr.Stacks, e.Stack), " "))
		}
	}
	if len(got) != 3 || !strings.Contains(got[0], "TestSegmentsOfRequests") || got[1] != got[0] ||
		!strings.Contains(got[2], "theAlloc") {
		t.Errorf("stacks of segments that went: %q", got)
	}
}

// A recorder without Stop keeps the stacks of what is allocated while its ring goes round, and so do its segments.
func TestStateOutlivesTheRing(t *testing.T) {
	for _, x := range allocators {
		r := newRig(t, x.open, trace.RecorderOptions{Max: 4, Context: trace.ContextState})
		r.theAlloc()
		for range 100 {
			pair(t, r.a, r.stream, 1000)
		}
		s, err := snapshot.Of(r.a, snapshot.Live{Recorder: r.recorder})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, seg := range s.Segments {
			if got := names(s.Stacks, seg.Stack); x.name != "arena" && (len(got) == 0 || strings.Contains(got[0], "/mem/")) {
				t.Errorf("%s: a segment has the stack %q", x.name, got)
			}
			for _, b := range seg.Blocks {
				got := names(s.Stacks, b.Stack)
				if b.Ptr == r.block.Ptr {
					found = len(got) > 0 && strings.HasSuffix(got[0], "(*rig).theAlloc")
				} else if b.Stack != 0 {
					t.Errorf("%s: a free block has the stack %q", x.name, got)
				}
			}
		}
		if !found {
			t.Errorf("%s: the allocated block has no stack", x.name)
		}
		r.recorder.Reset()
		if !strings.Contains(r.json(), "theAlloc") {
			t.Errorf("%s: Reset has forgotten the stack of an allocated block", x.name)
		}
		r.recorder.SetContext(trace.ContextNever)
		r.recorder.SetContext(trace.ContextState)
		if strings.Contains(r.json(), "theAlloc") {
			t.Errorf("%s: ContextNever has not forgotten the stack", x.name)
		}
	}
}

// Trackers receive all events in order, recorded or not, and before they are recorded.
func TestTrackers(t *testing.T) {
	for _, x := range allocators {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Skip: []mem.Action{mem.ActionFreeCompleted}})
			var first, second []string
			detachFirst := r.recorder.AttachTracker(func(e mem.Event) { first = append(first, fmt.Sprintf("%+v", e)) })
			detachSecond := r.recorder.AttachTracker(func(e mem.Event) {
				second = append(second, fmt.Sprintf("%+v", e))
				if len(first) != len(second) {
					t.Errorf("the first tracker has heard of %d events, the second of %d", len(first), len(second))
				}
			})
			pair(t, r.a, r.stream, 1000)
			n := len(first)
			if got := len(r.recorder.Trace().Events); got != n-1 {
				t.Errorf("%d entries, %d events", got, n)
			}
			r.recorder.Stop()
			pair(t, r.a, r.stream, 1000)
			if len(first) != n+3 || !slices.Equal(first, second) || len(r.recorder.Trace().Events) != n-1 {
				t.Errorf("%d events, then %d; %d entries", n, len(first), len(r.recorder.Trace().Events))
			}
			detachFirst()
			detachSecond()
			pair(t, r.a, r.stream, 1000)
			r.recorder.Start()
			pair(t, r.a, r.stream, 1000)
			if len(first) != n+3 || len(second) != n+3 || len(r.recorder.Trace().Events) != n+1 {
				t.Errorf("after they are detached: %d and %d events, want %d; %d entries", len(first), len(second), n+3, len(r.recorder.Trace().Events))
			}
		})
	}
}

// Who watches for errors hears of each once, before the caller, without locks, and no more after Detach.
func TestOutOfMemoryObservers(t *testing.T) {
	limited := func(dev driver.Device) (mem.Allocator, error) {
		a, err := caching.New(dev, caching.Default())
		return layer.NewLimiter(a, 1<<30), err
	}
	for _, x := range append(slices.Clip(allocators), allocators[0]) {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Device: 3})
			var heard []error
			detach := r.recorder.AttachOutOfMemoryObserver(func(device int, size int64, err error) {
				heard = append(heard, err)
				if device != 3 || size != 1<<45 {
					t.Errorf("device %d, %d bytes", device, size)
				}
				if !strings.Contains(r.json(), `"segments"`) { // which takes all locks
					t.Error("no snapshot")
				}
			})
			ask := func(want int) {
				t.Helper()
				before := len(heard)
				_, err := r.a.Alloc(r.stream, 1<<45)
				var oom *mem.OutOfMemory
				if !errors.As(err, &oom) {
					t.Fatalf("error %v", err)
				}
				if len(heard) != want || want > before && heard[before] != error(oom) {
					t.Errorf("%d errors were heard of, want %d", len(heard), want)
				}
			}
			ask(1)
			r.recorder.Stop()
			ask(2)
			if _, err := mem.AllocWith(r.a, r.stream, 1<<45, mem.AllocOptions{NoRetry: true}); err == nil || len(heard) != 3 {
				t.Errorf("error %v, heard of %d", err, len(heard))
			}
			heard = heard[:2]
			r.recorder.Detach()
			r.recorder.Detach()
			ask(2)
			r.a = r.recorder.Attach(r.bottom)
			ask(3)
			detach()
			ask(3)
		})
	}
	r := newRig(t, limited, trace.RecorderOptions{})
	var heard []int64
	r.recorder.AttachOutOfMemoryObserver(func(_ int, size int64, err error) {
		if !errors.Is(err, mem.ErrNoMemory) {
			t.Error(err)
		}
		heard = append(heard, size)
	})
	for _, size := range []int64{2 << 30, 1 << 45} {
		if _, err := r.a.Alloc(r.stream, size); err == nil {
			t.Fatal("no error")
		}
	}
	if !slices.Equal(heard, []int64{2 << 30, 1 << 45}) {
		t.Errorf("heard of %d", heard)
	}
}

// Annotations have their own ring, and are stored only while events are recorded.
func TestAnnotations(t *testing.T) {
	now := int64(0)
	r := trace.NewRecorder(trace.RecorderOptions{Max: 4, Clock: func() int64 { now++; return now }})
	outer := r.Annotate("epoch", "3 of 10")
	inner := r.Annotate("step", "")
	r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 1})
	inner()
	inner()
	r.Stop()
	r.Annotate("gap", "")()
	r.Start()
	late := r.Annotate("late", "")
	outer()
	r.Stop()
	late()
	r.Start()
	want := []trace.Annotation{
		{TimeUS: 2, Name: "step", Stage: "START"},
		{TimeUS: 4, Name: "step", Stage: "END", Entries: 1},
		{TimeUS: 5, Name: "late", Stage: "START", Entries: 1},
		{TimeUS: 6, Name: "epoch", Metadata: "3 of 10", Stage: "END", Entries: 1},
	}
	if got := r.Annotations(); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if tr := r.Trace(); len(tr.Events) != 1 || tr.Metadata[tr.Events[0].Metadata] != "" {
		t.Errorf("%+v", tr)
	}
	r.Reset()
	if got := r.Annotations(); len(got) != 0 {
		t.Errorf("after Reset: %+v", got)
	}
}

// A recorder is attached to one allocator at a time, and leaves no trace of itself.
func TestAttachAndDetach(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	first, _ := caching.New(dev, caching.Default())
	second, err := allocators[3].open(dev)
	if err != nil {
		t.Fatal(err)
	}
	r := trace.NewRecorder(trace.RecorderOptions{})
	if r.Attach(first) != mem.Allocator(first) {
		t.Error("there is something before an allocator that reports everything itself")
	}
	testkit.WantPanic(t, "a second Attach", "", func() { r.Attach(second) })
	pair(t, first, dev.DefaultStream(), 1000)
	r.Detach()
	n := len(r.Trace().Events)
	pair(t, first, dev.DefaultStream(), 1000)
	layer := r.Attach(second)
	if below, ok := layer.(mem.Wrapper); !ok || below.Unwrap() != second {
		t.Errorf("%T", layer)
	}
	pair(t, layer, dev.DefaultStream(), 1000)
	pair(t, first, dev.DefaultStream(), 1000)
	r.Detach()
	pair(t, layer, dev.DefaultStream(), 1000)
	if got := len(r.Trace().Events); n != 4 || got != n+3 {
		t.Errorf("%d entries, then %d", n, got)
	}
}

// Actions that this version does not know are not recorded.
func TestUnknownActionsAreNotRecorded(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{})
	for _, a := range []mem.Action{mem.ActionAlloc, mem.NumActions, 255} {
		r.Observe(mem.Event{Action: a, Ptr: 512, Size: 512})
	}
	if got := r.Trace().Events; len(got) != 1 || got[0].Action != mem.ActionAlloc {
		t.Errorf("%+v", got)
	}
}
