package trace_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A rig is a recorder attached to an allocator.
type rig struct {
	t        testing.TB
	bottom   mem.Allocator // that it is attached to
	a        mem.Allocator // that is used
	recorder *trace.Recorder
	stream   driver.Stream
	block    mem.Block
}

// An opener makes an allocator of some kind.
type opener struct {
	name string
	open func(dev driver.Device) (mem.Allocator, error)
}

var allocators = []opener{
	{"caching", func(dev driver.Device) (mem.Allocator, error) { return caching.New(dev, caching.Default()) }},
	{"expandable", func(dev driver.Device) (mem.Allocator, error) {
		cfg := caching.Default()
		cfg.ExpandableSegments = true
		return caching.New(dev, cfg)
	}},
	{"tracked", func(dev driver.Device) (mem.Allocator, error) { // a layer below reports events
		a, err := caching.New(dev, caching.Default())
		return layer.NewLeakTracker(a, layer.LeakTrackerOptions{Depth: -1}), err
	}},
	{"arena", func(dev driver.Device) (mem.Allocator, error) { return arena.New(dev, arena.Config{Size: 256 << 20}) }},
}

func newRig(t testing.TB, open func(dev driver.Device) (mem.Allocator, error), opts trace.RecorderOptions) *rig {
	t.Helper()
	dev := drivertest.OpenSim(t, 0)
	a, err := open(dev)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, bottom: a, recorder: trace.NewRecorder(opts), stream: dev.DefaultStream()}
	r.a = r.recorder.Attach(a)
	return r
}

func (r *rig) alloc(size int64) mem.Block {
	r.t.Helper()
	b, err := r.a.Alloc(r.stream, size)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// The functions that the tests look for in stacks.

func (r *rig) theAlloc() { r.block, _ = r.a.Alloc(r.stream, 3<<20) }
func (r *rig) theOther() { r.block, _ = r.a.Alloc(r.stream, 3<<20) }
func (r *rig) theFree()  { r.a.Free(r.block) }

func (r *rig) theTrim() {
	if t, ok := mem.Find[mem.Trimmer](r.a); ok {
		if err := t.EmptyCache(); err != nil {
			r.t.Error(err)
		}
	}
}

// json is a current snapshot as text, with all its stacks.
func (r *rig) json() string {
	r.t.Helper()
	s, err := snapshot.Of(r.a, snapshot.Live{Recorder: r.recorder})
	if err != nil {
		r.t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.WriteJSON(&b); err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

// Contexts say whose stacks there are: of allocations in the trace, or of everything, or of the allocated blocks alone.
// The caller that emptied the cache is only recorded at the level of all events.
func TestBehaviour58_ContextsSayWhoseStacksThereAre(t *testing.T) {
	for _, x := range allocators {
		for c := trace.ContextNever; c <= trace.ContextAll; c++ {
			t.Run(x.name+"/"+c.String(), func(t *testing.T) {
				r := newRig(t, x.open, trace.RecorderOptions{Context: c})
				says := func(when, name string, want bool) {
					t.Helper()
					if got := strings.Contains(r.json(), "."+name+`"`); got != want {
						t.Errorf("%s: %s is there: %v, want %v", when, name, got, want)
					}
				}
				r.theAlloc()
				says("allocated", "(*rig).theAlloc", c >= trace.ContextState)
				for _, e := range r.recorder.Trace().Events {
					if e.Action == mem.ActionAlloc && (e.Stack != 0) != (c >= trace.ContextAlloc) {
						t.Errorf("the entry's stack is %d", e.Stack)
					}
				}
				r.theFree()
				says("freed", "(*rig).theFree", c == trace.ContextAll)
				r.theTrim()
				says("at last", "(*rig).theAlloc", c >= trace.ContextAlloc)
				says("at last", "(*rig).theFree", c == trace.ContextAll)
				says("at last", "(*rig).theTrim", c == trace.ContextAll && x.name != "arena") // whose region stays
				checkFrees(t, r.recorder.Trace(), c)
			})
		}
	}
}

// checkFrees checks the stacks of frees.
func checkFrees(t *testing.T, tr *trace.Trace, c trace.Context) {
	t.Helper()
	of := map[driver.Pointer]trace.StackID{}
	for i, e := range tr.Events {
		switch e.Action {
		case mem.ActionAlloc:
			of[e.Ptr] = e.Stack
		case mem.ActionFreeRequested, mem.ActionFreeCompleted:
			if same := e.Stack == of[e.Ptr]; same != (c != trace.ContextAll) {
				t.Errorf("entry %d: a free has stack %d, its allocation %d", i, e.Stack, of[e.Ptr])
			}
		}
	}
}

// Turning recording off and on again keeps the earlier history and nothing from the gap: no entries, no stacks of
// blocks allocated during it, and no stale stacks at their addresses.
func TestBehaviour59_RecordingIsTurnedOffAndOn(t *testing.T) {
	for _, x := range allocators {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Context: trace.ContextAll})
			r.theAlloc()
			before, old := r.recorder.Trace(), r.block
			r.recorder.Stop()
			r.theFree()
			r.theOther()
			if r.block.Ptr != old.Ptr {
				t.Fatalf("the address was not used again: %#x, %#x", uint64(old.Ptr), uint64(r.block.Ptr))
			}
			if got := r.recorder.Trace(); len(got.Events) != len(before.Events) {
				t.Errorf("%d entries, before the gap %d", len(got.Events), len(before.Events))
			}
			r.recorder.Start()
			s, err := snapshot.Of(r.a, snapshot.Live{Recorder: r.recorder})
			if err != nil {
				t.Fatal(err)
			}
			for _, seg := range s.Segments {
				for _, b := range seg.Blocks {
					if b.Stack != 0 {
						t.Errorf("a block of the gap has the stack %v", names(s.Stacks, b.Stack))
					}
				}
			}
			r.theFree()
			after := r.recorder.Trace()
			if !slices.EqualFunc(before.Events, after.Events[:len(before.Events)], func(a, b trace.Event) bool {
				return a.Action == b.Action && a.Ptr == b.Ptr && slices.Equal(names(before.Stacks, a.Stack), names(after.Stacks, b.Stack))
			}) {
				t.Errorf("entries of before the gap have changed:\n%+v\n%+v", before.Events, after.Events)
			}
			var actions []mem.Action
			for _, e := range after.Events[len(before.Events):] {
				if e.Action != mem.ActionSnapshot {
					actions = append(actions, e.Action)
				}
			}
			if !slices.Equal(actions, []mem.Action{mem.ActionFreeRequested, mem.ActionFreeCompleted}) {
				t.Errorf("after the gap: %v", actions)
			}
			text := r.json()
			for name, want := range map[string]bool{"theAlloc": true, "theFree": true, "theOther": false} {
				if got := strings.Contains(text, "(*rig)."+name+`"`); got != want {
					t.Errorf("%s is there: %v, want %v", name, got, want)
				}
			}
		})
	}
}

