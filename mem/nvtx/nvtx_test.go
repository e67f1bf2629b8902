//go:build linux && (amd64 || arm64) && !nocuda

package nvtx

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

func TestOpenWithoutATool(t *testing.T) {
	for path, says := range map[string]string{
		"":                      "empty",
		"/none/libinjection.so": "/none/libinjection.so",
		"libc.so.6":             "InitializeInjectionNvtxExtension",
	} {
		if tool, err := Open(path); tool != nil || !errors.Is(err, ErrNoTool) || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%q): %v, %v; want ErrNoTool and a word of %q", path, tool, err, says)
		}
	}
}

func TestToolsThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		tool *fakeTool
		says string
	}{
		"no entry":     {&fakeTool{lacks: []string{"InitializeInjectionNvtxExtension"}}, "takes no extensions"},
		"declines":     {&fakeTool{declines: true}, "declined"},
		"no functions": {&fakeTool{omit: []callID{1, 2, 4, 6}}, "no nvtxMemHeapRegister, no nvtxMemHeapUnregister"},
		"one is missing": {
			&fakeTool{omit: []callID{regionsUnregister}}, "the tool has no nvtxMemRegionsUnregister",
		},
		"one is missing in the old slots": {
			&fakeTool{old: true, omit: []callID{regionsRegister}}, "the tool has no nvtxMemRegionsRegister",
		},
	} {
		if _, err := c.tool.play(t); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.says)
		}
	}
}

// The tool receives the calls and structures of the header nvtxExtImplMem_v1.h of NVTX 3.2.
func TestToolIsShownTheMemoryModule(t *testing.T) {
	f := &fakeTool{}
	if _, err := f.play(t); err != nil {
		t.Fatal(err)
	}
	if want := [...]uint16{3, 40, 1, 0x0102, 1, 1, 63, 0}; f.info != want {
		t.Errorf("version, size, module, compatibility, segments, segment, slots, nulls: %#x, want %#x", f.info, want)
	}
	if f.name != "Ashlar" {
		t.Errorf("the domain is %q", f.name)
	}
}

// Tools without domains, and tools for the first version of the extension, are supported too.
func TestOtherToolsSeeTheSame(t *testing.T) {
	for name, f := range map[string]*fakeTool{
		"as it is":   {},
		"no core":    {lacks: []string{"InitializeInjectionNvtx2"}},
		"core fails": {coreFails: true},
		"no domains": {noDomain: true},
		"old slots":  {old: true},
	} {
		tool, err := f.play(t)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if made := name == "as it is" || name == "old slots"; (f.name != "") != made {
			t.Errorf("%s: a domain was made: %v", name, f.name)
		}
		tell(f.watch(tool.Observer()),
			event{mem.ActionSegmentAlloc, 0x10000, 0x1000},
			event{mem.ActionAlloc, 0x10200, 500},
			event{mem.ActionFreeRequested, 0x10200, 500},
			event{mem.ActionFreeCompleted, 0x10200, 500},
			event{mem.ActionSegmentFree, 0x10000, 0x1000})
		wantCalls(t, f, "heap 0x10000+0x1000", "region 0x10200+0x1f4", "no region 0x10200+0x1f4")
	}
}

type event struct {
	action mem.Action
	ptr    driver.Pointer
	size   int64
}

func tell(o mem.Observer, events ...event) {
	for _, e := range events {
		o(mem.Event{Action: e.action, Ptr: e.ptr, Size: e.size})
	}
}

func wantCalls(t testing.TB, f *fakeTool, want ...string) {
	t.Helper()
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(f.calls, "\n"), strings.Join(want, "\n"))
	}
	f.calls = nil
}

func TestBlockAcrossRunsOfPages(t *testing.T) {
	f := &fakeTool{}
	tool, err := f.play(t)
	if err != nil {
		t.Fatal(err)
	}
	o := tool.Observer()
	tell(o, event{mem.ActionSegmentMap, 0x20000, 0x10000}, event{mem.ActionSegmentMap, 0x10000, 0x10000},
		event{mem.ActionSegmentMap, 0x30000, 0x10000})
	wantCalls(t, f, "heap 0x20000+0x10000", "heap 0x10000+0x10000", "heap 0x30000+0x10000")
	tell(o, event{mem.ActionAlloc, 0x18000, 0x18800})
	wantCalls(t, f, "region 0x18000+0x8000", "region 0x20000+0x10000", "region 0x30000+0x800")
	tell(o, event{mem.ActionFreeCompleted, 0x18000, 0x18800})
	wantCalls(t, f, "no region 0x18000+0x8000", "no region 0x20000+0x10000", "no region 0x30000+0x800")
	tell(o, event{mem.ActionSegmentUnmap, 0x10000, 0x30000})
	wantCalls(t, f, "no heap 0x10000+0x10000", "no heap 0x20000+0x10000", "no heap 0x30000+0x10000")
}

// When pages are unmapped in the middle of a run, the blocks on both sides stay open.
func TestUnmapOfAPartOfARun(t *testing.T) {
	f := &fakeTool{}
	tool, err := f.play(t)
	if err != nil {
		t.Fatal(err)
	}
	o := tool.Observer()
	tell(o, event{mem.ActionSegmentMap, 0x10000, 0x40000}, event{mem.ActionAlloc, 0x10000, 0x100},
		event{mem.ActionAlloc, 0x10200, 0x200}, event{mem.ActionAlloc, 0x40000, 0x10000},
		event{mem.ActionAlloc, 0x10400, 0x200}, event{mem.ActionFreeCompleted, 0x10400, 0x200})
	f.calls = nil
	tell(o, event{mem.ActionSegmentUnmap, 0x20000, 0x20000})
	wantCalls(t, f, "no heap 0x10000+0x40000", "heap 0x10000+0x10000", "region 0x10000+0x100", "region 0x10200+0x200",
		"heap 0x40000+0x10000", "region 0x40000+0x10000")
	tell(o, event{mem.ActionFreeCompleted, 0x10200, 0x200}, event{mem.ActionFreeCompleted, 0x40000, 0x10000},
		event{mem.ActionSegmentUnmap, 0x40000, 0x10000})
	wantCalls(t, f, "no region 0x10200+0x200", "no region 0x40000+0x10000", "no heap 0x40000+0x10000")
}

