package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	texts "github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// small is a snapshot with one of everything that a file can have.
func small() *snapshot.Snapshot {
	stacks := &trace.Stacks{Frames: []trace.Frame{
		{Name: "forward", Filename: "model.py", Line: 10}, {Name: "<module>", Filename: `a "b"/train.py`, Line: 3},
	}}
	one := stacks.Add([]uint32{0, 1})
	two := stacks.Add([]uint32{1})
	const base = 0x7f0000000000
	first := &trace.Trace{
		Device: 0, Streams: []uint64{0, 0xfffffffffffffff0}, Pools: []mem.PoolID{{0, 0}, {0, 3}}, PoolsKnown: true,
		Metadata: []string{"", "layer 1"}, Stacks: stacks,
		CompileContexts: []trace.CompileContext{{First: 1, Text: "N/A"}, {First: 3, Text: "graph 0"}, {First: 8}},
		Events: []trace.Event{
			{TimeUS: 1000, Ptr: base, Size: 2 << 20, Action: mem.ActionSegmentAlloc, Stack: one},
			{TimeUS: 1000, Ptr: base, Size: 300, Action: mem.ActionAlloc, Stack: one, Metadata: 1},
			{TimeUS: 1002, Ptr: base + 512, Size: 1000, Action: mem.ActionAlloc, Stack: two, Stream: 1, Pool: 1},
			{TimeUS: 1003, Ptr: base, Size: 300, Action: mem.ActionFreeRequested},
			{TimeUS: 1003, Ptr: base, Size: 300, Action: mem.ActionFreeCompleted},
			{TimeUS: 1004, Ptr: 4096, Size: 1 << 40, Action: mem.ActionOOM, Stack: two},
			{TimeUS: 1005, Ptr: 1 << 44, Size: 20 << 20, Action: mem.ActionSegmentMap},
			{TimeUS: 1006, Ptr: 1 << 44, Size: 20 << 20, Action: mem.ActionSegmentUnmap},
			{TimeUS: 1007, Size: 1024, Action: mem.ActionSnapshot},
		},
	}
	third := &trace.Trace{
		Device: 2, Streams: []uint64{7}, Pools: []mem.PoolID{{0, 0}, {1, 0}}, Metadata: []string{""}, Stacks: stacks,
		Events: []trace.Event{{TimeUS: 990, Ptr: 0xffffffff00000000, Size: 5, Action: mem.ActionFreeCompleted}},
	}
	return &snapshot.Snapshot{
		Segments: []snapshot.Segment{
			{
				Ptr: base, TotalSize: 2 << 20, AllocatedSize: 1024, ActiveSize: 1024, RequestedSize: 1000, Stack: one,
				Blocks: []snapshot.Block{
					{Ptr: base, Size: 512, RequestedSize: 300},
					{Ptr: base + 512, Size: 1024, RequestedSize: 1000, State: mem.ActiveAllocated, Stack: two},
					{Ptr: base + 1536, Size: 2<<20 - 1536},
				},
			},
			{
				Device: 2, Ptr: 0xfffffffff0000000, TotalSize: 20 << 20, ActiveSize: 2 << 20, RequestedSize: 1 << 20, Stream: 7,
				Pool: mem.PoolID{1, 0}, Large: true, Expandable: true,
				Blocks: []snapshot.Block{
					{Ptr: 0xfffffffff0000000, Size: 2 << 20, RequestedSize: 1 << 20, State: mem.ActivePendingFree},
					{Ptr: 0xfffffffff0200000, Size: 18 << 20},
				},
			},
		},
		Traces: []*trace.Trace{first, nil, third},
		Stats:  map[string]int64{"num_ooms": 1, "allocation.all.current": 1},
		Settings: snapshot.Settings{
			Conf: "max_split_size_mb:128", MaxSplitSize: 128 << 20, GarbageCollectionThreshold: 0.5,
			Raw: map[string]any{
				"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128", "max_split_size": int64(128 << 20),
				"garbage_collection_threshold": 0.5, "later": []any{nil, true, 1.0, uint64(1 << 63), []byte{0, 255}},
			},
		},
		Annotations: []snapshot.Annotation{
			{Device: 2, TimeUS: 989, Name: "Optimizer.step", Stage: "START"},
			{Device: 2, TimeUS: 1001, Name: "Optimizer.step", Stage: "END"},
			{Device: 2, TimeUS: 1001, Name: "Optimizer.step", Stage: "END"},
		},
		Stacks: stacks,
	}
}

