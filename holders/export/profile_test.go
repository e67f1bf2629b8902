package export_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	texts "github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A field of a protobuf message: a number, or bytes.
type protoField struct {
	number int
	x      int64
	b      []byte
}

func protoFields(t *testing.T, b []byte) (all []protoField) {
	t.Helper()
	varint := func() uint64 {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatalf("no number: %q", b)
		}
		b = b[n:]
		return x
	}
	for len(b) > 0 {
		tag := varint()
		f := protoField{number: int(tag >> 3)}
		switch tag & 7 {
		case 0:
			f.x = int64(varint())
		case 2:
			n := varint()
			f.b, b = b[:n], b[n:]
		default:
			t.Fatalf("wire type %d", tag&7)
		}
		all = append(all, f)
	}
	return all
}

func protoNumbers(t *testing.T, b []byte) (all []int64) {
	t.Helper()
	for len(b) > 0 {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatalf("no number: %q", b)
		}
		all, b = append(all, int64(x)), b[n:]
	}
	return all
}

// A sample of a profile, looked up.
type sample struct {
	stack  []string // name filename:line, innermost first
	values []int64
	labels map[string]string
}

// readProfile writes and decodes a profile, and checks that all numbers in it lead somewhere.
func readProfile(t *testing.T, s *snapshot.Snapshot, at string) (all []sample, fields map[int]int64) {
	t.Helper()
	return readViews(t, views(t, s, at)...)
}

func readViews(t *testing.T, views ...*holders.View) (all []sample, fields map[int]int64) {
	t.Helper()
	var b bytes.Buffer
	testkit.Must(t, export.WriteProfile(&b, views...))
	z, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	functions, locations := map[int64]string{}, map[int64]string{}
	top := protoFields(t, raw)
	for _, f := range top {
		if f.number == 6 {
			table = append(table, string(f.b))
		}
	}
	if table[0] != "" {
		t.Errorf("the first string is %q", table[0])
	}
	for _, f := range top {
		if f.number == 5 {
			m := map[int]int64{}
			for _, x := range protoFields(t, f.b) {
				m[x.number] = x.x
			}
			functions[m[1]] = table[m[2]] + " " + table[m[4]]
		}
	}
	for _, f := range top {
		if f.number == 4 {
			var id, mapping int64
			for _, x := range protoFields(t, f.b) {
				switch x.number {
				case 1:
					id = x.x
				case 2:
					mapping = x.x
				case 4:
					line := map[int]int64{}
					for _, y := range protoFields(t, x.b) {
						line[y.number] = y.x
					}
					name, ok := functions[line[1]]
					if !ok {
						t.Errorf("no function %d", line[1])
					}
					locations[id] = fmt.Sprintf("%s:%d", name, line[2])
				}
			}
			if id == 0 || mapping != 1 {
				t.Errorf("location %d in mapping %d", id, mapping)
			}
		}
	}
	fields = map[int]int64{}
	types := ""
	for _, f := range top {
		switch f.number {
		case 1:
			x := protoFields(t, f.b)
			types += table[x[0].x] + "/" + table[x[1].x] + " "
		case 2:
			x := sample{labels: map[string]string{}}
			for _, y := range protoFields(t, f.b) {
				switch y.number {
				case 1:
					for _, id := range protoNumbers(t, y.b) {
						if locations[id] == "" {
							t.Errorf("no location %d", id)
						}
						x.stack = append(x.stack, locations[id])
					}
				case 2:
					x.values = protoNumbers(t, y.b)
				case 3:
					label := protoFields(t, y.b)
					x.labels[table[label[0].x]] = table[label[1].x]
				}
			}
			all = append(all, x)
		default:
			fields[f.number] = f.x
		}
	}
	testkit.Equal(t, "sample types", types, "alloc_objects/count alloc_space/bytes inuse_objects/count "+
		"inuse_space/bytes freed_soon_objects/count freed_soon_space/bytes ")
	testkit.Equal(t, "default type", table[fields[14]], "inuse_space")
	return all, fields
}

// views returns the memory of every device of a snapshot at a moment, except those that have no such moment.
func views(t *testing.T, s *snapshot.Snapshot, at string) (all []*holders.View) {
	t.Helper()
	histories, err := holders.All(s)
	testkit.Must(t, err)
	for _, h := range histories {
		m, err := h.Moment(at)
		testkit.Must(t, err)
		all = append(all, h.At(m))
	}
	return all
}

func recorded(t *testing.T, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile("../../testdata/traces/" + name + ".pickle.zst")
	testkit.Must(t, err)
	return s
}

