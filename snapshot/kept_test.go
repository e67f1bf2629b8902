package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// unknown is a file in which everything has keys that are not known.
func unknown() D {
	augmented := with(frame, "fx_node_op", "call_function", "fx_node_name", "linear", "fx_original_trace", "line 1\nline 2")
	nested := with(frame, "line", 13, "where", D{"column", L{1, 2}, "frames", L{frame, augmented}})
	colour := with(event, "internal_metadata", "mallocWithAddress", "colour", 7, "forward_frames", L{"a.py:1", "b.py:2"})
	deep := with(event, "tags", L{T{1, "x"}, D{"entry", colour}})
	wide := event
	for i := range 70 {
		wide = with(wide, fmt.Sprint("wide ", i), i)
	}
	old := D{
		"size", 1536, "state", "inactive", "history",
		L{D{"addr", 0x1200, "real_size", 700, "frames", L{augmented}}, D{"addr", 0x1400, "real_size", 900, "frames", L{frame}}},
	}
	return D{
		"segments",
		L{with(segment, "registration_counter", 3, "owners", T{1, T{2, 3}}, "blocks", L{with(block, "category", "x", 5, 6), old})},
		"device_traces",
		L{
			L{
				event, with(event, "action", "rematerialise", "cause", L{colour}), colour, colour, event, deep, with(colour, "frames", L{augmented}),
				with(event, "action", "oom", "device_free", 10), with(event, "device_free", 10), wide,
				with(event, "frames", L{nested, frame, nested}), with(event, "action", "user_defined", "addr", 0, "size", 0),
				with(event, "compile_context", 7), with(event, "compile_context", "0/0"), with(event, "action", "annotate", "size", omit),
			},
			L{D{"action", "alone", "frames", L{augmented}}},
		},
		"host_segments",
		L{D{"address", 0x9000, "segment_pool_id", T{0, 0}, "frames", L{augmented}, "blocks", L{}}},
		"host_traces",
		L{with(event, "user_metadata", "pin"), colour, with(event, "action", "oom", "addr", omit, "device_free", 9, "pool_id", T{0, 4})},
		"trace_alloc_overflowed", true, 1.5, "a float",
		T{1, 2},
		L{nil, false},
		"external_annotations",
		L{D{"name", "step", "stage", "END", "device", 0, "time_us", 9, "colour", D{"of", "it"}}},
		"allocator_settings",
		D{"PYTORCH_ALLOC_CONF", "a:b", "new", D{"k", L{1, T{2, 3}}, "entry", colour, "frame", augmented}},
	}
}

// lacking names what is in a value and not in another: keys of dicts and their values, and items.
func lacking(at string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		var all []string
		for key, v := range want {
			if g, ok := got[key]; ok {
				all = append(all, lacking(at+"."+key, v, g)...)
			} else {
				all = append(all, at+"."+key)
			}
		}
		return all
	case []pickle.Pair:
		var all []string
		for _, pair := range want {
			all = append(all, lacking(fmt.Sprint(at, ".", pair.Key), pair.Value, valueOf(got, pair.Key))...)
		}
		return all
	case []any:
		got, _ := got.([]any)
		return lackingItems(at, want, got)
	case pickle.TupleValue:
		got, _ := got.(pickle.TupleValue)
		return lackingItems(at, want, got)
	}
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v, want %v", at, got, want)}
}

func lackingItems(at string, want, got []any) (all []string) {
	if len(want) != len(got) {
		return []string{fmt.Sprintf("%s has %d items, want %d", at, len(got), len(want))}
	}
	for i := range want {
		all = append(all, lacking(fmt.Sprintf("%s[%d]", at, i), want[i], got[i])...)
	}
	return all
}

// valueOf is the value of a key in a dict.
func valueOf(dict, key any) any {
	if byName, ok := dict.(map[string]any); ok {
		return byName[fmt.Sprint(key)]
	}
	pairs, _ := dict.([]pickle.Pair)
	for _, pair := range pairs {
		if reflect.DeepEqual(pair.Key, key) {
			return pair.Value
		}
	}
	return nil
}

func plain(t *testing.T, b []byte) any {
	t.Helper()
	d, err := pickle.Read(bytes.NewReader(b), pickle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Plain(d.Root())
}

// Writing a Snapshot keeps every unknown key of the file that it was read from, with its value, wherever the key
// stands.
func TestDefect13_WhatIsNotUnderstoodIsKept(t *testing.T) {
	file := unknown()
	s := mustRead(t, file)
	for _, x := range s.Skipped {
		if x.Dropped {
			t.Errorf("dropped: %v", x)
		}
	}
	written := checkKept(t, s)
	for _, x := range lacking("file", plain(t, snapshottest.Pickle(file, 4)), plain(t, written)) {
		t.Errorf("lost: %s", x)
	}
	var text bytes.Buffer
	if err := s.WriteJSON(&text); err != nil || !json.Valid(text.Bytes()) {
		t.Fatalf("no JSON: %v", err)
	}
	for _, part := range []string{
		`"registration_counter":3`, `"fx_node_op":"call_function"`, `"internal_metadata":"mallocWithAddress"`, `"1.5":"a float"`,
		`"action":"rematerialise"`, `"owners":[1,[2,3]]`,
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the JSON lacks %s", part)
		}
	}
}

