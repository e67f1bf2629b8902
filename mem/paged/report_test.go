package paged_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Statistics count requested and allocated bytes, with and without processor caches, and with and without an observer.
func TestStatistics(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	x, y, z := r.alloc(r.s, 1000), r.alloc(r.s, granule+1), r.alloc(r.s, 512)
	r.free(y)
	y = r.alloc(r.s, granule+100) // of a processor cache
	r.a.Observe(func(mem.Event) {})
	r.free(x)
	r.a.Observe(nil)
	r.free(r.alloc(r.s, 700), r.alloc(r.s, 2000))
	want := func(what string, got, want mem.Stat) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	s := r.a.Stats()
	want("blocks", s.Allocation.All, mem.Stat{Current: 2, Peak: 4, Allocated: 6, Freed: 4})
	want("bytes", s.AllocatedBytes.All, mem.Stat{
		Current: granule + 1024, Peak: granule + 1024 + 1024 + 2048,
		Allocated: 1024 + 2*(granule+512) + 512 + 1024 + 2048, Freed: 1024 + granule + 512 + 1024 + 2048,
	})
	want("requested", s.RequestedBytes.All, mem.Stat{
		Current: granule + 612, Peak: granule + 612 + 2700,
		Allocated: 1000 + granule + 1 + 512 + granule + 100 + 2700, Freed: granule + 1 + 1000 + 2700,
	})
	want("active", s.Active.All, s.Allocation.All)
	want("in the large pool", s.AllocatedBytes.LargePool, s.AllocatedBytes.All)
	if got, f := s.ReservedBytes.All.Current, r.a.PageStats(); got != f.Reserved || got < f.Used {
		t.Errorf("%d bytes reserved; %+v", got, f)
	}

	r.a.ResetPeakStats()
	r.a.ResetAccumulatedStats()
	s = r.a.Stats()
	want("blocks after a reset", s.Allocation.All, mem.Stat{Current: 2, Peak: 2})
	if s.NumDeviceAlloc != 0 || s.ReservedBytes.All.Allocated != 0 || s.ReservedBytes.All.Peak != s.ReservedBytes.All.Current {
		t.Errorf("after a reset: %+v", s)
	}
	r.free(r.alloc(r.s, 700))
	want("blocks after one more", r.a.Stats().Allocation.All, mem.Stat{Current: 2, Peak: 3, Allocated: 1, Freed: 1})
	r.free(y, z)
}

// Statistics count each time that memory is mapped and unmapped.
func TestStatisticsCountMemoryOfTheDevice(t *testing.T) {
	r := simple(t, 64, paged.Config{})
	var events [2]int64
	r.a.Observe(func(e mem.Event) {
		switch e.Action {
		case mem.ActionSegmentMap:
			events[0]++
		case mem.ActionSegmentUnmap:
			events[1]++
		}
	})
	r.free(r.granules(3), r.granules(5))
	r.must(r.a.EmptyCache())
	r.a.Observe(nil)
	s := r.a.Stats()
	if events[0] == 0 || s.NumDeviceAlloc != events[0] || s.NumDeviceFree != events[1] || events[0] != events[1] {
		t.Errorf("memory was mapped and unmapped %v times, and %d and %d are counted", events, s.NumDeviceAlloc,
			s.NumDeviceFree)
	}
}