// small returns a recording of device 0, whose block of 300 bytes is freed, with its allocation of 1000 bytes on
// another stream and in a private pool, and the final state of device 2, with a block of 1 MiB.
func small() *snapshot.Snapshot {
	stacks := &trace.Stacks{Frames: []trace.Frame{
		{Name: "linear", Filename: "/v/site-packages/torch/nn/functional.py", Line: 7},
		{Name: "forward", Filename: "model.py", Line: 10},
		{Name: "_call_impl", Filename: "/v/site-packages/torch/nn/modules/module.py", Line: 8},
		{Name: "<module>", Filename: "a \"b\"/train.py", Line: 3},
	}}
	one := stacks.Add([]uint32{0, 1, 2, 3})
	two := stacks.Add([]uint32{3})
	return &snapshot.Snapshot{
		Stacks: stacks,
		Traces: []*trace.Trace{{
			Streams: []uint64{0, 0xfffffffffffffff0}, Pools: []mem.PoolID{{0, 0}, {0, 3}}, PoolsKnown: true,
			Metadata: []string{"", "layer 1"}, Stacks: stacks,
			Events: []trace.Event{
				{TimeUS: 1000, Ptr: 0x1000, Size: 300, Action: mem.ActionAlloc, Stack: one, Metadata: 1},
				{TimeUS: 1002, Ptr: 0x1200, Size: 1000, Action: mem.ActionAlloc, Stack: two, Stream: 1, Pool: 1},
				{TimeUS: 1003, Ptr: 0x1000, Size: 300, Action: mem.ActionFreeRequested},
				{TimeUS: 1003, Ptr: 0x1000, Size: 300, Action: mem.ActionFreeCompleted},
				{TimeUS: 1007, Ptr: 0x1000, Size: 5, Action: mem.ActionAlloc},
			},
		}},
		Segments: []snapshot.Segment{
			{Ptr: 0x1000, TotalSize: 2 << 20, Blocks: []snapshot.Block{
				{Ptr: 0x1000, Size: 512, RequestedSize: 5, State: mem.ActiveAllocated},
				{Ptr: 0x1200, Size: 1024, RequestedSize: 1000, State: mem.ActiveAllocated, Stack: two},
			}},
			{Device: 2, Ptr: 0x1000, TotalSize: 20 << 20, Stream: 7, Pool: mem.PoolID{1, 0}, Blocks: []snapshot.Block{
				{Ptr: 0x1000, Size: 2 << 20, RequestedSize: 1 << 20, State: mem.ActivePendingFree},
			}},
		},
	}
}

func TestProfileText(t *testing.T) {
	samples, fields := readProfile(t, small(), "peak")
	var b strings.Builder
	for _, x := range samples {
		fmt.Fprintf(&b, "%v %v", x.values, x.labels)
		for _, f := range x.stack {
			fmt.Fprintf(&b, "\n    %s", f)
		}
		b.WriteString("\n")
	}
	texts.File(t, "testdata/small.profile", b.String())
	testkit.Equal(t, "time in ns", fields[9], 1_000_000)
	testkit.Equal(t, "duration in ns", fields[10], 7_000)
}

// The sums over the samples equal those of the trace and of the view, at every moment.
func TestProfileSums(t *testing.T) {
	for _, name := range []string{"resnet.stacks", "unet.stacks", "streams", "gpt2.oom"} {
		s := recorded(t, name)
		for _, at := range []string{"peak", "end"} {
			view := views(t, s, at)[0]
			want := [4]int64{0, 0, int64(len(view.Blocks)), view.Bytes}
			for _, e := range s.Traces[0].Events {
				if e.Action == mem.ActionAlloc {
					want[0]++
					want[1] += e.Size
				}
			}
			var got [4]int64
			var soon int64
			pools, streams := map[string]bool{}, map[string]bool{}
			samples, _ := readProfile(t, s, at)
			for _, x := range samples {
				for i := range got {
					got[i] += x.values[i]
				}
				soon += x.values[5]
				if x.values[5] > x.values[3] {
					t.Errorf("%s: more is freed soon than is in use: %v", name, x)
				}
				pools[x.labels["pool"]] = true
				streams[x.labels["stream"]] = true
				testkit.Equal(t, "device", x.labels["device"], "0")
			}
			testkit.Equal(t, name+" at "+at, got, want)
			if at == "peak" && (soon < view.Bytes/10 || soon > view.Bytes/2) {
				t.Errorf("%s: %d of %d bytes are freed soon", name, soon, view.Bytes)
			}
			if name == "streams" && (len(streams) != 4 || !pools["default"] || !pools["(1, 0)"]) {
				t.Errorf("streams %v, pools %v", streams, pools)
			}
		}
	}
}

