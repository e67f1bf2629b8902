package trace_test

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// everyAllocator lists all allocators that this package's tests record.
var everyAllocator = slices.Concat(allocators, partial, []opener{
	{"bfc", func(dev driver.Device) (mem.Allocator, error) {
		return bfc.New(dev, bfc.Config{})
	}},
	{"paged", func(dev driver.Device) (mem.Allocator, error) { return paged.New(dev, paged.Config{}) }},
	{"direct", func(dev driver.Device) (mem.Allocator, error) { return direct.New(dev, direct.Config{}), nil }},
})

// snapshot takes a snapshot with the recorder's history.
func (r *rig) snapshot() *snapshot.Snapshot {
	r.t.Helper()
	s, err := snapshot.Of(r.a, snapshot.Live{Recorder: r.recorder})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// A snapshot's trace ends before the entry that tells of that snapshot, also where the ring is full: the next one has it.
func TestDefect13_TheTraceEndsBeforeTheSnapshotsOwnEntry(t *testing.T) {
	for _, x := range everyAllocator {
		for _, limit := range []int{0, 1, 3} {
			r := newRig(t, x.open, trace.RecorderOptions{Max: limit})
			r.theAlloc()
			r.theFree()
			want := r.recorder.Trace().Events
			if got := r.snapshot().Traces[0].Events; !slices.Equal(got, want) {
				t.Errorf("%s, %d entries at most: the trace is %+v, want %+v", x.name, limit, got, want)
			}
			want = r.recorder.Trace().Events // with the entry of the first, if the allocator tells of it
			if got := r.snapshot().Traces[0].Events; !slices.Equal(got, want) {
				t.Errorf("%s, %d entries at most: the second trace is %+v, want %+v", x.name, limit, got, want)
			}
		}
	}
}

// At the level of allocations, memory that no request gave back has the stack of the request that got it.
func TestDefect13_FreedSegmentsHaveTheirOwnStack(t *testing.T) {
	for _, x := range everyAllocator {
		for c := trace.ContextState; c <= trace.ContextAll; c++ {
			r := newRig(t, x.open, trace.RecorderOptions{Context: c})
			r.theAlloc()
			r.theFree()
			r.theTrim()
			tr, got, gone := r.recorder.Trace(), int64(0), int64(0)
			for _, e := range tr.Events {
				switch e.Action {
				case mem.ActionSegmentAlloc, mem.ActionSegmentMap:
					got += e.Size
				case mem.ActionSegmentFree, mem.ActionSegmentUnmap:
					gone += e.Size
					stack := strings.Join(names(tr.Stacks, e.Stack), " ")
					if alloc := strings.Contains(stack, "(*rig).theAlloc"); alloc != (c == trace.ContextAlloc) || (stack != "") != (c > trace.ContextState) {
						t.Errorf("%s, level %v: %v has the stack %q", x.name, c, e.Action, stack)
					}
				}
			}
			if keeps := slices.Contains([]string{"arena", "magazine", "pool"}, x.name); gone != got || (got == 0) != keeps {
				t.Errorf("%s, level %v: %d bytes of segments came, %d went", x.name, c, got, gone)
			}
		}
	}
}

// RecordHistory without Enabled is PyTorch's enabled=None: it stops, and forgets what was recorded. What is recorded
// afterwards begins anew, and blocks of the time between have no stacks.
func TestDefect13_TurningHistoryOffForgetsIt(t *testing.T) {
	for _, x := range everyAllocator {
		r := newRig(t, x.open, trace.RecorderOptions{})
		r.recorder.RecordHistory(trace.HistoryOptions{Enabled: true, Context: trace.ContextAll})
		r.theAlloc()
		r.recorder.Annotate("step", "")()
		r.recorder.RecordHistory(trace.HistoryOptions{})
		r.theFree()
		r.theOther()
		if tr := r.recorder.Trace(); len(tr.Events)+len(tr.Gaps)+len(r.recorder.Annotations()) != 0 || r.recorder.Recording() {
			t.Errorf("%s: turned off: %+v, %+v, recording: %v", x.name, tr, r.recorder.Annotations(), r.recorder.Recording())
		}
		if text := r.json(); strings.Contains(text, "theAlloc") || strings.Contains(text, "theOther") {
			t.Errorf("%s: turned off, stacks are left: %s", x.name, text)
		}
		r.recorder.RecordHistory(trace.HistoryOptions{Enabled: true, Context: trace.ContextAll})
		r.theFree()
		tr := r.recorder.Trace()
		if len(tr.Events) == 0 || tr.Events[0].Action != mem.ActionFreeRequested || !strings.Contains(r.json(), "theFree") {
			t.Errorf("%s: turned on again: %+v", x.name, tr.Events)
		}
	}
}

// Turning history on keeps the old entries unless asked to clear them, and uses the requested length and actions.
func TestDefect13_RecordHistoryChangesWhatIsKept(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{Max: 4, Skip: []mem.Action{mem.ActionFreeCompleted}})
	next := driver.Pointer(0)
	events := func(n int) {
		for range n {
			next++
			r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: next, Size: 1})
			r.Observe(mem.Event{Action: mem.ActionFreeCompleted, Ptr: next, Size: 1})
			r.Annotate(fmt.Sprint(next), "")
		}
	}
	kept := func(what string, lost int64, want ...driver.Pointer) {
		t.Helper()
		var got, notes []driver.Pointer
		for _, e := range r.Trace().Events {
			got = append(got, e.Ptr)
		}
		for _, a := range r.Annotations() {
			var p driver.Pointer
			fmt.Sscan(a.Name, &p)
			notes = append(notes, p)
		}
		if !slices.Equal(got, want) || r.Lost() != lost || len(want) > 0 && !slices.Equal(notes, slices.Compact(want)) {
			t.Errorf("%s: entries %v, lost %d, annotations %v; want %v, lost %d", what, got, r.Lost(), notes, want, lost)
		}
	}
	events(5)
	kept("the last four", 1, 2, 3, 4, 5)
	r.RecordHistory(trace.HistoryOptions{Enabled: true, Max: 3, Skip: []mem.Action{mem.ActionFreeCompleted}})
	kept("at most three", 2, 3, 4, 5)
	events(1)
	kept("one more", 3, 4, 5, 6)
	r.RecordHistory(trace.HistoryOptions{Enabled: true, Max: math.MaxInt})
	events(2)
	kept("no bound, no action left out", 3, 4, 5, 6, 7, 7, 8, 8)
	r.RecordHistory(trace.HistoryOptions{Enabled: true, Clear: true, Max: 1})
	kept("cleared", 0)
	events(2)
	kept("the last one", 3, 10)
	testkit.WantPanic(t, "leaving out an unknown action", "", func() {
		r.RecordHistory(trace.HistoryOptions{Enabled: true, Skip: []mem.Action{mem.NumActions}})
	})
}

