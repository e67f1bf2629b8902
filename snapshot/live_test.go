package snapshot_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A live is an allocator with a recorder.
type live struct {
	a        *caching.Allocator
	tracked  *layer.LeakTracker
	recorder *trace.Recorder
	streams  []driver.Stream
}

func newLive(t *testing.T, settings string) *live {
	t.Helper()
	cfg, _, err := caching.ParseConfig(settings)
	if err != nil {
		t.Fatal(err)
	}
	cfg.PyTorchExact = true
	dev := drivertest.OpenSim(t, 0)
	a, err := caching.New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{a: a, tracked: layer.NewLeakTracker(a, layer.LeakTrackerOptions{Freed: -1}), streams: []driver.Stream{dev.DefaultStream()}}
	clock := int64(1790000000000000)
	l.recorder = trace.NewRecorder(trace.RecorderOptions{Annotations: true, Clock: func() int64 { clock++; return clock }})
	a.Observe(l.recorder.Observe)
	for range 2 {
		s := drivertest.NewStream(t, dev)
		l.streams = append(l.streams, s)
	}
	return l
}

// work allocates and frees as seed says, and leaves what is allocated.
func (l *live) work(t *testing.T, seed uint64, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var blocks []mem.Block
	for i := range n {
		if i%10 == 0 {
			defer l.recorder.Annotate(fmt.Sprint("step ", i/10), "")()
		}
		if len(blocks) > 40 || len(blocks) > 0 && r.IntN(5) < 2 {
			at := r.IntN(len(blocks))
			if r.IntN(10) == 0 {
				l.tracked.Free(blocks[at], l.streams[r.IntN(len(l.streams))])
			} else {
				l.tracked.Free(blocks[at])
			}
			blocks[at] = blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			continue
		}
		b, err := l.tracked.Alloc(l.streams[r.IntN(len(l.streams))], 1+r.Int64N(1<<(4+r.IntN(20))))
		if err != nil {
			t.Errorf("allocation %d: %v", i, err)
			return
		}
		blocks = append(blocks, b)
	}
}

// What was taken of a live allocator is written, read back and replayed, and is the same at every step.
func TestOfIsReplayedExactly(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True", "max_split_size_mb:20,roundup_power2_divisions:[64:2,>:4]"} {
		l := newLive(t, settings)
		l.recorder.SetMetadata("warm-up")
		l.work(t, 1, 1000)
		l.recorder.SetMetadata("")
		l.work(t, 2, 1000)
		if err := l.a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		l.work(t, 3, 1000)
		s, err := snapshot.Of(l.tracked, snapshot.Live{Recorder: l.recorder})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		checkRoundTrip(t, s)
		again, err := snapshot.ReadBytes(pickled(t, s))
		if err != nil {
			t.Fatal(err)
		}
		v, err := verify.Verify(again, verify.Options{TotalMemory: 8 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if !v.Exact || v.Blocks == 0 || v.Allocs < 1500 {
			t.Errorf("%q: replayed otherwise: %v\n%+v", settings, v.Difference, v)
		}
		cfg, notes, err := verify.RecordedConfig(again)
		if err != nil || len(notes) > 0 {
			t.Errorf("settings %q: %v, %q", again.Settings.Conf, err, notes)
		}
		if got, want := snapshot.SettingsOf(cfg), snapshot.SettingsOf(l.a.Config()); got.Conf != want.Conf || !strings.Contains(got.Conf, settings[:min(len(settings), 20)]) {
			t.Errorf("settings %q, want %q", got.Conf, want.Conf)
		}
		stats := l.a.Stats().Map()
		if len(again.Stats) != len(stats) || again.Stats["allocated_bytes.all.peak"] != stats["allocated_bytes.all.peak"] {
			t.Errorf("statistics %v", again.Stats)
		}
		site := again.Stacks.At(lastLive(again).Stack)
		if len(site) == 0 || !strings.HasSuffix(again.Stacks.Frames[site[0]].Name, ".(*live).work") {
			t.Errorf("the stack of a block has %d frames: %v", len(site), again.Stacks.Frames)
		}
		// The blocks that are left have stacks, those that were freed have none.
		var stacked, plain [4]int64
		h, err := holders.New(again, 0)
		testkit.Must(t, err)
		for i := range h.NumBlocks() {
			b := h.Block(i)
			to := &plain
			if b.Stack != 0 {
				to = &stacked
			}
			to[0]++
			to[1] += b.Size
			if int(b.Freed) == len(h.Trace.Events) {
				to[2]++
				to[3] += b.Size
			}
		}
		if stacked[0] != stacked[2] || stacked[1] != stacked[3] || stacked[2] != stats["allocation.all.current"] || plain[2] != 0 ||
			stacked[0]+plain[0] != int64(v.Allocs) {
			t.Errorf("the history has %d with stacks and %d without", stacked, plain)
		}
	}
}

func lastLive(s *snapshot.Snapshot) (last snapshot.Block) {
	for i := range s.Segments {
		for _, b := range s.Segments[i].Blocks {
			if b.State == mem.ActiveAllocated {
				last = b
			}
		}
	}
	return last
}

// Others allocate while the snapshot is taken: its history still leads to its segments.
func TestOfIsConsistent(t *testing.T) {
	l := newLive(t, "")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { l.work(t, uint64(10+i), 3000) })
	}
	for range 20 {
		s, err := snapshot.Of(l.a, snapshot.Live{Recorder: l.recorder})
		if err != nil {
			t.Fatal(err)
		}
		onLoan := map[driver.Pointer]int64{}
		var reserved int64
		if tr := s.Traces[0]; tr != nil {
			for _, e := range tr.Events {
				switch e.Action {
				case mem.ActionAlloc:
					onLoan[e.Ptr] = e.Size
				case mem.ActionFreeCompleted:
					delete(onLoan, e.Ptr)
				case mem.ActionSegmentAlloc:
					reserved += e.Size
				}
			}
		}
		for i := range s.Segments {
			reserved -= s.Segments[i].TotalSize
			for _, b := range s.Segments[i].Blocks {
				if b.State != mem.Inactive {
					if onLoan[b.Ptr] != b.RequestedSize {
						t.Fatalf("%d bytes at %#x are in use, the history has %d", b.RequestedSize, uint64(b.Ptr), onLoan[b.Ptr])
					}
					delete(onLoan, b.Ptr)
				}
			}
		}
		if len(onLoan) > 0 || reserved != 0 {
			t.Fatalf("the history has %d more blocks in use and %d more bytes in segments", len(onLoan), reserved)
		}
	}
	wg.Wait()
}