// A program finds a kept value by its key.
func TestExtraOfEveryPart(t *testing.T) {
	s := mustRead(t, unknown())
	got := func(x *snapshot.Extra, key string) any {
		v, _ := x.Get(key)
		return v
	}
	testkit.Equal(t, "file", got(s.Extra, "trace_alloc_overflowed"), any(true))
	testkit.Equal(t, "segment", got(s.Segments[0].Extra, "registration_counter"), any(int64(3)))
	testkit.Equal(t, "block", got(s.Segments[0].Blocks[0].Extra, "category"), any("x"))
	testkit.Equal(t, "history", len(got(s.Segments[0].Blocks[1].Extra, "history").([]any)), 2)
	testkit.Equal(t, "annotation", fmt.Sprint(got(s.Annotations[0].Extra, "colour")), "map[of:it]")
	testkit.Equal(t, "none", got(s.Segments[0].Extra, "x"), nil)
	testkit.Equal(t, "nil", got(nil, "x"), nil)
	x := s.TraceExtra[0]
	testkit.Equal(t, "keys", x.Keys[0].First, 1)
	testkit.Equal(t, "key of an entry", got(x.Keys[0].Extra, "internal_metadata"), any("mallocWithAddress"))
	testkit.Equal(t, "no more", x.Keys[1].Extra, nil)
	testkit.Equal(t, "unknown entries", len(x.Unknown), 2)
	testkit.Equal(t, "unknown entry", got(x.Unknown[0].Entry, "action"), any("rematerialise"))
	testkit.Equal(t, "its place", x.Unknown[0].Before, 1)
	testkit.Equal(t, "annotate", x.Unknown[1].Before, len(s.Traces[0].Events))
	testkit.Equal(t, "device without events", got(s.TraceExtra[1].Unknown[0].Entry, "action"), any("alone"))
	at := slices.IndexFunc(s.Traces[0].Events, func(e trace.Event) bool { return e.Action == mem.ActionUserDefined })
	testkit.Equal(t, "user_defined", at >= 0, true)
	var ops []any
	for n := range s.FrameExtra {
		if op, ok := s.FrameExtra[n].Get("fx_node_op"); ok {
			ops = append(ops, op, s.Stacks.Frames[n].Name)
		}
	}
	testkit.Equal(t, "frames", fmt.Sprint(ops), "[call_function forward]")
}

// An entry under an unknown key has values of the types that package pickle gives them.
func TestKeptEntriesHaveTheTypesOfPickles(t *testing.T) {
	high := with(event, "addr", uint64(1<<63), "pool_id", T{0, 1}, "frames", nil)
	s := mustRead(t, append(file(L{}, L{event, high}), "low", event, "high", high))
	for name, want := range map[string]map[string]any{
		"low":  {"addr": int64(0x1000), "stream": int64(0)},
		"high": {"addr": uint64(1 << 63), "pool_id": pickle.TupleValue{int64(0), int64(1)}},
	} {
		entry, _ := s.Extra.Get(name)
		for key, value := range want {
			if got := entry.(map[string]any)[key]; !reflect.DeepEqual(got, value) {
				t.Errorf("%s: %s is %T %v, want %T %v", name, key, got, got, value, value)
			}
		}
	}
	testkit.Equal(t, "stack of an entry without frames", s.Traces[0].Events[1].Stack, 0)
}

// The memory for kept values counts against the limit, like all other memory, and a value that a file shares is counted
// once.
func TestDefect13_WhatIsKeptStaysWithinLimits(t *testing.T) {
	const free = 32 << 20
	for name, b := range map[string][]byte{
		"dicts":    zipped(t, "\x80\x04}(\x8c\x08segmentsN\x8c\x01x](", "}K\x00Ns", 500_000, "eu."),
		"lists":    zipped(t, "\x80\x04}(\x8c\x08segmentsN\x8c\x01x](", "]Na", 500_000, "eu."),
		"settings": zipped(t, "\x80\x04}(\x8c\x08segmentsN\x8c\x12allocator_settings}\x8c\x01x](", "}K\x00Ns", 500_000, "esu."),
	} {
		before := testkit.Allocated()
		_, err := snapshot.ReadLimited(bytes.NewReader(b), snapshot.Limits{MemoryFree: free})
		took := testkit.Allocated() - before
		if !errors.Is(err, snapshot.ErrMemory) || !contains(err, "keys that are not known") { // not while the pickle was read
			t.Errorf("%s: %v", name, err)
		}
		bound := uint64(4<<20 + 3*(free+1024*len(b)))
		if took > bound {
			t.Errorf("%s: %d bytes allocated for a file of %d, want at most %d", name, took, len(b), bound)
		}
	}
}