// A goroutine's metadata is on exactly the entries that the goroutine causes; all other entries have the recorder's.
func TestDefect13_MetadataOfAGoroutine(t *testing.T) {
	for _, x := range everyAllocator {
		r := newRig(t, x.open, trace.RecorderOptions{})
		r.recorder.SetMetadata("all")
		work := func(size int64) {
			for range 20 {
				r.a.Free(r.alloc(size))
				runtime.Gosched()
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { work(1 << 10) })
		wg.Go(func() { r.recorder.WithMetadata("two", func() { work(2 << 10) }) })
		wg.Go(func() {
			r.recorder.WithMetadata("outer", func() {
				r.recorder.WithMetadata("three", func() { work(3 << 10) })
				work(4 << 10)
				r.recorder.WithMetadata("", func() { work(5 << 10) })
			})
			work(6 << 10)
		})
		wg.Wait()
		want := map[int64]string{1 << 10: "all", 2 << 10: "two", 3 << 10: "three", 4 << 10: "outer", 5 << 10: "", 6 << 10: "all"}
		tr, seen := r.recorder.Trace(), map[int64]int{}
		for i, e := range tr.Events {
			switch e.Action {
			case mem.ActionAlloc, mem.ActionFreeRequested, mem.ActionFreeCompleted:
				seen[e.Size]++
				if got := tr.Metadata[e.Metadata]; got != want[e.Size] {
					t.Errorf("%s: entry %d, %v of %d bytes, has metadata %q", x.name, i, e.Action, e.Size, got)
				}
			}
		}
		for size := range want {
			if seen[size] != 60 {
				t.Errorf("%s: %d entries of %d bytes", x.name, seen[size], size)
			}
		}
	}
}

// A panic or Goexit in WithMetadata ends it, and Reset does not.
func TestWithMetadataEnds(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{})
	func() {
		defer func() { _ = recover() }()
		r.WithMetadata("x", func() {
			r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 1, Size: 1})
			r.Reset()
			if got := r.Metadata(); got != "x" {
				t.Errorf("metadata %q", got)
			}
			panic("y")
		})
	}()
	r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 1, Size: 1})
	if tr := r.Trace(); tr.Metadata[tr.Events[0].Metadata] != "" || r.Metadata() != "" {
		t.Errorf("metadata %q", tr.Metadata)
	}
}

