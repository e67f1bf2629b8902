package trace_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

func TestProgramStats(t *testing.T) {
	s, err := trace.ParseScript(`alloc a 0
alloc b 1 on=s0
alloc c 1023 on=s1
free b
alloc d 1024 on=s1
free c pending
alloc e 4000 on=s0
complete c
free e pending
free d
try 1GiB
empty_cache
alloc f 6
`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Program()
	if err != nil {
		t.Fatal(err)
	}
	got := p.Stats()
	want := trace.ProgramStats{
		Allocs: 6, Frees: 4, DeferredFrees: 2, EmptyCaches: 1, Attempts: 1,
		AllocatedBytes: 6054, PeakBytes: 6047, PeakOp: 6, LiveBlocks: 2, LiveBytes: 6, PendingBlocks: 1, PendingBytes: 4000,
		Streams: []trace.StreamStats{{Allocs: 4, AllocatedBytes: 4007, PeakBytes: 4006}, {Allocs: 2, AllocatedBytes: 2047, PeakBytes: 2047}},
	}
	want.Sizes[0] = trace.SizeClass{Allocs: 1}
	want.Sizes[1] = trace.SizeClass{Allocs: 1, Bytes: 1}
	want.Sizes[3] = trace.SizeClass{Allocs: 1, Bytes: 6}
	want.Sizes[10] = trace.SizeClass{Allocs: 1, Bytes: 1023}
	want.Sizes[11] = trace.SizeClass{Allocs: 1, Bytes: 1024}
	want.Sizes[12] = trace.SizeClass{Allocs: 1, Bytes: 4000}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for class, bounds := range map[int][2]int64{0: {0, 0}, 1: {1, 1}, 11: {1024, 2047}, 63: {1 << 62, 1<<63 - 1}} {
		least, most := got.Sizes.Bounds(class)
		if least != bounds[0] || most != bounds[1] || trace.SizeClassOf(least) != class || trace.SizeClassOf(most) != class {
			t.Errorf("class %d: %d to %d, want %v", class, least, most, bounds)
		}
	}
}

// An allocator that serves every request has room for those, too, that failed when they were recorded: each lives for a
// moment, beside what is active then, pending frees included.
func TestDefect03_TheLowerBoundCountsRequestsThatFailed(t *testing.T) {
	for script, want := range map[string]int64{
		"":                                    0,
		"alloc a 100\nfree a\nalloc b 80\n":   100,
		"alloc a 100\ntry 60\ntry 40\nfree a": 160,
		"alloc a 100\nfree a\ntry 60":         100,
		"alloc a 100\nfree a pending\ntry 60\ncomplete a\nalloc b 120":                               160,
		"alloc a 9223372036854775807\ntry 1\nalloc b 9223372036854775807\nfree a\nfree b\nalloc c 1": 1<<63 - 1,
	} {
		if got := program(t, script).LowerBound(); got != want {
			t.Errorf("%q: at least %d bytes, want %d", script, got, want)
		}
	}
}

// A request that no allocator of so much memory serves is left out; all others stay, with their entries.
func TestProgramWithin(t *testing.T) {
	p := program(t, "try 90\nalloc a 100\ntry 60\ntry 40\nfree a\ntry 141\nalloc b 500\n")
	p.Entries = []uint32{0, 1, 2, 3, 4, 5, 6}
	got := p.Within(140)
	want := program(t, "try 90\nalloc a 100\ntry 40\nfree a\nalloc b 500\n")
	want.Entries = []uint32{0, 1, 3, 4, 6}
	if !reflect.DeepEqual(got, want) || len(p.Ops) != 7 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if same := p.Within(160); same != p {
		t.Errorf("a program of which nothing is left out was copied: %+v", same)
	}
}

// Every part can be run alone. Together the parts need as much memory as the whole, and the last one leaves what the
// whole leaves.
func TestPartsOfAProgram(t *testing.T) {
	p := program(t, `alloc a 500
alloc b 1 on=s1
free a pending
alloc c 1023 on=s1
free b
alloc d 1024 on=s1
free c pending
complete a
try 3000
alloc e 4000 on=s0
complete c
free e pending
free d
empty_cache
alloc f 6
`)
	p.Entries = make([]uint32, len(p.Ops))
	for i := range p.Entries {
		p.Entries[i] = uint32(100 + i)
	}
	whole := p.Stats()
	for cut := range len(p.Ops) + 1 {
		first, second := p.Part(0, cut), p.Part(cut, len(p.Ops))
		for _, part := range []*trace.Program{first, second} {
			if err := part.Check(); err != nil {
				t.Errorf("cut before op %d: %v", cut, err)
			}
		}
		if got := max(first.LowerBound(), second.LowerBound()); got != p.LowerBound() {
			t.Errorf("cut before op %d: the parts need %d bytes, the whole %d", cut, got, p.LowerBound())
		}
		before, after := first.Stats(), second.Stats()
		if after.LiveBlocks != whole.LiveBlocks || after.LiveBytes != whole.LiveBytes ||
			after.PendingBlocks != whole.PendingBlocks || after.PendingBytes != whole.PendingBytes {
			t.Errorf("cut before op %d: the second part leaves %+v, the whole %+v", cut, after, whole)
		}
		if want := (trace.Prelude{
			Blocks: before.LiveBlocks + before.PendingBlocks, Bytes: before.LiveBytes + before.PendingBytes,
		}); second.Prelude != want || first.Prelude != (trace.Prelude{}) {
			t.Errorf("cut before op %d: preludes %+v and %+v, want none and %+v", cut, first.Prelude, second.Prelude, want)
		}
		own := len(second.Entries) - (len(p.Ops) - cut)
		for i, entry := range second.Entries {
			if want := uint32(100 + cut + i - own); i < own && entry != trace.NoEntry || i >= own && entry != want {
				t.Errorf("cut before op %d: op %d has entry %d", cut, i, entry)
			}
		}
		if len(second.Entries) != len(second.Ops) {
			t.Errorf("cut before op %d: %d entries of %d ops", cut, len(second.Entries), len(second.Ops))
		}
	}
	testkit.WantPanic(t, "a part that ends before it begins", "trace: ", func() { p.Part(2, 1) })
}

func program(t *testing.T, script string) *trace.Program {
	t.Helper()
	s, err := trace.ParseScript(script)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheckFindsImpossiblePrograms(t *testing.T) {
	alloc := trace.Op{Kind: trace.OpAlloc}
	for what, ops := range map[string][]trace.Op{
		"stream 1 of 1":                    {{Stream: 1}},
		"pool 1 of 1":                      {{Kind: trace.OpTry, Pool: 1}},
		"size -1":                          {{Size: -1}},
		"block 1 of 1":                     {{Kind: trace.OpFree, Block: 1}},
		"allocated twice":                  {{Kind: trace.OpEmptyCache}, alloc, {Kind: trace.OpFree}, alloc},
		"freed, but not allocated":         {alloc, {Kind: trace.OpFreeDeferred}, {Kind: trace.OpFree}},
		"completed, but no deferred":       {alloc, {Kind: trace.OpFree}, {Kind: trace.OpComplete}},
		"unknown kind 9":                   {alloc, {Kind: 9}},
		"block 0 freed, but not allocated": {{Kind: trace.OpFreeDeferred}},
	} {
		p := &trace.Program{Ops: ops, Blocks: 1, Streams: 1, Pools: []mem.PoolID{{}}}
		var pe *trace.ProgramError
		if err := p.Check(); !errors.As(err, &pe) || pe.Op != len(ops)-1 || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want %s in op %d", err, what, len(ops)-1)
		}
	}
}

func TestPoolsByAddress(t *testing.T) {
	// The segment at 0x2000 served the default pool first, and was given back; the second at that address is private.
	// The one at 0x8000 is a run of an expandable segment's pages, some of which came and went.
	tr := events(t, `
segment_alloc 0x2000 4096
alloc 0x2000 1
segment_free 0x2000 4096
segment_map 0x7000 8192
alloc 0x8000 1
segment_unmap 0x7000 8192
segment_map 0x8000 4096
segment_alloc 0x2000 4096
alloc 0x2000 1
alloc 0x2fff 1
alloc 0x3000 1
alloc 0x8000 1
segment_map 0x9000 4096
segment_unmap 0x9000 8192
segment_map 0x9000 4096
alloc 0x9fff 1
alloc 0x1fff 1
alloc 0xb000 1
`)
	poolOf := tr.PoolsByAddress([]trace.PoolRange{
		{Ptr: 0x8000, Size: 0x2000, Pool: mem.PoolID{0, 2}},
		{Ptr: 0xb000, Size: 0x1000, Pool: mem.PoolID{0, 3}}, // older than the recording
		{Ptr: 0x2000, Size: 0x1000, Pool: mem.PoolID{1, 0}},
		{Ptr: 0x3000, Size: 0x1000},
	})
	want := map[int]mem.PoolID{8: {1, 0}, 9: {1, 0}, 11: {0, 2}, 15: {0, 2}, 17: {0, 3}}
	for i, e := range tr.Events {
		if e.Action == mem.ActionAlloc && poolOf(i) != want[i] {
			t.Errorf("entry %d at %#x: pool %v, want %v", i, e.Ptr, poolOf(i), want[i])
		}
	}
}

func TestRecorder(t *testing.T) {
	now := int64(100)
	r := trace.NewRecorder(trace.RecorderOptions{Device: 3, Clock: func() int64 { now++; return now }})
	r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 0x10, Size: 5, Stream: 7})
	r.SetMetadata("step 1")
	r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: 0x20, Size: 6, Stream: 2, Pool: mem.PoolID{1, 0}})
	r.SetMetadata("")
	r.Observe(mem.Event{Action: mem.ActionOOM, Ptr: 9, Size: 7, Stream: 7})
	want := &trace.Trace{
		Device:          3,
		Streams:         []uint64{2, 7},
		Pools:           []mem.PoolID{{}, {1, 0}},
		PoolsKnown:      true,
		Metadata:        []string{"", "step 1"},
		CompileContexts: []trace.CompileContext{{Text: trace.NoCompileContext}},
		Events: []trace.Event{
			{TimeUS: 101, Action: mem.ActionAlloc, Ptr: 0x10, Size: 5, Stream: 1},
			{TimeUS: 102, Action: mem.ActionAlloc, Ptr: 0x20, Size: 6, Stream: 0, Pool: 1, Metadata: 1},
			{TimeUS: 103, Action: mem.ActionOOM, Ptr: 9, Size: 7, Stream: 1},
		},
	}
	if got := r.Trace(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	r.SetMetadata("step 2")
	r.Reset()
	r.Observe(mem.Event{Action: mem.ActionSnapshot})
	if got := r.Trace(); len(got.Events) != 1 || got.Metadata[got.Events[0].Metadata] != "step 2" || len(got.Streams) != 1 {
		t.Errorf("after Reset: %+v", got)
	}
}