// An unknown key that all entries have costs next to nothing per entry, even if each entry has its own, equal list.
func TestDefect13_EqualKeysCostOnce(t *testing.T) {
	const n = 100_000
	read := func(more string) (*snapshot.Snapshot, float64) {
		t.Helper()
		entry := "}(h\x00h\x01h\x02K\x01h\x03K\x01h\x04K\x01" + more + "u"
		keys := "(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04size\x94\x8c\x04addr\x94\x8c\x06stream\x94\x8c\x0eforward_frames\x941"
		b := []byte("\x80\x04" + keys + "}\x8c\x0ddevice_traces](](" + strings.Repeat(entry, n) + "ees.")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, err := snapshot.ReadBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(b)
		return s, float64(after.HeapAlloc-before.HeapAlloc) / n
	}
	plain, each := read("")
	kept, eachKept := read("h\x05](h\x00h\x01h\x02e")
	if eachKept > each+1 {
		t.Errorf("%.1f bytes an event, without the key %.1f", eachKept, each)
	}
	if len(kept.TraceExtra[0].Keys) != 1 || len(kept.Traces[0].Events) != n || len(plain.Traces[0].Events) != n {
		t.Errorf("%d events, kept: %+v", len(kept.Traces[0].Events), kept.TraceExtra[0].Keys)
	}
	if got := fmt.Sprint(kept.TraceExtra[0].Keys[0].Extra.Pairs); got != "[{forward_frames [action alloc size]}]" {
		t.Errorf("kept: %s", got)
	}
}