// bare is an allocator that says nothing of itself.
type bare struct{ mem.Allocator }

func TestOfOtherAllocators(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	a, err := mem.Open("arena:", dev)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.(*arena.Arena); !ok {
		t.Fatalf("%T", a)
	}
	if _, err := a.Alloc(dev.DefaultStream(), 1000); err != nil {
		t.Fatal(err)
	}
	annotations := []snapshot.Annotation{{Name: "x", Stage: "START", TimeUS: 3}}
	s, err := snapshot.Of(a, snapshot.Live{Device: 2, Annotations: annotations})
	if err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, s)
	if len(s.Segments) != 1 || s.Segments[0].Device != 2 || len(s.Traces) != 3 || s.Settings.Raw != nil || s.Stacks != nil {
		t.Errorf("%+v", s)
	}
	testkit.Equal(t, "requested", lastLive(s).RequestedSize, 1000)
	for _, f := range formats {
		if err := f.write(s, &bytes.Buffer{}); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
	if _, err := snapshot.Of(bare{a}, snapshot.Live{}); err == nil || !contains(err, "mem.Snapshotter") {
		t.Errorf("error %v", err)
	}
}

// The settings that a file has are those of the allocator, as far as their text can say them.
func TestSettingsOf(t *testing.T) {
	for _, conf := range []string{
		"", "large_segment_size_mb:40,max_split_size_mb:128,max_non_split_rounding_mb:64,roundup_power2_divisions:4",
		"garbage_collection_threshold:0.8,expandable_segments:True,expandable_segments_reserve:0.5G,per_process_memory_fraction:0.5",
		"expandable_segments_reserve:1.5,expandable_segments_reserve_by_class:[ads:8G,serving:0.25],throw_on_cudamalloc_oom:True,release_lock_on_cudamalloc:True,limit:1000,pytorch-exact:True",
	} {
		cfg, _, err := caching.ParseConfig(conf)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "conf", snapshot.SettingsOf(cfg).Conf, conf)
	}
	cfg := caching.Default()
	cfg.LargeSegmentSize = 10<<20 + 512 // no text of the syntax says that
	cfg.MaxSplitSize = 21<<20 + 1
	cfg.RoundupDivisions[3] = 8
	s := snapshot.SettingsOf(cfg)
	testkit.Equal(t, "conf", s.Conf, "max_split_size_mb:21,roundup_power2_divisions:["+
		"1:0,2:0,4:0,8:8,16:0,32:0,64:0,128:0,256:0,512:0,1024:0,2048:0,4096:0,8192:0,16384:0,32768:0]")
	testkit.Equal(t, "max split size", s.Raw["max_split_size"], any(int64(21<<20+1)))
	testkit.Equal(t, "all splits", snapshot.SettingsOf(caching.Default()).MaxSplitSize, -1)
}

