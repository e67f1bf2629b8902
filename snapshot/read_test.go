package snapshot_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type (
	D = snapshottest.D
	L = snapshottest.L
	T = snapshottest.T
)

// read pickles v in each protocol and reads it, and wants the same each time.
func read(t *testing.T, v any) (*snapshot.Snapshot, error) {
	t.Helper()
	var s *snapshot.Snapshot
	var err error
	for protocol := 2; protocol <= 5; protocol++ {
		was := err
		s, err = snapshot.ReadBytes(snapshottest.Pickle(v, protocol))
		if protocol > 2 && (err == nil) != (was == nil) {
			t.Errorf("protocol %d: %v, protocol %d: %v", protocol-1, was, protocol, err)
		}
	}
	return s, err
}

func mustRead(t *testing.T, v any) *snapshot.Snapshot {
	t.Helper()
	s, err := read(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// with returns a dict with some keys set otherwise, added, or taken away by the value omit.
func with(d D, pairs ...any) D {
	d = slices.Clone(d)
	for i := 0; i < len(pairs); i += 2 {
		at := -1
		for j := 0; j < len(d); j += 2 {
			if d[j] == pairs[i] {
				at = j
			}
		}
		switch {
		case pairs[i+1] == any(omit):
			d = slices.Delete(d, at, at+2)
		case at >= 0:
			d[at+1] = pairs[i+1]
		default:
			d = append(d, pairs[i], pairs[i+1])
		}
	}
	return d
}

type omitted struct{}

var omit = omitted{}

var (
	frame   = D{"name", "forward", "filename", "model.py", "line", 12}
	event   = D{"action", "alloc", "addr", 0x1000, "size", 512, "stream", 0, "time_us", 7, "frames", L{frame}}
	block   = D{"address", 0x1000, "size", 512, "requested_size", 500, "state", "active_allocated", "frames", L{frame}}
	rest    = D{"address", 0x1200, "size", 1536, "requested_size", 0, "state", "inactive", "frames", L{}}
	segment = D{
		"device", 0, "address", 0x1000, "total_size", 2048, "allocated_size", 512, "active_size", 512,
		"requested_size", 500, "stream", 0, "segment_type", "small", "segment_pool_id",
		T{0, 0},
		"is_expandable", false, "frames",
		L{},
		"blocks",
		L{block, rest},
	}
)

func file(segments, events L) D { return D{"segments", segments, "device_traces", L{events}} }

func TestWholeSnapshot(t *testing.T) {
	s := mustRead(t, file(L{segment}, L{
		event, with(event, "action", "free_requested"), with(event, "action", "free_completed"),
	}))
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	want := trace.Event{TimeUS: 7, Ptr: 0x1000, Size: 512, Stack: 1, Action: mem.ActionAlloc}
	// The stack of a block is read before those of the trace, and is the same one.
	testkit.Equal(t, "event", s.Traces[0].Events[0], want)
	testkit.Equal(t, "stack of the block", s.Segments[0].Blocks[0].Stack, 1)
	testkit.Equal(t, "stacks", s.Stacks.Len(), 1)
	testkit.Equal(t, "frames", len(s.Stacks.Frames), 1)
	testkit.Equal(t, "frame", s.Stacks.Frames[0], trace.Frame{Name: "forward", Filename: "model.py", Line: 12})
	testkit.Equal(t, "settings", s.Settings.Raw == nil, true)
}

func TestWhatIsWrongIsSaidWithItsPlace(t *testing.T) {
	trace0 := func(pairs ...any) D { return file(L{}, L{event, with(event, pairs...)}) }
	seg0 := func(pairs ...any) D { return file(L{segment, with(segment, pairs...)}, L{}) }
	block0 := func(pairs ...any) D { return file(L{with(segment, "blocks", L{block, with(rest, pairs...)})}, L{}) }
	for _, c := range []struct {
		name string
		file any
		want string
	}{
		{"size of an entry", trace0("size", "big"), "device 0, trace entry 1: size: want an int, got str"},
		{"negative size", trace0("size", -5), "device 0, trace entry 1: size: -5 is negative"},
		{"size None", trace0("size", nil), "device 0, trace entry 1: size: want an int, got None"},
		{"address", trace0("addr", 1.5), "device 0, trace entry 1: addr: want an int, got float"},
		{"stream", trace0("stream", L{}), "device 0, trace entry 1: stream: want an int, got list"},
		{"time", trace0("time_us", true), "device 0, trace entry 1: time_us: want an int, got bool"},
		{"action", trace0("action", 3), "device 0, trace entry 1: action: want a str, got int"},
		{"metadata", trace0("user_metadata", 3), "device 0, trace entry 1: user_metadata: want a str, got int"},
		{"frames", trace0("frames", 3), "device 0, trace entry 1: frames: want a list, got int"},
		{"pool", trace0("pool_id", 3), "device 0, trace entry 1: pool_id: want a tuple of two ints, got int"},
		{
			"pool of one", trace0("pool_id", L{1}),
			"device 0, trace entry 1: pool_id: want a tuple of two ints, got list",
		},
		{
			"pool of strs", trace0("pool_id", T{0, "a"}),
			"device 0, trace entry 1: pool_id: want a tuple of two ints, got str",
		},
		{"no size", trace0("size", omit), "device 0, trace entry 1: size: missing"},
		{"no stream", trace0("stream", omit), "device 0, trace entry 1: stream: missing"},
		{"no address", trace0("addr", omit), "device 0, trace entry 1: addr: missing"},
		{"no action", trace0("action", omit), "device 0, trace entry 1: action: missing"},
		{"no free bytes", trace0("action", "oom", "addr", omit), "device 0, trace entry 1: device_free: missing"},
		{"entry of a str", file(L{}, L{event, "x"}), "device 0, trace entry 1: want a dict, got str"},
		{
			"entry that is a frame", file(L{}, L{frame}),
			"device 0, trace entry 0: a trace entry or a stack frame is out of place",
		},
		{
			"device 1",
			D{"segments", L{}, "device_traces", L{L{event}, L{event, event, with(event, "size", nil)}}},
			"device 1, trace entry 2: size: want an int, got None",
		},
		{"trace of an int", D{"device_traces", L{L{}, 5}}, "device 1: device_traces: want a list, got int"},
		{"traces of an int", D{"device_traces", 5}, "device_traces: want a list, got int"},
		{"frame of an int", trace0("frames", L{frame, 5}), "device 0, trace event 1, frame 1: want a dict, got int"},
		{
			"frame's line", trace0("frames", L{with(frame, "line", "x")}),
			"device 0, trace event 1, frame 0: line: want an int, got str",
		},
		{
			"frame's name", trace0("frames", L{with(frame, "name", omit)}),
			"device 0, trace event 1, frame 0: name: missing",
		},
		{
			"frame's file", trace0("frames", L{with(frame, "filename", 1)}),
			"trace event 1, frame 0: filename: want a str, got int",
		},

		{"segments of an int", D{"segments", 5}, "segments: want a list, got int"},
		{"segment of an int", file(L{5}, L{}), "segment 0: want a dict, got int"},
		{"segment that is an entry", file(L{event}, L{}), "segment 0: a trace entry or a stack frame is out of place"},
		{"segment's size", seg0("total_size", nil), "segment 1: total_size: want an int, got None"},
		{"segment's negative size", seg0("allocated_size", -1), "segment 1: allocated_size: -1 is negative"},
		{"segment's device", seg0("device", -1), "segment 1: device: -1 is negative"},
		{"segment's far device", seg0("device", 5000), "segment 1: device: 5000: the limit is 4095"},
		{
			"segment's kind", seg0("segment_type", "huge"),
			`segment 1: segment_type: want "large" or "small", got "huge"`,
		},
		{"segment's pool", seg0("segment_pool_id", 0), "segment 1: segment_pool_id: want a tuple of two ints, got int"},
		{"segment's flag", seg0("is_expandable", 1), "segment 1: is_expandable: want a bool, got int"},
		{"no blocks", seg0("blocks", omit), "segment 1: blocks: missing"},
		{"no device", seg0("device", omit), "segment 1: device: missing"},
		{"blocks of a str", seg0("blocks", "x"), "device 0, segment 1: blocks: want a list, got str"},
		{"block of an int", seg0("blocks", L{5}), "device 0, segment 1, block 0: want a dict, got int"},
		{
			"end of the addresses", seg0("address", -1024),
			"device 0, segment 1: total_size: the segment runs over the end",
		},

		{"block's size", block0("size", "x"), "device 0, segment 0, block 1: size: want an int, got str"},
		{"block's negative size", block0("size", -512), "device 0, segment 0, block 1: size: -512 is negative"},
		{"block of no bytes", block0("size", 0), "device 0, segment 0, block 1: size: a block of no bytes"},
		{"block's state", block0("state", "gone"), `device 0, segment 0, block 1: state: no such state: "gone"`},
		{"no state", block0("state", omit), "device 0, segment 0, block 1: state: missing"},
		{
			"block behind", block0("size", 1537),
			"device 0, segment 0, block 1: address: [0x1200, +1537) lies outside its segment [0x1000, +2048)",
		},
		{"block before", block0("address", 0xfff), "block 1: address: [0xfff, +1536) lies outside its segment"},
		{
			"block that overlaps", block0("address", 0x11ff),
			"device 0, segment 0: blocks: the block [0x11ff, +1536) overlaps the block [0x1000, +512)",
		},
		{"block twice", file(L{with(segment, "blocks", L{block, block})}, L{}), "overlaps the block"},
		{"block's frame", block0("frames", L{5}), "device 0, segment 0, block 1, frame 0: want a dict, got int"},

		{
			"settings of an int", with(file(L{}, L{}), "allocator_settings", 5),
			"allocator_settings: want a dict, got int",
		},
		{
			"setting of a str", with(file(L{}, L{}), "allocator_settings", D{"max_split_size", "x"}),
			"allocator_settings: max_split_size: want an int, got str",
		},
		{
			"round-up of a str", with(file(L{}, L{}), "allocator_settings", D{"roundup_power2_divisions", D{"x", 1}}),
			`allocator_settings: roundup_power2_divisions: want sizes in MiB as keys, got "x"`,
		},
		{
			"annotation", with(file(L{}, L{}), "external_annotations", L{D{"name", 5, "time_us", 1}}),
			"annotation 0: name: want a str, got int",
		},
		{"a str", "hello", "no memory snapshot: want a dict with segments and device_traces, got str"},
		{"another dict", D{"epoch", 3, "model", "x"}, `neither segments nor device_traces, only "epoch", "model"`},
		{"an empty dict", D{}, "neither segments nor device_traces, only no keys"},
		{"an entry alone", event, "neither segments nor device_traces"},
	} {
		_, err := read(t, c.file)
		var e *snapshot.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "snapshot: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %q", c.name, err, c.want)
		}
	}
}

