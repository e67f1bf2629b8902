package trace_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// Trackers receive every annotation; the ring stores it on request, with the annotation's own text only.
func TestAnnotateAction(t *testing.T) {
	for _, among := range []bool{false, true} {
		r := trace.NewRecorder(trace.RecorderOptions{Annotations: among})
		var heard []mem.Action
		r.AttachTracker(func(e mem.Event) { heard = append(heard, e.Action) })
		r.SetMetadata("x")
		end := r.Annotate("step", "y")
		r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 1, Size: 1})
		end()
		r.Stop()
		r.Annotate("gap", "")()
		if want := []mem.Action{mem.ActionAnnotate, mem.ActionAlloc, mem.ActionAnnotate, mem.ActionAnnotate, mem.ActionAnnotate}; !slices.Equal(heard, want) {
			t.Errorf("heard of %v, want %v", heard, want)
		}
		var got []string
		tr := r.Trace()
		for _, e := range tr.Events {
			got = append(got, e.Action.String()+" "+tr.Metadata[e.Metadata])
		}
		want := []string{"alloc x"}
		if among {
			want = []string{"annotate START step", "alloc x", "annotate END step"}
		}
		if !slices.Equal(got, want) || len(r.Annotations()) != 2 {
			t.Errorf("entries %q, want %q; annotations %+v", got, want, r.Annotations())
		}
	}
}

// An end is noted once, however often it is called.
func TestAnnotationEndsOnce(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{})
	end := r.Annotate("step", "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(end)
	}
	wg.Wait()
	if got := r.Annotations(); len(got) != 2 || got[1].Stage != trace.StageEnd {
		t.Errorf("%+v", got)
	}
}

// The annotations of a view date from the view's moment, like the rest of it.
func TestViewHasAnnotationsOfItsMoment(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{})
	end := r.Annotate("before", "")
	v := r.View(func() {
		r.Observe(mem.Event{Action: mem.ActionSnapshot})
		end()
		r.Annotate("after", "")()
	})
	if len(v.Annotations) != 1 || v.Annotations[0].Name != "before" {
		t.Errorf("%+v", v.Annotations)
	}
}
