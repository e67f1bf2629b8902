package trace_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/trace"
)

// An engine's memory is recorded from the start, and what its layers are called is in no stack. A recorder can be
// attached to a running engine too: it hears of what goes through the layer, and where the allocator reports events
// itself, of all.
func TestAttachToAnEngine(t *testing.T) {
	for _, spec := range []string{"caching", "arena:size=64MiB"} {
		ctx := context.Background()
		r, late := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll}), trace.NewRecorder(trace.RecorderOptions{})
		e, err := engine.Open(ctx, engine.Config{Devices: []engine.DeviceConfig{{Spec: "sim", Allocator: spec, Wrap: r.Attach}}})
		if err != nil {
			t.Fatal(err)
		}
		stream := e.Place(0).Device().DefaultStream()
		theAllocOf(t, e.Allocator(0), stream)
		tr := r.Trace()
		for _, e := range tr.Events {
			if got := names(tr.Stacks, e.Stack); len(got) == 0 || !strings.HasSuffix(got[0], ".theAllocOf") {
				t.Errorf("%s: %v has the stack %q", spec, e.Action, got)
			}
		}
		r.Detach()
		theAllocOf(t, late.Attach(e.Allocator(0)), stream)
		var got []mem.Action
		for _, e := range late.Trace().Events {
			got = append(got, e.Action)
		}
		if want := []mem.Action{mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted}; !slices.Equal(got, want) {
			t.Errorf("%s: late: %v", spec, got)
		}
		late.Detach()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Stacks begin where the program called Ashlar, however deep below that memory is asked for and freed: those of a
// recorder's entries and of allocated blocks, and those of a tracker.
func TestDefect25_StacksBeginInTheProgram(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll})
	var tracker *layer.LeakTracker
	e, err := engine.Open(t.Context(), engine.Config{Devices: []engine.DeviceConfig{{
		Spec: "host", Allocator: "caching",
		Wrap: func(a mem.Allocator) mem.Allocator {
			tracker = layer.NewLeakTracker(r.Attach(a), layer.LeakTrackerOptions{Depth: 32})
			return tracker
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	sum := theProgram(t, s)
	view := r.View(func() {})
	tr := r.Trace()
	for i := range tr.Events {
		if got := names(tr.Stacks, tr.Events[i].Stack); len(got) == 0 || !strings.HasSuffix(got[0], ".theProgram") {
			t.Errorf("%v has the stack %q", tr.Events[i].Action, got)
		}
	}
	live := tracker.Live()
	if len(live) == 0 || len(tr.Events) < 5 {
		t.Fatalf("%d allocated blocks, %d entries", len(live), len(tr.Events))
	}
	for _, b := range live {
		if got := names(view.Stacks, view.Block(b.Block.Ptr)); len(got) == 0 || !strings.HasSuffix(got[0], ".theProgram") {
			t.Errorf("an allocated block has the stack %q", got)
		}
		if len(b.Site) == 0 || !strings.HasSuffix(b.Site[0].Function, ".theProgram") {
			t.Errorf("a tracked block has the site %v", b.Site)
		}
	}
	if leaks := tracker.Leaks().String(); strings.Contains(leaks, "ashlar/tensor.") || !strings.Contains(leaks, "theProgram") {
		t.Errorf("leaks are told with Ashlar's own frames:\n%s", leaks)
	}
	sum.Release()
	if err := errors.Join(s.Close(), e.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// theProgram makes, adds and releases tensors.
func theProgram(t *testing.T, s *engine.Session) *tensor.Tensor {
	x, err := tensor.Zeros(s.Place(), dtype.Float32, 1000)
	if err != nil {
		t.Fatal(err)
	}
	y, err := compute.Add(s.Place(), x, x)
	if err != nil {
		t.Fatal(err)
	}
	x.Release()
	return y
}

func theAllocOf(t *testing.T, a mem.Allocator, s driver.Stream) {
	b, err := a.Alloc(s, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(b)
}