// names are the functions of a stack, innermost first.
func names(s *trace.Stacks, id trace.StackID) (all []string) {
	for _, f := range s.At(id) {
		all = append(all, s.Frames[f].Name)
	}
	return all
}

// Every entry has the user metadata; exactly the skipped actions are left out.
func TestBehaviour60_MetadataAndSkippedActions(t *testing.T) {
	for _, x := range allocators {
		t.Run(x.name, func(t *testing.T) {
			work := func(skip ...mem.Action) *trace.Trace {
				r := newRig(t, x.open, trace.RecorderOptions{Skip: skip})
				var heard int
				defer r.recorder.AttachTracker(func(mem.Event) { heard++ })()
				r.recorder.SetMetadata("step 7")
				r.theAlloc()
				small := r.alloc(100)
				if _, err := r.a.Alloc(r.stream, 1<<40); err == nil {
					t.Error("a TiB was had")
				}
				r.theFree()
				r.a.Free(small)
				r.theTrim()
				if _, err := snapshot.Of(r.a, snapshot.Live{}); err != nil {
					t.Error(err)
				}
				tr := r.recorder.Trace()
				if len(skip) == 0 && heard != len(tr.Events) {
					t.Errorf("a tracker heard of %d events of %d", heard, len(tr.Events))
				}
				return tr
			}
			all := work()
			seen := map[mem.Action]bool{}
			for i, e := range all.Events {
				seen[e.Action] = true
				if got := all.Metadata[e.Metadata]; got != "step 7" {
					t.Errorf("entry %d has metadata %q", i, got)
				}
			}
			if want := map[string]int{"caching": 7, "tracked": 7, "expandable": 7, "arena": 4}[x.name]; len(seen) != want {
				t.Errorf("%d kinds of actions, want %d: %v", len(seen), want, seen)
			}
			for a := range mem.NumActions {
				want := slices.DeleteFunc(slices.Clone(all.Events), func(e trace.Event) bool { return e.Action == a })
				if got := work(a).Events; !slices.Equal(got, want) {
					t.Errorf("without %v: %+v\nwant %+v", a, got, want)
				}
			}
			kept := work(mem.ActionFreeRequested, mem.ActionFreeCompleted, mem.ActionSnapshot).Events
			for _, e := range kept {
				if e.Action == mem.ActionFreeRequested || e.Action == mem.ActionFreeCompleted || e.Action == mem.ActionSnapshot {
					t.Errorf("%v is there", e.Action)
				}
			}
		})
	}
}
