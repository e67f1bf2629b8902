package trace_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// events reads a trace from lines "action address size [handle]".
func events(t testing.TB, text string) *trace.Trace {
	t.Helper()
	tr := &trace.Trace{}
	var handles []uint64
	for line := range strings.Lines(text) {
		var name string
		var ptr, size, handle uint64
		n, _ := fmt.Sscanf(line, "%s %v %d %d", &name, &ptr, &size, &handle)
		if n == 0 {
			continue
		}
		action, ok := mem.ParseAction(name)
		if !ok && name != "unknown" {
			t.Fatalf("action %q", name)
		} else if !ok {
			action = mem.NumActions
		}
		tr.Events = append(tr.Events, trace.Event{Action: action, Ptr: driver.Pointer(ptr), Size: int64(size)})
		handles = append(handles, handle)
	}
	tr.Streams = slices.Compact(slices.Sorted(slices.Values(handles)))
	for i, h := range handles {
		n, _ := slices.BinarySearch(tr.Streams, h)
		tr.Events[i].Stream = uint32(n)
	}
	return tr
}

func TestToProgram(t *testing.T) {
	for _, test := range []struct {
		name      string
		events    string
		opts      trace.ProgramOptions
		want      string
		prelude   trace.Prelude
		anomalies string // the first
	}{
		{name: "empty"},
		{name: "a free that completes at once, and one that does not", events: `
alloc 0x1000 500
alloc 0x2000 1000 77
free_requested 0x1000 500
free_completed 0x1000 500
free_requested 0x2000 1000 77
alloc 0x1000 512 77
free_completed 0x2000 1000 77
alloc 0x2000 100
`, want: `
alloc b0 500 on=s0
alloc b1 1000 on=s1
free b0
free b1 pending
alloc b2 512 on=s1
complete b1
alloc b3 100 on=s0
`},
		{name: "streams are numbered by handle", events: `
alloc 0x1000 1 9
alloc 0x2000 2 5
alloc 0x3000 3 7
`, want: "alloc b0 1 on=s2\nalloc b1 2 on=s0\nalloc b2 3 on=s1\n"},
		{name: "a history that starts late", events: `
free_requested 0x5000 50 3
free_completed 0x5000 50 3
alloc 0x1000 1
free_requested 0x6000 60
alloc 0x2000 2
free_completed 0x6000 60
free_completed 0x7000 70 3
alloc 0x3000 3
`, want: `
alloc b0 50 on=s1
alloc b2 60 on=s0
alloc b4 70 on=s1
free b4 pending
free b0
alloc b1 1 on=s0
free b2 pending
alloc b3 2 on=s0
complete b2
complete b4
alloc b5 3 on=s0
`, prelude: trace.Prelude{Blocks: 3, Bytes: 180}},
		{name: "blocks of the final snapshot that no entry allocates", events: `
alloc 0x1000 1 3
alloc 0x2000 2 3
free_requested 0x2000 2 3
`, opts: trace.ProgramOptions{Live: []trace.LiveBlock{
			{Ptr: 0x1000, Size: 1, Stream: 3},
			{Ptr: 0x2000, Size: 2, Stream: 3},
			{Ptr: 0x9000, Size: 9, Stream: 0, Pool: mem.PoolID{1, 0}},
			{Ptr: 0xa000, Size: 10, Stream: 4},
		}}, want: `
alloc b2 9 on=s0 pool=1,0
alloc b3 10 on=s2
alloc b0 1 on=s1
alloc b1 2 on=s1
free b1
`, prelude: trace.Prelude{Blocks: 2, Bytes: 19}},
		{name: "the cache is emptied: the next request is served from what is left", events: `
segment_alloc 0x0 100
alloc 0x1000 1
segment_free 0x0 100
segment_unmap 0x100 100
alloc 0x2000 1
`, want: "alloc b0 1 on=s0\nempty_cache\nalloc b1 1 on=s0\n"},
		{name: "the cache is emptied: no request follows", events: `
segment_alloc 0x0 100
free_requested 0x1000 1
segment_alloc 0x200 100
free_completed 0x1000 1
segment_free 0x0 100
free_requested 0x2000 1
free_completed 0x2000 1
segment_unmap 0x200 100
snapshot 0 0
segment_free 0x100 100
`, want: `
alloc b0 1 on=s0
alloc b1 1 on=s0
free b0 pending
complete b0
empty_cache
free b1
empty_cache
empty_cache
`, prelude: trace.Prelude{Blocks: 2, Bytes: 2}},
		{name: "the cache is emptied: a free that completes then is before the next request", events: `
alloc 0x0 100
free_requested 0x0 100
alloc 0x9000 1
segment_free 0x200 100
free_completed 0x0 100
alloc 0x0 100
`, want: `
alloc b0 100 on=s0
free b0 pending
alloc b1 1 on=s0
empty_cache
complete b0
alloc b2 100 on=s0
`},
		{name: "segments given back inside a request, with the wait before it", events: `
segment_alloc 0x0 100
alloc 0x0 100
free_requested 0x0 100
alloc 0x9000 1
free_completed 0x0 100
segment_free 0x0 100
segment_alloc 0x200 200
alloc 0x200 200
`, want: `
alloc b0 100 on=s0
free b0 pending
alloc b1 1 on=s0
alloc b2 200 on=s0
complete b0
`},
		{name: "a request that fails gives segments back", events: `
alloc 0x0 100
free_requested 0x0 100
alloc 0x9000 1
free_completed 0x0 100
segment_free 0x0 100
oom 0x200 1024 7
free_requested 0x9000 1
free_completed 0x9000 1
`, opts: trace.ProgramOptions{Attempts: true}, want: `
alloc b0 100 on=s0
free b0 pending
alloc b1 1 on=s0
try 1KiB on=s1
complete b0
free b1
`},
		{
			name: "a request that fails, not kept", events: "alloc 0x0 1\noom 0 1024\nalloc 0x200 2\n",
			want: "alloc b0 1 on=s0\nalloc b1 2 on=s0\n",
		},
		{name: "segments given back before a request, without cause to be refused", events: `
segment_alloc 0x0 100
segment_free 0x0 100
segment_alloc 0x0 200
alloc 0x0 1
segment_alloc 0x300 100
`, opts: trace.ProgramOptions{NoGarbageCollection: true}, want: "empty_cache\nalloc b0 1 on=s0\n"},
		{name: "likewise, but it could be the collection of garbage", events: `
segment_alloc 0x0 100
segment_free 0x0 100
segment_alloc 0x0 200
alloc 0x0 1
segment_alloc 0x300 100
`, want: "alloc b0 1 on=s0\n"},
		{name: "likewise, but the driver had cause to refuse", events: `
segment_alloc 0x0 100
segment_free 0x0 100
segment_alloc 0x0 200
alloc 0x0 1
segment_alloc 0x300 99
`, opts: trace.ProgramOptions{NoGarbageCollection: true}, want: "alloc b0 1 on=s0\n"},
		{
			name: "no completions recorded", events: "alloc 0x0 1\nfree_requested 0x0 1\nalloc 0x0 2\nfree_requested 0x0 2\n",
			want: "alloc b0 1 on=s0\nfree b0\nalloc b1 2 on=s0\nfree b1\n",
		},
		{
			name: "no requests of frees recorded", events: "alloc 0x0 1\nfree_completed 0x0 1\nfree_completed 0x200 2\n",
			want:    "alloc b1 2 on=s0\nalloc b0 1 on=s0\nfree b0\nfree b1\n",
			prelude: trace.Prelude{Blocks: 1, Bytes: 2},
		},
		{
			name: "allocated twice", events: "alloc 0x10 1\nalloc 0x10 2\n", want: "alloc b0 1 on=s0\nfree b0\nalloc b1 2 on=s0\n",
			anomalies: "entry 1: alloc at 0x10, where a block is live: its free is missing",
		},
		{name: "allocated while pending", events: "alloc 0x10 1\nfree_requested 0x10 1\nalloc 0x10 2\nfree_completed 0x20 1\n", want: `
alloc b2 1 on=s0
free b2 pending
alloc b0 1 on=s0
free b0 pending
complete b0
alloc b1 2 on=s0
complete b2
`, anomalies: "entry 2: alloc at 0x10, where a block is still waiting for other streams", prelude: trace.Prelude{Blocks: 1, Bytes: 1}},
		{
			name: "freed twice", events: `
free_requested 0x10 1
free_completed 0x10 1
free_requested 0x10 1
free_completed 0x10 1
`, want: "alloc b0 1 on=s0\nfree b0\n", prelude: trace.Prelude{Blocks: 1, Bytes: 1},
			anomalies: "entry 2: free of 0x10, where no block is live: its alloc is missing",
		},
		{
			name: "freed while pending", events: `
alloc 0x10 1
free_requested 0x10 1
alloc 0x20 2
free_requested 0x10 1
free_completed 0x10 1
`, want: "alloc b0 1 on=s0\nfree b0 pending\nalloc b1 2 on=s0\ncomplete b0\n",
			anomalies: "entry 3: free of 0x10, whose last free has not completed",
		},
		{
			name: "completed without request", events: "alloc 0x10 1\nfree_completed 0x10 1\nfree_requested 0x20 1\n",
			want:    "alloc b1 1 on=s0\nalloc b0 1 on=s0\nfree b0\nfree b1 pending\n",
			prelude: trace.Prelude{Blocks: 1, Bytes: 1}, anomalies: "entry 1: free of 0x10 completed, but was not requested",
		},
		{
			name: "completed twice", events: "free_requested 0x10 1\nfree_completed 0x10 1\nfree_completed 0x10 1\n",
			want: "alloc b0 1 on=s0\nfree b0\n", prelude: trace.Prelude{Blocks: 1, Bytes: 1},
			anomalies: "entry 2: free of 0x10 completed, where no block is live",
		},
		{
			name: "active at the end, though freed", events: "free_requested 0x10 1\nfree_completed 0x10 1\n",
			opts: trace.ProgramOptions{Live: []trace.LiveBlock{{Ptr: 0x10, Size: 1}}},
			want: "alloc b0 1 on=s0\nfree b0\n", prelude: trace.Prelude{Blocks: 1, Bytes: 1},
			anomalies: "entry 2: block at 0x10 is active in the snapshot, but its last free completed",
		},
		{
			name: "sizes below zero", events: "alloc 0x10 18446744073709551615\nfree_requested 0x20 18446744073709551615\n",
			want: "alloc b0 0 on=s0\nfree b0\n", prelude: trace.Prelude{Blocks: 1}, anomalies: "entry 0: alloc of -1 bytes at 0x10",
		},
		{
			name: "an unknown action", events: "unknown 0x10 1\nalloc 0x10 1\n", want: "alloc b0 1 on=s0\n",
			anomalies: "entry 0: unknown action 11",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := trace.ToProgram(events(t, test.events), test.opts)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Check(); err != nil {
				t.Error(err)
			}
			s, err := p.Script()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := s.String(), strings.TrimPrefix(test.want, "\n"); got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
			if p.Prelude != test.prelude {
				t.Errorf("prelude %+v, want %+v", p.Prelude, test.prelude)
			}
			first := ""
			if p.Anomalies.Count > 0 {
				first = p.Anomalies.First[0].String()
			}
			if first != test.anomalies {
				t.Errorf("anomaly %q, want %q", first, test.anomalies)
			}
		})
	}
}