// A recordedEvent is an entry with its numbers looked up.
type recordedEvent struct {
	trace.Event
	stream                           uint64
	pool                             mem.PoolID
	metadata, context, frames, extra string
}

// extraText formats the kept values of a dict: with their types, and as they are, so that text that is not UTF-8 shows.
func extraText(x *snapshot.Extra) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf("%#v %v", x.Pairs, x.Pairs)
}

// meaning returns a snapshot with its tables looked up, which two files may number differently: the entries, and the rest.
func meaning(s *snapshot.Snapshot) (events [][]recordedEvent, rest []any) {
	stacks := map[trace.StackID]string{}
	for id := range trace.StackID(s.Stacks.Len() + 1) {
		for _, n := range s.Stacks.At(id) {
			stacks[id] += fmt.Sprintf("%v%s ", s.Stacks.Frames[n], extraText(s.FrameExtra[n]))
		}
	}
	rest = append(rest, s.Stats, fmt.Sprintf("%#v %v", s.Settings.Raw, s.Settings.Raw), extraText(s.Extra))
	for _, a := range s.Annotations {
		rest = append(rest, extraText(a.Extra))
		a.Extra = nil
		rest = append(rest, a)
	}
	for _, seg := range s.Segments {
		blocks := seg.Blocks
		rest = append(rest, stacks[seg.Stack], extraText(seg.Extra))
		seg.Stack, seg.Blocks, seg.Extra = 0, nil, nil
		rest = append(rest, seg)
		for _, b := range blocks {
			rest = append(rest, stacks[b.Stack], extraText(b.Extra))
			b.Stack, b.Extra = 0, nil
			rest = append(rest, b)
		}
	}
	for device, t := range s.Traces {
		events = append(events, nil)
		var kept snapshot.TraceExtra
		if device < len(s.TraceExtra) {
			kept = s.TraceExtra[device]
		}
		for _, u := range kept.Unknown {
			rest = append(rest, u.Before, extraText(u.Entry))
		}
		if t == nil {
			continue
		}
		rest = append(rest, t.PoolsKnown)
		contexts := t.CompileContexts
		all := make([]recordedEvent, len(t.Events))
		context, extra := "", ""
		for i, e := range t.Events {
			for len(contexts) > 0 && contexts[0].First == i {
				context, contexts = contexts[0].Text, contexts[1:]
			}
			for len(kept.Keys) > 0 && kept.Keys[0].First == i {
				extra, kept.Keys = extraText(kept.Keys[0].Extra), kept.Keys[1:]
			}
			x := recordedEvent{e, t.Streams[e.Stream], t.Pools[e.Pool], t.Metadata[e.Metadata], context, stacks[e.Stack], extra}
			x.Stack, x.Stream, x.Pool, x.Metadata = 0, 0, 0, 0
			all[i] = x
		}
		events[device] = all
	}
	return events, rest
}

// difference names the first place where two snapshots differ in meaning, or returns "".
func difference(a, b *snapshot.Snapshot) string {
	eventsA, restA := meaning(a)
	eventsB, restB := meaning(b)
	if len(eventsA) != len(eventsB) || len(restA) != len(restB) {
		return fmt.Sprintf("%d devices and %d, %d things and %d", len(eventsA), len(eventsB), len(restA), len(restB))
	}
	for device, events := range eventsA {
		if len(events) != len(eventsB[device]) {
			return fmt.Sprintf("device %d: %d entries and %d", device, len(events), len(eventsB[device]))
		}
		for i := range events {
			if events[i] != eventsB[device][i] {
				return fmt.Sprintf("device %d, entry %d: %+v and %+v", device, i, events[i], eventsB[device][i])
			}
		}
	}
	for i := range restA {
		if !reflect.DeepEqual(restA[i], restB[i]) {
			return fmt.Sprintf("%+v and %+v", restA[i], restB[i])
		}
	}
	return ""
}