// Stacks begin at the user's innermost line and are whole from there, or altogether if nothing is folded.
func TestProfileStacks(t *testing.T) {
	view := views(t, recorded(t, "unet.stacks"), "peak")[0]
	deepest := func() (stack []string) {
		samples, _ := readViews(t, view)
		for _, x := range samples {
			if len(x.stack) > len(stack) {
				stack = x.stack
			}
		}
		return stack
	}
	for fold, want := range map[holders.Folding][]string{
		holders.FoldLibraries: {"forward train.py:80", "_call_impl site-packages/torch/nn/modules/module.py:1790"},
		holders.FoldNone: {
			"_conv_forward site-packages/torch/nn/modules/conv.py:548", "forward site-packages/torch/nn/modules/conv.py:553",
		},
	} {
		view.History().Frames.Fold(fold)
		stack := deepest()
		testkit.Equal(t, "outermost frame", stack[len(stack)-1], "<module> train.py:166")
		testkit.Equal(t, "innermost frame", stack[0], want[0])
		testkit.Equal(t, "frame after it", stack[1], want[1])
	}
}

// Without a trace, all memory in use counts as allocated before it.
func TestProfileOfSegmentsAlone(t *testing.T) {
	s := small()
	s.Traces = nil
	s.Segments = s.Segments[:1]
	samples, _ := readProfile(t, s, "peak")
	if len(samples) != 2 || !slices.Equal(samples[0].values, []int64{1, 5, 1, 5, 0, 0}) ||
		samples[0].stack[0] != "(before the recording) :0" ||
		!slices.Equal(samples[1].values, []int64{1, 1000, 1, 1000, 0, 0}) {
		t.Errorf("%v", samples)
	}
}

// Go's pprof shows the function of the user that holds the most memory first.
func TestPprofShowsTheUsersFunctionFirst(t *testing.T) {
	for name, want := range map[string]string{"unet.stacks": "forward", "resnet.stacks": "resnet"} {
		path := filepath.Join(t.TempDir(), "memory.pb.gz")
		f, err := os.Create(path)
		testkit.Must(t, err)
		view := views(t, recorded(t, name), "peak")[0]
		testkit.Must(t, export.WriteProfile(f, view))
		testkit.Must(t, f.Close())
		out, err := exec.Command("go", "tool", "pprof", "-top", "-unit=b", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		testkit.Contains(t, string(out), fmt.Sprintf("Total samples = %dB", view.Bytes), view.Moment.String())
		_, rows, _ := strings.Cut(string(out), "cum%\n")
		if fields := strings.Fields(rows); len(fields) < 6 || fields[5] != want {
			t.Errorf("%s: %s is not first:\n%s", name, want, out)
		}
	}
}

// events is a trace without pools of these events.
func events(all ...trace.Event) *trace.Trace {
	return &trace.Trace{Streams: []uint64{0}, Pools: []mem.PoolID{{}}, Metadata: []string{""}, Events: all}
}

// An address more than 2^63 past a segment is not in it.
func TestProfilePoolsOfFarAddresses(t *testing.T) {
	s := &snapshot.Snapshot{
		Segments: []snapshot.Segment{{Ptr: 0x1000, TotalSize: 0x1000, Pool: mem.PoolID{1, 2}}},
		Traces:   []*trace.Trace{events(trace.Event{Ptr: 1<<63 + 0x3000, Size: 10, Action: mem.ActionAlloc})},
	}
	samples, _ := readProfile(t, s, "end")
	if len(samples) != 1 || samples[0].labels["pool"] != "default" {
		t.Errorf("%+v", samples)
	}
}

// A device whose events have no times does not make a profile last since 1970.
func TestProfileDurationWithoutTimes(t *testing.T) {
	timed := events(trace.Event{TimeUS: 100, Size: 1, Action: mem.ActionAlloc},
		trace.Event{Ptr: 1, TimeUS: 150, Size: 1, Action: mem.ActionAlloc})
	untimed := events(trace.Event{Size: 1, Action: mem.ActionAlloc})
	untimed.Device = 1
	s := &snapshot.Snapshot{Traces: []*trace.Trace{timed, untimed}}
	if _, fields := readProfile(t, s, "end"); fields[9] != 100_000 || fields[10] != 50_000 {
		t.Errorf("from %d ns, for %d ns", fields[9], fields[10])
	}
}