func TestRecorderOverwritesTheOldest(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{Max: 3})
	for i := range 8 {
		if lost := r.Lost(); lost != int64(max(0, i-3)) {
			t.Errorf("after %d events: %d lost", i, lost)
		}
		var got []driver.Pointer
		for _, e := range r.Trace().Events {
			got = append(got, e.Ptr)
		}
		for n, p := range got {
			if want := driver.Pointer(max(0, i-3) + n); p != want || len(got) != min(i, 3) {
				t.Errorf("after %d events: %v", i, got)
			}
		}
		r.Observe(mem.Event{Action: mem.ActionAlloc, Ptr: driver.Pointer(i)})
	}
}

func TestRecorderIsSafeForConcurrentUse(t *testing.T) {
	r := trace.NewRecorder(trace.RecorderOptions{Max: 100})
	done := make(chan bool)
	for g := range 4 {
		go func() {
			for i := range 1000 {
				r.Observe(mem.Event{Stream: driver.StreamID(g), Pool: mem.PoolID{uint64(i), 0}})
				r.SetMetadata([]string{"", "x"}[i%2])
				if i%100 == 0 {
					r.Trace()
				}
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	if n := len(r.Trace().Events); n != 100 || r.Lost() != 3900 {
		t.Errorf("%d events, %d lost", n, r.Lost())
	}
}