func pickled(t testing.TB, s *snapshot.Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.WritePickle(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checkRoundTrip writes s, in which all is known, reads that, and wants the same; and the same bytes from what was read.
func checkRoundTrip(t *testing.T, s *snapshot.Snapshot) []byte {
	t.Helper()
	if len(s.Skipped) > 0 {
		t.Errorf("skipped %v", s.Skipped)
	}
	return checkKept(t, s)
}

// keptKinds lists what is not known and kept. Dicts that are equal may be one when they are written, so it does not count.
func keptKinds(s *snapshot.Snapshot) (all []string) {
	for _, x := range s.Skipped {
		if !x.Dropped {
			all = append(all, x.What)
		}
	}
	return all
}

// checkKept is checkRoundTrip that includes unknown values.
func checkKept(t *testing.T, s *snapshot.Snapshot) []byte {
	t.Helper()
	b := pickled(t, s)
	again, err := snapshot.ReadBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(keptKinds(again), keptKinds(s)) {
		t.Errorf("skipped %v, at first %v", again.Skipped, s.Skipped)
	}
	if d := difference(s, again); d != "" {
		t.Errorf("written and read again: %s", d)
	}
	if !bytes.Equal(pickled(t, again), b) {
		t.Error("what was read again is written otherwise")
	}
	return b
}

// Writing a PyTorch recording loses nothing, and PyTorch's viewer can read the result.
func TestWriteGoldenFiles(t *testing.T) {
	paths, err := filepath.Glob(traces + "/*.zst")
	if err != nil || len(paths) != len(golden) {
		t.Fatalf("%d traces: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, err := snapshot.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkViewer(t, checkRoundTrip(t, s))
		})
	}
}

func TestWriteEverything(t *testing.T) {
	s := small()
	b := checkRoundTrip(t, s)
	again, err := snapshot.ReadBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Equal(t, "conf", again.Settings.Conf, s.Settings.Conf)
	testkit.Equal(t, "max split size", again.Settings.MaxSplitSize, s.Settings.MaxSplitSize)
	if !reflect.DeepEqual(again.Traces[0].CompileContexts, s.Traces[0].CompileContexts) {
		t.Errorf("contexts %v", again.Traces[0].CompileContexts)
	}
	if !reflect.DeepEqual(again.Traces[0].Streams, s.Traces[0].Streams) || !reflect.DeepEqual(again.Traces[0].Pools, s.Traces[0].Pools) {
		t.Errorf("streams %v, pools %v", again.Traces[0].Streams, again.Traces[0].Pools)
	}
	if again.Traces[1] != nil || again.Traces[2].Device != 2 {
		t.Error("the devices are others")
	}
	checkRoundTrip(t, &snapshot.Snapshot{})
	checkRoundTrip(t, &snapshot.Snapshot{Traces: make([]*trace.Trace, 3)})
}

// Equal stacks are written once, and entries have no more than they need.
func TestWrittenFilesAreSmall(t *testing.T) {
	for _, stacks := range []int{0, 300} {
		file, _ := generated(t, snapshottest.Config{Seed: 3, Events: 50_000, Stacks: stacks, Depth: 30})
		s, err := snapshot.ReadBytes(file)
		if err != nil {
			t.Fatal(err)
		}
		if b := pickled(t, s); len(b) > len(file)*19/20 {
			t.Errorf("%d bytes written of %d", len(b), len(file))
		}
	}
}

// checkViewer walks over the opcodes of a pickle as PyTorch's viewer does.
func checkViewer(t *testing.T, b []byte) {
	t.Helper()
	const none, one, two, four, eight, counted1, counted4 = 0, 1, 2, 4, 8, -1, -4
	arguments := map[byte]int{
		0x80: one, 'e': none, 'h': one, 'J': four, 'K': one, 'M': two, '}': none, ']': none, 0x95: eight, 0x8a: counted1,
		'j': four, '(': none, 0x94: none, 'u': none, 0x8c: counted1, '.': none, 0x86: none, 0x89: none, 'X': counted4,
		0x88: none, 'N': none, 'G': eight,
	}
	var marks []int
	values := 0
	for at := 0; at < len(b); {
		op := b[at]
		n, known := arguments[op]
		if !known {
			t.Fatalf("the viewer has no opcode %#x, at %d", op, at)
		}
		at++
		switch n {
		case counted1:
			if op == 0x8a && b[at] > 8 {
				t.Errorf("an int of %d bytes at %d becomes a BigInt", b[at], at)
			}
			n = 1 + int(b[at])
		case counted4:
			n = 4 + int(binary.LittleEndian.Uint32(b[at:]))
		}
		at += n
		switch op {
		case 0x95, 0x94, 0x80, '.':
		case '(':
			marks = append(marks, values)
		case 'e', 'u':
			mark := marks[len(marks)-1]
			marks = marks[:len(marks)-1]
			if values-mark > 2*1000 {
				t.Fatalf("%d values at once, at %d", values-mark, at)
			}
			values = mark
		case 0x86:
			values--
		default:
			values++
		}
	}
	if values != 1 || len(marks) != 0 {
		t.Errorf("%d values and %d marks are left", values, len(marks))
	}
}

// The output in the other formats equals the reviewed golden files.
func TestWriteText(t *testing.T) {
	for name, write := range map[string]func(*snapshot.Snapshot, *bytes.Buffer) error{
		"small.json": func(s *snapshot.Snapshot, b *bytes.Buffer) error { return s.WriteJSON(b) },
		"small.timeline": func(s *snapshot.Snapshot, b *bytes.Buffer) error {
			return s.WriteTimeline(b, snapshot.TimelineOptions{})
		},
	} {
		var b bytes.Buffer
		if err := write(small(), &b); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(b.Bytes()) {
			t.Errorf("%s is no JSON", name)
		}
		texts.File(t, "testdata/"+name, b.String())
	}
}

func TestWriteJSONRefusesTheEndless(t *testing.T) {
	var list any = []any{1.0}
	for range 60 {
		list = []any{list, list}
	}
	s := &snapshot.Snapshot{Settings: snapshot.Settings{Raw: map[string]any{"x": list}}}
	err := s.WriteJSON(&bytes.Buffer{})
	if e, ok := errors.AsType[*snapshot.Error](err); !ok || !strings.Contains(e.Reason, "written out again") {
		t.Errorf("error %v", err)
	}
	if n := len(pickled(t, s)); n > 2000 {
		t.Errorf("the pickle has %d bytes", n)
	}
	var b bytes.Buffer
	s.Settings.Raw["x"] = []any{math.Inf(-1), math.NaN(), "\xff\u2028\x00"}
	if err := s.WriteJSON(&b); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("%v: %s", err, &b)
	}
}