func TestFilesThatAreNoSnapshots(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"nothing", "", "the file is empty"},
		{"JSON", `{"segments": []}`, "looks like JSON"},
		{"a zip archive", "PK\x03\x04abcdefgh", "as torch.save writes"},
		{"text", "hello world", `the file begins with "hello wo": want a pickle of protocol 2 to 5`},
		{"code", "\x80\x02cos\nsystem\n.", "pickle: offset 2: GLOBAL asks for os.system: refused"},
	} {
		_, err := snapshot.Read(strings.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	_, err := snapshot.Read(strings.NewReader("\x80\x02cos\nsystem\n."))
	var e *pickle.Error
	if !errors.As(err, &e) || e.Offset != 2 || !errors.Is(err, pickle.ErrRefused) {
		t.Errorf("a file of code: %#v, want a *pickle.Error at offset 2", err)
	}
	if _, err := snapshot.ReadFile("testdata/no-such-file"); err == nil || !strings.Contains(err.Error(), "no-such-file") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Frames of code that torch.compile made may have no line: PyTorch writes its -1 as an unsigned integer.
func TestFrameWithoutLine(t *testing.T) {
	input := file(L{}, L{with(event, "frames", L{with(frame, "line", uint64(1<<64-1))})})
	s := mustRead(t, input)
	testkit.Equal(t, "line", s.Stacks.Frames[0].Line, -1)
	var pickled, text bytes.Buffer
	testkit.Must(t, s.WritePickle(&pickled))
	for _, lost := range lacking("", plain(t, snapshottest.Pickle(input, 4)), plain(t, pickled.Bytes())) {
		t.Error(lost)
	}
	testkit.Must(t, s.WriteJSON(&text))
	if !strings.Contains(text.String(), `"line":18446744073709551615`) {
		t.Errorf("no such line in %s", text.String())
	}
}