// A value that is small in the file but endless when walked stays small, however many entries have it.
func TestSharedValuesStaySmall(t *testing.T) {
	var bomb any = []any{"ha"}
	for range 60 {
		bomb = []any{bomb, bomb}
	}
	entries := make([]any, 10_000)
	for i := range entries {
		entries[i] = map[string]any{"action": "alloc", "addr": i, "size": 1, "stream": 0, "tags": bomb}
	}
	var b bytes.Buffer
	p := pickle.NewWriter(&b)
	p.Value(map[string]any{"device_traces": []any{entries}, "segments": []any{}, "bomb": bomb})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.ReadBytes(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if again := pickled(t, s); len(again) > 2*b.Len() {
		t.Errorf("%d bytes written of %d", len(again), b.Len())
	}
	if err := s.WriteJSON(new(tally)); err == nil {
		t.Error("endless JSON was written")
	}
}

// Frames that contain themselves through unknown keys are refused, or lose the values that cannot be written; none is
// endless.
func TestCyclicFrames(t *testing.T) {
	for _, through := range []string{"a list", "an entry"} {
		var b bytes.Buffer
		p := snapshottest.NewPickler(&b, 4)
		entry := func(frames func()) {
			p.Dict()
			p.Mark()
			for _, key := range []string{"addr", "size", "stream"} {
				p.Key(key)
				p.Int(1)
			}
			p.Key("action")
			p.Key("alloc")
			p.Key("frames")
			frames()
			p.SetItems()
		}
		p.Dict()
		p.Mark()
		p.Key("device_traces")
		p.List()
		p.Mark()
		p.List()
		p.Mark()
		entry(func() {
			frames := p.List()
			p.Mark()
			p.Dict()
			p.Mark()
			p.Key("name")
			p.Key("f")
			p.Key("filename")
			p.Key("f.py")
			p.Key("line")
			p.Int(1)
			p.Key("x")
			own := p.List()
			p.Mark()
			if through == "a list" {
				p.Get(own)
			} else {
				entry(func() { p.Get(frames) })
			}
			p.Appends()
			p.SetItems()
			p.Appends()
		})
		p.Appends()
		p.Appends()
		p.SetItems()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := snapshot.ReadBytes(b.Bytes())
		if through == "a list" {
			if !errors.Is(err, pickle.ErrRefused) || !contains(err, "a list contains itself") {
				t.Errorf("%s: error %v", through, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		lost := snapshot.Skip{What: `frame key "x", in keys that are not known`, Count: 1, Dropped: true}
		if !slices.Contains(s.Skipped, lost) {
			t.Errorf("skipped %v, want %v among it", s.Skipped, lost)
		}
		if !bytes.Equal(pickled(t, s), pickled(t, mustReadBytes(t, pickled(t, s)))) {
			t.Error("written again it is another")
		}
	}
}

func mustReadBytes(t *testing.T, b []byte) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A maker makes values and dicts at random.
type maker struct {
	*rand.Rand
	depth int
}

func (m *maker) value() any {
	kinds := 6
	if m.depth++; m.depth < 4 {
		kinds = 12
	}
	defer func() { m.depth-- }()
	switch m.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return m.IntN(2) == 0
	case 2:
		return m.Int64() - m.Int64()
	case 3:
		return float64(m.IntN(100)) / 8
	case 4, 5:
		return fmt.Sprint("text ", m.IntN(5))
	case 6:
		return T{m.value(), m.value()}
	case 7:
		return m.dict(frame)
	case 8:
		return m.dict(event)
	case 9:
		return m.dict(D{})
	}
	list := make(L, m.IntN(4))
	for i := range list {
		list[i] = m.value()
	}
	return list
}

// dict returns a dict with some extra keys, most of which are str.
func (m *maker) dict(d D) D {
	d = slices.Clone(d)
	for i := range d {
		if d[i] == "frames" && m.IntN(3) == 0 {
			d[i+1] = m.dicts(frame)
		}
	}
	for range m.IntN(4) {
		if key := any(fmt.Sprint("key ", m.IntN(6))); m.IntN(10) == 0 {
			d = with(d, m.IntN(4), m.value())
		} else {
			d = with(d, key, m.value())
		}
	}
	return d
}

func (m *maker) dicts(d D) L {
	list := make(L, m.IntN(5))
	for i := range list {
		list[i] = m.dict(d)
	}
	return list
}

// Writing a random file keeps all of its content, and the written file reads and writes the same again.
func TestKeptOfRandomFiles(t *testing.T) {
	for seed := range uint64(400) {
		m := &maker{Rand: rand.New(rand.NewPCG(seed, 13))}
		segment := m.dict(with(segment, "blocks", L{m.dict(block), m.dict(rest)}))
		entries := m.dicts(event)
		for i := range entries {
			if m.IntN(4) == 0 {
				entries[i] = with(entries[i].(D), "action", fmt.Sprint("later ", m.IntN(2)))
			}
		}
		file := m.dict(D{
			"segments",
			L{segment},
			"device_traces",
			L{entries, m.dicts(event)},
			"external_annotations",
			L{m.dict(D{"name", "x", "time_us", 1})},
			"allocator_settings",
			D{"x", m.value()},
		})
		protocol := 2 + m.IntN(4)
		original := snapshottest.Pickle(file, protocol)
		s, err := snapshot.ReadBytes(original)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if slices.ContainsFunc(s.Skipped, func(x snapshot.Skip) bool { return x.Dropped }) {
			// Values nested in frames of unknown entries: see TestCyclicFrames.
			original = pickled(t, s)
			s = mustReadBytes(t, original)
		}
		written := checkKept(t, s)
		lost := lacking("file", plain(t, original), plain(t, written))
		if len(lost) > 0 || t.Failed() {
			t.Fatalf("seed %d, protocol %d: lost %q", seed, protocol, lost)
		}
	}
}

// The user_defined entries of PyTorch 2.4 are events like others, which stand for no work: between any two entries of a
// recording they change nothing of its replay.
func TestDefect13_UserDefinedEntriesAreKept(t *testing.T) {
	s, err := snapshot.ReadFile(traces + "/streams.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	tr := s.Traces[0]
	stacks := trace.NewStackSet(nil)
	name := stacks.Add([]trace.Frame{{Name: "Optimizer.step", Filename: "START"}})
	s.Stacks, tr.Stacks = stacks.Table(), stacks.Table()
	all := make([]trace.Event, 0, 2*len(tr.Events))
	for _, e := range tr.Events {
		all = append(all, trace.Event{TimeUS: e.TimeUS, Action: mem.ActionUserDefined, Stack: name}, e)
	}
	tr.Events = all
	again := mustReadBytes(t, checkRoundTrip(t, s))
	if got := again.Traces[0].Events; len(got) != len(all) || got[0].Action != mem.ActionUserDefined {
		t.Errorf("%d entries of %d, the first is %+v", len(got), len(all), got[0])
	}
	v, err := verify.Verify(again, verify.Options{})
	if err != nil || !v.Exact {
		t.Errorf("replayed otherwise: %v, %v", err, v.Difference)
	}
	p, err := trace.ToProgram(again.Traces[0], trace.ProgramOptions{})
	if err != nil || p.Anomalies.Count > 0 {
		t.Errorf("%v, anomalies %+v", err, p.Anomalies)
	}
}