// Ten times the events take no more memory to write.
func TestWritingTakesLittleMemory(t *testing.T) {
	var alloc [2][4]uint64
	for i, events := range []int{10_000, 100_000} {
		file, _ := generated(t, snapshottest.Config{Seed: 9, Events: events, Stacks: 50, Live: 500})
		s, err := snapshot.ReadBytes(file)
		if err != nil {
			t.Fatal(err)
		}
		for j, f := range formats[:2] {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := f.write(s, new(tally)); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			alloc[i][j] = after.TotalAlloc - before.TotalAlloc
			if i == 1 && alloc[1][j] > alloc[0][j]+256<<10 {
				t.Errorf("%s: %d bytes for 10,000 events, %d for ten times as many", f.name, alloc[0][j], alloc[1][j])
			}
		}
	}
}

var errFull = errors.New("full")

// A narrow writer accepts this many bytes, then fails.
type narrow struct{ left int }

func (w *narrow) Write(b []byte) (int, error) {
	if len(b) > w.left {
		n := w.left
		w.left = 0
		return n, errFull
	}
	w.left -= len(b)
	return len(b), nil
}

func TestWriteErrors(t *testing.T) {
	file, _ := generated(t, snapshottest.Config{Seed: 2, Events: 3000, Stacks: 20})
	s, err := snapshot.ReadBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range formats {
		var all tally
		if err := f.write(s, &all); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, int(all) / 2, int(all) - 1} {
			if err := f.write(s, &narrow{n}); !errors.Is(err, errFull) {
				t.Errorf("%s, room for %d of %d bytes: %v", f.name, n, all, err)
			}
		}
		if err := f.write(s, &narrow{int(all)}); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

// FuzzWrite reads arbitrary input, writes it and reads the result: the meaning is the same in every format that can be
// written.
func FuzzWrite(f *testing.F) {
	f.Add(pickled(f, small()))
	whole := with(file(L{segment}, L{event, with(event, "action", "free_requested", "pool_id", T{1, 0})}),
		"allocator_settings", D{"max_split_size", -1}, "external_annotations", L{D{"name", "x", "time_us", 1}})
	f.Add(snapshottest.Pickle(whole, 2))
	f.Add(snapshottest.Pickle(L{segment}, 5))
	f.Add(snapshottest.Pickle(with(whole, "allocator_settings", D{"x", event, "y", frame}), 4))
	f.Add(snapshottest.Pickle(unknown(), 4))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := snapshot.ReadLimited(bytes.NewReader(in), fuzzLimits)
		if err != nil {
			return
		}
		b := pickled(t, s)
		again, err := snapshot.ReadBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pickled(t, again), b) {
			t.Fatal("written again it is another")
		}
		var text bytes.Buffer
		if err := s.WriteJSON(&text); err == nil && !json.Valid(text.Bytes()) {
			t.Fatalf("no JSON: %s", &text)
		}
		text.Reset()
		if err := s.WriteTimeline(&text, snapshot.TimelineOptions{}); err != nil || !json.Valid(text.Bytes()) {
			t.Fatalf("no timeline: %v, %s", err, &text)
		}
		if d := difference(s, again); d != "" && utf8.ValidString(fmt.Sprint(meaning(s))) {
			t.Fatalf("written otherwise: %s", d)
		}
	})
}