// A recorder receives every event, and other tools accept a snapshot of the allocator.
func TestRecorded(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 20 * granule})
	recorder := trace.NewRecorder(trace.RecorderOptions{})
	a := recorder.Attach(r.a)
	var live []mem.Block
	for i := range int64(200) {
		b, err := a.Alloc(r.s, 1+i*i*37%(3*granule))
		r.must(err)
		if live = append(live, b); len(live) > 4 {
			a.Free(live[i*7%4])
			live = append(live[:i*7%4], live[i*7%4+1:]...)
		}
	}
	s, err := snapshot.Of(a, snapshot.Live{Recorder: recorder})
	r.must(err)
	r.must(s.Check())
	var asked, mapped int64
	counts := map[mem.Action]int{}
	for _, e := range recorder.Trace().Events {
		counts[e.Action]++
		switch e.Action {
		case mem.ActionAlloc:
			asked += e.Size
		case mem.ActionFreeCompleted:
			asked -= e.Size
		case mem.ActionSegmentMap:
			mapped += e.Size
		case mem.ActionSegmentUnmap:
			mapped -= e.Size
		}
	}
	stats := r.a.Stats()
	if asked != stats.RequestedBytes.All.Current || mapped != stats.ReservedBytes.All.Current {
		t.Errorf("events leave %d live bytes and %d mapped, the statistics say %d and %d", asked, mapped,
			stats.RequestedBytes.All.Current, stats.ReservedBytes.All.Current)
	}
	if counts[mem.ActionAlloc] != 200 || counts[mem.ActionFreeRequested] != 196 || counts[mem.ActionSegmentUnmap] == 0 {
		t.Errorf("%v", counts)
	}
	recorder.Detach()
	r.free(live...)
}

// Requests that fail for lack of memory are events too.
func TestOutOfMemoryIsAnEvent(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 4 * granule})
	var heard []mem.Event
	r.a.Observe(func(e mem.Event) { heard = append(heard, e) })
	_, err := r.a.Alloc(r.s, 5*granule)
	e := r.noMemory(err)
	found := false
	for _, event := range heard {
		found = found || event == mem.Event{Action: mem.ActionOOM, Ptr: driver.Pointer(e.Free), Size: 5 * granule}
	}
	if !found {
		t.Errorf("heard was %+v", heard)
	}
	r.a.Observe(nil)
}

func TestRegistered(t *testing.T) {
	dev := sim.New(sim.Options{Total: 64 * granule, Granularity: granule})
	a, err := mem.Open("paged:limit=4MiB,aliases=off", dev)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := a.(*paged.Allocator)
	if !ok {
		t.Fatalf("%T", a)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := mem.Open("paged:limit=8", dev); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a limit of 8 bytes: %v", err)
	}
}

func TestParseConfig(t *testing.T) {
	for text, want := range map[string]paged.Config{
		"":                          {},
		" limit = 8GiB , page=4MiB": {Limit: 8 << 30, Page: 4 << 20},
		"keep=0":                    {Keep: paged.KeepNone},
		"keep=1MiB,aliases=off":     {Keep: 1 << 20, NoAliases: true},
		"aliases=on,addresses=1TiB": {Addresses: 1 << 40},
	} {
		if got, err := paged.ParseConfig(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, part := range map[string]string{
		"limit=x": "limit", "page=-1": "page", "keep": "keep", "limit=1,limit=2": "limit", "aliases=maybe": "aliases", "size=1": "size",
	} {
		if _, err := paged.ParseConfig(text); err == nil || !strings.Contains(err.Error(), part) || !strings.HasPrefix(err.Error(), "paged: ") {
			t.Errorf("%q: the error is %v: want one about %s", text, err, part)
		}
	}
}

// A small request that succeeds without a slab is no failure, and not reported as one.
func TestNoEventOfASlab(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: granule})
	x := r.alloc(r.s, granule-8<<10)
	n := 0
	r.a.Observe(func(e mem.Event) {
		if e.Action == mem.ActionOOM {
			n++
		}
	})
	b := r.alloc(r.s, 4<<10)
	if n != 0 {
		t.Errorf("%d requests were told of that failed: none did", n)
	}
	r.free(b)
	if _, err := r.a.Alloc(r.s, 3*granule); err == nil || n != 1 {
		t.Errorf("%d requests were told of that failed: one did, %v", n, err)
	}
	if s := r.a.Stats(); s.NumOOMs != 1 {
		t.Errorf("%d counted", s.NumOOMs)
	}
	r.a.Observe(nil)
	r.free(x)
}