// Entries have the compile context of the goroutine that causes them, or N/A.
func TestDefect15_CompileContexts(t *testing.T) {
	for _, x := range everyAllocator {
		r := newRig(t, x.open, trace.RecorderOptions{})
		r.recorder.PopCompileContext() // of nothing
		alloc := func(size int64) { r.a.Free(r.alloc(size)) }
		alloc(1 << 10)
		r.recorder.PushCompileContext("Torch-Compiled Region: 0/0")
		alloc(2 << 10)
		r.recorder.PushCompileContext("Torch-Compiled Region: 0/1")
		r.recorder.WithMetadata("inner", func() { alloc(3 << 10) })
		done := make(chan bool)
		go func() {
			alloc(4 << 10)
			r.recorder.PopCompileContext() // of another goroutine
			close(done)
		}()
		<-done
		alloc(5 << 10)
		r.recorder.PopCompileContext()
		alloc(6 << 10)
		r.recorder.PopCompileContext()
		alloc(7 << 10)
		want := map[int64]string{
			1 << 10: "N/A", 2 << 10: "Torch-Compiled Region: 0/0", 3 << 10: "Torch-Compiled Region: 0/1", 4 << 10: "N/A",
			5 << 10: "Torch-Compiled Region: 0/1", 6 << 10: "Torch-Compiled Region: 0/0", 7 << 10: "N/A",
		}
		tr, got, at := r.recorder.Trace(), map[int64]string{}, 0
		for i, e := range tr.Events {
			for at+1 < len(tr.CompileContexts) && tr.CompileContexts[at+1].First <= i {
				at++
			}
			if e.Action == mem.ActionAlloc {
				got[e.Size] = tr.CompileContexts[at].Text
			}
			if m := tr.Metadata[e.Metadata]; (m == "inner") != (e.Size == 3<<10) {
				t.Errorf("%s: metadata %q of %d bytes", x.name, m, e.Size)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}

// The stack of the request for a block is found by any address within what was requested, while the block is in use.
func TestDefect15_StackOfTheBlockAtAnAddress(t *testing.T) {
	for _, x := range everyAllocator {
		for c := trace.ContextNever; c <= trace.ContextAll; c++ {
			r := newRig(t, x.open, trace.RecorderOptions{Context: c})
			r.theAlloc()
			block := r.block
			expect := func(what string, offset driver.Pointer, function string) {
				t.Helper()
				frames := r.recorder.AllocationStack(block.Ptr + offset)
				if c == trace.ContextNever {
					function = ""
				}
				if (len(frames) > 0) != (function != "") || function != "" && !strings.HasSuffix(frames[0].Name, function) {
					t.Errorf("%s, level %v, %s: %+v", x.name, c, what, frames)
				}
			}
			expect("its first byte", 0, "(*rig).theAlloc")
			expect("its last byte", 3<<20-1, "(*rig).theAlloc")
			expect("the byte after it", 3<<20, "")
			expect("the byte before it", ^driver.Pointer(0), "")
			r.recorder.Stop()
			expect("stopped", 0, "")
			r.recorder.Start()
			expect("started", 0, "")
			r.theFree()
			r.theOther()
			block = r.block
			expect("another block", 5, "(*rig).theOther")
			r.theFree()
			expect("freed", 0, "")
		}
	}
}
