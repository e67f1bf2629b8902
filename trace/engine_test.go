package trace_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// An engine's memory is recorded from the start, and what its layers are called is in no stack. A recorder can be attached
// to a running engine too: it hears of what goes through the layer, and where the allocator reports events itself, of all.
func TestAttachToAnEngine(t *testing.T) {
	for _, spec := range []string{"caching", "arena:size=64MiB"} {
		ctx := context.Background()
		r, late := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll}), trace.NewRecorder(trace.RecorderOptions{})
		e, err := ashlar.Open(ctx, ashlar.Config{Devices: []ashlar.DeviceConfig{{Spec: "sim", Allocator: spec, Wrap: r.Attach}}})
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

func theAllocOf(t *testing.T, a mem.Allocator, s driver.Stream) {
	b, err := a.Alloc(s, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(b)
}