// A tool that watches the driver ends the heap of a freed segment, including live regions. The next segment at the same
// addresses is a new heap. The tool is not asked to end a heap twice.
func TestSegmentsThatTheDriverGetsBack(t *testing.T) {
	f := &fakeTool{}
	tool, err := f.play(t)
	if err != nil {
		t.Fatal(err)
	}
	o := f.watch(tool.Observer())
	for range 2 {
		tell(o, event{mem.ActionSegmentAlloc, 0x10000, 0x1000}, event{mem.ActionSegmentAlloc, 0x11000, 0x1000},
			event{mem.ActionAlloc, 0x10200, 0x100}, event{mem.ActionSegmentFree, 0x10000, 0x1000},
			event{mem.ActionAlloc, 0x10200, 0x100}, event{mem.ActionFreeCompleted, 0x10200, 0x100},
			event{mem.ActionAlloc, 0x11000, 0x100}, event{mem.ActionSegmentFree, 0x11000, 0x1000})
		wantCalls(t, f, "heap 0x10000+0x1000", "heap 0x11000+0x1000", "region 0x10200+0x100", "region 0x11000+0x100")
	}
	if len(f.heaps)+len(f.regions) != 0 {
		t.Errorf("left over: heaps %v, regions %v", f.heaps, f.regions)
	}
}

func TestMemoryThatTheToolRefuses(t *testing.T) {
	for _, handle := range []uintptr{0, noTool} {
		f := &fakeTool{refuse: func(r region) (uintptr, bool) { return handle, r.Ptr == 0x20000 }}
		tool, err := f.play(t)
		if err != nil {
			t.Fatal(err)
		}
		o := tool.Observer()
		tell(o, event{mem.ActionSegmentMap, 0x10000, 0x10000}, event{mem.ActionSegmentMap, 0x20000, 0x10000},
			event{mem.ActionAlloc, 0x20000, 0x100}, event{mem.ActionAlloc, 0x1ff00, 0x200})
		tell(o, event{mem.ActionFreeCompleted, 0x20000, 0x100}, event{mem.ActionFreeCompleted, 0x1ff00, 0x200},
			event{mem.ActionSegmentUnmap, 0x10000, 0x20000})
		wantCalls(t, f, "heap 0x10000+0x10000", "refuse 0x20000+0x10000", "region 0x1ff00+0x100", "no region 0x1ff00+0x100",
			"no heap 0x10000+0x10000")
		if n := tool.Refused(); n != 1 {
			t.Errorf("%d refused, want 1", n)
		}
	}
}

func TestWhatTheObserverHasNotSeenIsLeftAlone(t *testing.T) {
	f := &fakeTool{}
	tool, err := f.play(t)
	if err != nil {
		t.Fatal(err)
	}
	tell(tool.Observer(), event{mem.ActionAlloc, 0x10000, 0x100}, event{mem.ActionFreeCompleted, 0x10000, 0x100},
		event{mem.ActionSegmentFree, 0x10000, 0x1000}, event{mem.ActionOOM, 0x100000, 0x100000},
		event{mem.ActionSnapshot, 0, 0x1000}, event{mem.ActionSegmentMap, 0x50000, 0})
	wantCalls(t, f)
}

// One observer can serve several independent allocators.
func TestObserverIsSafeForConcurrentUse(t *testing.T) {
	f := &fakeTool{}
	tool, err := f.play(t)
	if err != nil {
		t.Fatal(err)
	}
	o := f.watch(tool.Observer())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			base := driver.Pointer(i+1) << 20
			for range 50 {
				tell(o, event{mem.ActionSegmentAlloc, base, 0x1000}, event{mem.ActionAlloc, base + 0x200, 100},
					event{mem.ActionFreeCompleted, base + 0x200, 100}, event{mem.ActionSegmentFree, base, 0x1000})
			}
		})
	}
	wg.Wait()
	if len(f.calls) != 4*50*3 || len(f.heaps)+len(f.regions) != 0 {
		t.Errorf("%d calls, left over %v and %v", len(f.calls), f.heaps, f.regions)
	}
}

// NVTX reads a slot at each call, so a tool can remove its functions when it ends.
func TestToolThatTakesItsFunctionsBack(t *testing.T) {
	for _, empty := range []uintptr{0, disabled} {
		f := &fakeTool{}
		tool, err := f.play(t)
		if err != nil {
			t.Fatal(err)
		}
		o := tool.Observer()
		tell(o, event{mem.ActionSegmentAlloc, 0x10000, 0x1000}, event{mem.ActionAlloc, 0x10000, 0x100})
		f.calls = nil
		for i := range f.slots {
			f.slots[i] = empty
		}
		tell(o, event{mem.ActionAlloc, 0x10200, 0x100}, event{mem.ActionFreeCompleted, 0x10000, 0x100},
			event{mem.ActionSegmentAlloc, 0x20000, 0x1000}, event{mem.ActionSegmentFree, 0x10000, 0x1000})
		wantCalls(t, f)
	}
}