// What was being compiled is kept, whether an entry is folded or not, and so is a context that is no str.
func TestContexts(t *testing.T) {
	said := func(context any) D { return with(event, "compile_context", context) }
	wide := said("wide") // has too many keys to be folded
	for i := range 65 {
		wide = with(wide, fmt.Sprintf("k%d", i), i)
	}
	s := mustRead(t, file(L{}, L{
		event, said("N/A"), said("N/A"), wide, said("N/A"), said("0/0"), said(""), said(nil), said(7), said("0/0"),
	}))
	want := []trace.CompileContext{
		{First: 1, Text: "N/A"}, {First: 3, Text: "wide"}, {First: 4, Text: "N/A"}, {First: 5, Text: "0/0"}, {First: 6}, {First: 9, Text: "0/0"},
	}
	if got := s.Traces[0].CompileContexts; !slices.Equal(got, want) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	if i := slices.Index(s.Skipped, snapshot.Skip{What: `trace entry key "compile_context"`, Count: 1}); i < 0 {
		t.Errorf("skipped %v", s.Skipped)
	}
	checkKept(t, s)
	s = mustRead(t, D{"segments", L{}, "device_traces", L{L{event}, L{said("a")}, L{}, L{said("a")}}})
	for device, want := range [][]trace.CompileContext{nil, {{Text: "a"}}, nil, {{Text: "a"}}} {
		if tr := s.Traces[device]; tr != nil && !slices.Equal(tr.CompileContexts, want) {
			t.Errorf("device %d: contexts %v, want %v", device, tr.CompileContexts, want)
		}
	}
	checkRoundTrip(t, s)
}

// Statistics are numbers.
func TestStatsAreChecked(t *testing.T) {
	_, err := read(t, with(file(L{}, L{}), "memory_stats", D{"num_ooms", "x"}))
	if err == nil || !contains(err, "memory_stats: num_ooms: want an int, got str") {
		t.Errorf("error %v", err)
	}
}