func TestToProgramNamesTheEntryOfEachOp(t *testing.T) {
	p, err := trace.ToProgram(events(t, `
free_requested 0x5000 50
free_completed 0x5000 50
snapshot 0 0
alloc 0x1000 1
segment_free 0x0 1
free_requested 0x1000 1
`), trace.ProgramOptions{})
	want := []uint32{trace.NoEntry, 0, 3, 4, 5}
	if err != nil || !reflect.DeepEqual(p.Entries, want) {
		t.Errorf("entries %v, want %v (%v)", p.Entries, want, err)
	}
}

func TestToProgramAsksForPools(t *testing.T) {
	tr := events(t, "alloc 0x1000 1\nfree_requested 0x9000 1\nfree_completed 0x9000 1\nalloc 0x2000 1\nalloc 0x3000 1\n")
	pools := map[int]mem.PoolID{0: {1, 0}, 1: {0, 7}, 4: {1, 0}}
	p, err := trace.ToProgram(tr, trace.ProgramOptions{PoolOf: func(i int) mem.PoolID { return pools[i] }})
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint32]mem.PoolID{}
	for _, op := range p.Ops {
		if op.Kind == trace.OpAlloc {
			got[op.Block] = p.Pools[op.Pool]
		}
	}
	want := map[uint32]mem.PoolID{0: {1, 0}, 1: {0, 7}, 2: {}, 3: {1, 0}}
	if !reflect.DeepEqual(got, want) || p.Pools[0] != (mem.PoolID{}) {
		t.Errorf("pools %v, want %v", got, want)
	}

	tr.PoolsKnown, tr.Pools = true, []mem.PoolID{{}, {3, 0}}
	tr.Events[3].Pool = 1
	if p, err = trace.ToProgram(tr, trace.ProgramOptions{}); err != nil || p.Pools[p.Ops[3].Pool] != (mem.PoolID{3, 0}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestToProgramRefusesIndicesOutOfRange(t *testing.T) {
	for name, breakIt := range map[string]func(*trace.Trace){
		"stream": func(tr *trace.Trace) { tr.Events[1].Stream = 1 },
		"pool":   func(tr *trace.Trace) { tr.PoolsKnown, tr.Events[1].Pool = true, 1 },
	} {
		tr := events(t, "alloc 0x1000 1\nalloc 0x2000 1\n")
		breakIt(tr)
		if _, err := trace.ToProgram(tr, trace.ProgramOptions{}); err == nil || !strings.Contains(err.Error(), "entry 1: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tr := events(t, "alloc 0x1000 1\n")
	if _, err := trace.ToProgram(tr, trace.ProgramOptions{Live: []trace.LiveBlock{{Size: -1}}}); err == nil {
		t.Error("a live block of negative size")
	}
}

// The program can be run for any entries.
func FuzzToProgram(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0x10, 0x11, 3, 0x12, 4, 0x14, 0x20, 5, 8, 7, 0x22, 0x21}, byte(0))
	f.Add([]byte{0, 1, 2, 0x10, 0x11, 3, 0x12, 4, 0x14, 0x20, 5, 8, 7, 0x22, 0x21, 9}, byte(0x2c))
	f.Fuzz(func(t *testing.T, data []byte, flags byte) {
		tr := &trace.Trace{Streams: []uint64{0, 1}}
		for i, b := range data {
			tr.Events = append(tr.Events, trace.Event{
				Action: mem.Action(b & 15), Ptr: driver.Pointer(b >> 4 & 3), Size: int64(int8(b)) + 100, Stream: uint32(i & 1),
			})
		}
		opts := trace.ProgramOptions{Attempts: flags&1 != 0, NoGarbageCollection: flags&2 != 0}
		if flags&4 != 0 {
			opts.Live = []trace.LiveBlock{{Ptr: 1, Size: 5, Stream: 9}, {Ptr: 77, Size: 6, Stream: 1}}
		}
		for i := 1 + int(flags>>5); flags&8 != 0 && i <= len(data); i += 3 {
			tr.Gaps = append(tr.Gaps, i)
		}
		p, err := trace.ToProgram(tr, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		if len(p.Entries) != len(p.Ops) {
			t.Fatalf("%d ops, %d entries", len(p.Ops), len(p.Entries))
		}
		s, err := p.Script()
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Program()
		if err != nil || again.Stats().PeakBytes != p.Stats().PeakBytes || len(again.Ops) != len(p.Ops) {
			t.Fatalf("%v", err)
		}
	})
}

func BenchmarkToProgram(b *testing.B) {
	tr := &trace.Trace{Streams: []uint64{0}}
	const live = 2000
	for i := range 1_000_000 { // 3 million entries, 2000 blocks live, addresses in no order
		p := driver.Pointer(0x7f0000000000 + i*7919%100_000*512)
		if i >= live {
			old := driver.Pointer(0x7f0000000000 + (i-live)*7919%100_000*512)
			tr.Events = append(tr.Events, trace.Event{Action: mem.ActionFreeRequested, Ptr: old, Size: 512},
				trace.Event{Action: mem.ActionFreeCompleted, Ptr: old, Size: 512})
		}
		tr.Events = append(tr.Events, trace.Event{Action: mem.ActionAlloc, Ptr: p, Size: 512})
	}
	b.ReportAllocs()
	for b.Loop() {
		if p, err := trace.ToProgram(tr, trace.ProgramOptions{}); err != nil || p.Anomalies.Count > 0 {
			b.Fatal(err, p.Anomalies)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(tr.Events)), "ns/event")
}
