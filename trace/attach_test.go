package trace_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// partial are allocators for which only a layer below reports events, not those of the blocks that they lend
// themselves: the recorder sees their requests and frees as they pass through.
var partial = []opener{
	{"magazine", func(dev driver.Device) (mem.Allocator, error) {
		a, err := caching.New(dev, caching.Default())
		return magazine.New(a, magazine.Options{MaxSize: 8 << 20}), err
	}},
	{"pool", func(dev driver.Device) (mem.Allocator, error) {
		a, err := caching.New(dev, caching.Default())
		return a.NewPool(caching.PoolOptions{}), err
	}},
}

// A block that a layer kept and lends again has the stack of who has it now, and each knownBlock is in the trace.
func TestBlocksThatAreLentAgain(t *testing.T) {
	for _, x := range partial {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Context: trace.ContextAlloc})
			r.theAlloc()
			old := r.block
			r.theFree()
			r.theOther()
			if r.block.Ptr != old.Ptr {
				t.Fatalf("the address was not used again")
			}
			s, err := snapshot.Of(r.a, snapshot.Live{Recorder: r.recorder})
			if err != nil {
				t.Fatal(err)
			}
			for _, seg := range s.Segments {
				for _, b := range seg.Blocks {
					if got := strings.Join(names(s.Stacks, b.Stack), " "); b.State == mem.ActiveAllocated && !strings.Contains(got, "theOther") {
						t.Errorf("the block has the stack %q", got)
					}
				}
			}
			var actions []string
			for _, e := range s.Traces[0].Events {
				actions = append(actions, e.Action.String())
			}
			if want := []string{"alloc", "free_requested", "free_completed", "alloc"}; !slices.Equal(actions, want) {
				t.Errorf("entries %q, want %q", actions, want)
			}
		})
	}
}

// Pinned host memory is recorded like any other.
func TestAttachToPinnedMemory(t *testing.T) {
	dev, err := host.Open(host.Options{Total: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	below, err := pinned.New(dev, pinned.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := trace.NewRecorder(trace.RecorderOptions{})
	a := r.Attach(pinned.Mem(below))
	for range 2 {
		pair(t, a, dev.DefaultStream(), 1000)
	}
	var got []string
	for _, e := range r.Trace().Events {
		got = append(got, fmt.Sprint(e.Action, " ", e.Size))
	}
	want := []string{"alloc 1000", "free_requested 1000", "free_completed 1000"}
	if !slices.Equal(got, append(want, want...)) {
		t.Errorf("entries %q", got)
	}
}

// An allocator keeps no reference to a detached recorder or its ring.
func TestDetachedRecordersGo(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	record := func() weak.Pointer[trace.Recorder] {
		r := trace.NewRecorder(trace.RecorderOptions{Max: 1000})
		r.Attach(a)
		pair(t, a, dev.DefaultStream(), 1000)
		r.Detach()
		return weak.Make(r)
	}
	gone := record()
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the recorder is still there")
	}
	if _, err := a.Alloc(dev.DefaultStream(), 1<<45); err == nil {
		t.Error("32 TiB were had")
	}
	runtime.KeepAlive(a)
}

// A recorder that has left an allocator for another does not hear of the first one's failures.
func TestFailuresOfAFormerAllocator(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	r := trace.NewRecorder(trace.RecorderOptions{Max: 1000})
	var heard []int64
	r.AttachOutOfMemoryObserver(func(_ int, size int64, _ error) { heard = append(heard, size) })
	var all []mem.Allocator
	for range 2 {
		r.Detach()
		a, err := caching.New(dev, caching.Default())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.Attach(a))
	}
	for i, a := range all {
		if _, err := a.Alloc(dev.DefaultStream(), 1<<45+int64(i)); err == nil {
			t.Error("32 TiB were had")
		}
	}
	if !slices.Equal(heard, []int64{1<<45 + 1}) {
		t.Errorf("failures of %d were heard, want that of the second allocator", heard)
	}
}

// A Reporter above a recorder is part of the allocator: stacks begin with its caller.
func TestStacksBeginAboveAReporter(t *testing.T) {
	dir := t.TempDir()
	for _, x := range allocators {
		r := newRig(t, x.open, trace.RecorderOptions{Context: trace.ContextAlloc})
		r.a = snapshot.ReportOOM(r.a, snapshot.ReportOptions{Dir: dir})
		r.theAlloc()
		tr := r.recorder.Trace()
		last := tr.Events[len(tr.Events)-1]
		if got := names(tr.Stacks, last.Stack); len(got) == 0 || !strings.HasSuffix(got[0], "theAlloc") {
			t.Errorf("%s: stack %q", x.name, got)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Detaching a recorder while other goroutines allocate does not disturb them, and its history is consistent up to that
// point.
func TestDetachDuringLoad(t *testing.T) {
	for _, x := range append(slices.Clip(allocators), partial...) {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Context: trace.ContextAlloc})
			var wg sync.WaitGroup
			for w := range 3 {
				wg.Go(func() {
					for i := range 500 {
						pair(t, r.a, r.stream, int64(512*(1+(i+w)%7)))
					}
				})
			}
			for range 50 {
				r.recorder.Detach()
				if again := r.recorder.Attach(r.bottom); again == nil {
					t.Error("no allocator")
				}
			}
			r.recorder.Detach()
			wg.Wait()
			tr := r.recorder.Trace()
			p, err := trace.ToProgram(tr, trace.ProgramOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Anomalies.Count > 0 {
				t.Errorf("of %d entries with %d gaps: %v", len(tr.Events), len(tr.Gaps), p.Anomalies.First)
			}
		})
	}
}

// While a tracker is attached, a free reports the requested size even if recording stopped for a while.
func TestTrackersHearOfSizesAcrossStops(t *testing.T) {
	r := newRig(t, allocators[3].open, trace.RecorderOptions{Context: trace.ContextAll})
	var freed []int64
	r.recorder.AttachTracker(func(e mem.Event) {
		if e.Action == mem.ActionFreeCompleted {
			freed = append(freed, e.Size)
		}
	})
	before := r.alloc(1000)
	r.recorder.Stop()
	between := r.alloc(1001)
	if v := r.recorder.View(func() {}); v.Block(before.Ptr) != 0 || v.Block(between.Ptr) != 0 {
		t.Error("there are stacks in a gap")
	}
	r.recorder.Start()
	if v := r.recorder.View(func() {}); v.Block(before.Ptr) != 0 || v.Block(between.Ptr) != 0 {
		t.Error("there are stacks of before a gap")
	}
	r.a.Free(before)
	r.a.Free(between)
	if !slices.Equal(freed, []int64{1000, 1001}) {
		t.Errorf("blocks of %d were freed", freed)
	}
}
