package snapshot_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	texts "github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

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

// readProfile decodes a profile, and checks that all numbers in it lead somewhere.
func readProfile(t *testing.T, s *snapshot.Snapshot) (all []sample, fields map[int]int64) {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteProfile(&b); err != nil {
		t.Fatal(err)
	}
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
	testkit.Equal(t, "sample types", types, "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes ")
	testkit.Equal(t, "default type", table[fields[14]], "inuse_space")
	return all, fields
}

func TestProfileText(t *testing.T) {
	s := small()
	s.Segments[1].Blocks[0].State = mem.ActiveAllocated // older than the trace
	samples, fields := readProfile(t, s)
	var b strings.Builder
	for _, x := range samples {
		fmt.Fprintf(&b, "%v %v", x.values, x.labels)
		for _, f := range x.stack {
			fmt.Fprintf(&b, "\n    %s", f)
		}
		b.WriteString("\n")
	}
	texts.File(t, "testdata/small.profile", b.String())
	testkit.Equal(t, "time in ns", fields[9], 990_000)
	testkit.Equal(t, "duration in ns", fields[10], 17_000)
}

// The sums over the samples equal those of the trace and of the segments.
func TestProfileSums(t *testing.T) {
	for _, name := range []string{"resnet.stacks", "unet.stacks", "streams", "gpt2.oom"} {
		s, err := snapshot.ReadFile(traces + "/" + name + ".pickle.zst")
		if err != nil {
			t.Fatal(err)
		}
		var want, got [4]int64
		pools, streams := map[string]bool{}, map[string]bool{}
		for i := range s.Segments {
			for _, b := range s.Segments[i].Blocks {
				if b.State == mem.ActiveAllocated {
					want[2]++
					want[3] += b.RequestedSize
				}
			}
		}
		for _, e := range s.Traces[0].Events {
			if e.Action == mem.ActionAlloc {
				want[0]++
				want[1] += e.Size
			}
		}
		samples, _ := readProfile(t, s)
		for _, x := range samples {
			for i, n := range x.values {
				got[i] += n
			}
			pools[x.labels["pool"]] = true
			streams[x.labels["stream"]] = true
			testkit.Equal(t, "device", x.labels["device"], "0")
		}
		testkit.Equal(t, name, got, want)
		if name == "streams" {
			if len(streams) != 4 || !pools["default"] || !pools["(1, 0)"] {
				t.Errorf("streams %v, pools %v", streams, pools)
			}
		}
		if strings.HasSuffix(name, "stacks") && !slices.ContainsFunc(samples, func(x sample) bool { return len(x.stack) > 4 }) {
			t.Error("no sample has a stack")
		}
	}
}

// Without segments, the memory in use is that which the trace leaves allocated.
func TestProfileOfATraceAlone(t *testing.T) {
	s := &snapshot.Snapshot{Traces: []*trace.Trace{{
		Streams: []uint64{0}, Pools: []mem.PoolID{{}}, Metadata: []string{""},
		Events: []trace.Event{
			{Ptr: 1, Size: 10, Action: mem.ActionAlloc},
			{Ptr: 2, Size: 20, Action: mem.ActionAlloc},
			{Ptr: 1, Size: 10, Action: mem.ActionFreeCompleted},
			{Ptr: 9, Size: 10, Action: mem.ActionFreeCompleted},
		},
	}}}
	samples, _ := readProfile(t, s)
	if len(samples) != 1 || !slices.Equal(samples[0].values, []int64{2, 30, 1, 20}) {
		t.Errorf("%v", samples)
	}
}

// Without a trace, all memory in use counts as allocated before it.
func TestProfileOfSegmentsAlone(t *testing.T) {
	s := &snapshot.Snapshot{Segments: []snapshot.Segment{{
		Ptr: 512, TotalSize: 2048, Blocks: []snapshot.Block{
			{Ptr: 512, Size: 512, RequestedSize: 5, State: mem.ActiveAllocated},
			{Ptr: 1024, Size: 512, State: mem.ActiveAllocated},
			{Ptr: 1536, Size: 512, RequestedSize: 7, State: mem.ActivePendingFree},
			{Ptr: 2048, Size: 512, RequestedSize: 9},
		},
	}}}
	samples, _ := readProfile(t, s)
	if len(samples) != 1 || !slices.Equal(samples[0].values, []int64{2, 517, 2, 517}) {
		t.Errorf("%v", samples)
	}
}