// A snapshot has each block with what was asked for, its address and its stack; freed neighbours merge; emptying the
// cache is the last event before the snapshot itself.
func TestBehaviour56_SnapshotShowsBlocks(t *testing.T) {
	for _, settings := range []string{"", "expandable_segments:True"} {
		l := newLive(t, settings)
		const size = 311 * 411 * 4
		b, err := l.tracked.Alloc(l.streams[0], size)
		if err != nil {
			t.Fatal(err)
		}
		s := l.snapshot(t)
		got := lastLive(s)
		testkit.Equal(t, "address", got.Ptr, b.Ptr)
		testkit.Equal(t, "requested size", got.RequestedSize, size)
		if frames := s.Stacks.At(got.Stack); len(frames) == 0 || !strings.Contains(s.Stacks.Frames[frames[0]].Name, "TestBehaviour56") {
			t.Errorf("the stack has %d frames", len(frames))
		}
		blocks := make([]mem.Block, 1000)
		for i := range blocks {
			if blocks[i], err = l.tracked.Alloc(l.streams[0], 512); err != nil {
				t.Fatal(err)
			}
		}
		const seed = 56
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		for _, x := range blocks {
			l.tracked.Free(x)
		}
		l.tracked.Free(b)
		for _, seg := range l.snapshot(t).Segments {
			if len(seg.Blocks) != 1 || seg.Blocks[0].State != mem.Inactive {
				t.Errorf("seed %d: %d blocks are left of the segment at %#x", seed, len(seg.Blocks), uint64(seg.Ptr))
			}
		}
		if err := l.a.EmptyCache(); err != nil {
			t.Fatal(err)
		}
		events := l.snapshot(t).Traces[0].Events
		if last := events[len(events)-1].Action; last != mem.ActionSegmentFree && last != mem.ActionSegmentUnmap {
			t.Errorf("last action %v", last)
		}
	}
}

// Entries have the size that was asked for.
func TestBehaviour57_EventsHaveTheRequestedSize(t *testing.T) {
	l := newLive(t, "")
	const size = 311 * 411 * 4
	b, err := l.a.Alloc(l.streams[0], size)
	if err != nil {
		t.Fatal(err)
	}
	events := l.snapshot(t).Traces[0].Events
	alloc := events[len(events)-1]
	testkit.Equal(t, "action", alloc.Action, mem.ActionAlloc)
	testkit.Equal(t, "size", alloc.Size, size)
	l.a.Free(b)
	events = l.snapshot(t).Traces[0].Events
	testkit.Equal(t, "size of the free", events[len(events)-1].Size, size)
}

// snapshot takes one, writes it and reads it again.
func (l *live) snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.Of(l.tracked, snapshot.Live{Recorder: l.recorder})
	if err != nil {
		t.Fatal(err)
	}
	again, err := snapshot.ReadBytes(pickled(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A file carries the limit that its allocator had, by device, whichever layer has it; one without a limit has no such
// key.
func TestDefect25_FilesCarryTheLimit(t *testing.T) {
	open := func(settings string, limit int64) mem.Allocator {
		var dev driver.Device = drivertest.OpenSim(t, 1<<30)
		if limit > 0 {
			dev = layer.NewLimitedDevice(dev, limit, "a test's limit")
		}
		a, err := mem.Open(settings, dev)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for name, c := range map[string]struct {
		a    mem.Allocator
		want []int64
	}{
		"none":           {open("caching", 0), nil},
		"its own":        {open("caching:limit:40MiB", 0), []int64{0, 40 << 20}},
		"a fraction":     {open("caching:per_process_memory_fraction:0.25", 0), []int64{0, 256 << 20}},
		"the device's":   {open("caching", 64<<20), []int64{0, 64 << 20}},
		"the lower":      {open("caching:limit:40MiB", 64<<20), []int64{0, 40 << 20}},
		"of an arena":    {open("arena:size=32MiB,limit=16MiB", 0), []int64{0, 16 << 20}},
		"of paged":       {open("paged:limit=64MiB", 0), []int64{0, 64 << 20}},
		"of direct":      {open("direct:limit=64MiB", 0), []int64{0, 64 << 20}},
		"of a layer":     {layer.NewLimiter(open("caching", 0), 8<<20), []int64{0, 8 << 20}},
		"of bfc's pages": {open("bfc:virtual=on,limit=20MiB", 0), []int64{0, 20 << 20}},
	} {
		s, err := snapshot.Of(c.a, snapshot.Live{Device: 1})
		if err != nil {
			t.Fatal(err)
		}
		file := pickled(t, s)
		got, err := snapshot.ReadBytes(file)
		if err != nil || !slices.Equal(got.Limits, c.want) || len(got.Skipped) > 0 || bytes.Contains(file, []byte("memory_limits")) != (c.want != nil) {
			t.Errorf("%s: read %v, %v; want %v", name, got.Limits, err, c.want)
		}
	}
	for _, bad := range []*snapshot.Snapshot{{Limits: []int64{1, -1}}} {
		if _, err := snapshot.ReadBytes(pickled(t, bad)); err == nil || !strings.Contains(err.Error(), "device 1") || !strings.Contains(err.Error(), "memory_limits") {
			t.Errorf("limits %v: %v", bad.Limits, err)
		}
	}
}
