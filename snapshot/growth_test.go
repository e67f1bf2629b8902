package snapshot_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// entryOf is a trace entry as a file has it.
func entryOf(addr, stream, pool int64) map[string]any {
	return map[string]any{
		"action": "alloc", "addr": addr, "size": int64(512), "stream": stream, "time_us": int64(1), "pool_id": []any{int64(0), pool},
	}
}

// The cost of reading a device depends on its own trace, not on the size of other devices' traces.
func TestDefect26_DevicesDoNotMultiply(t *testing.T) {
	const devices, many = 2000, 30_000
	traces := make([]any, devices)
	large := make([]any, many)
	for i := range large {
		large[i] = entryOf(int64(512*(i+1)), int64(i), int64(i))
	}
	traces[0] = large
	var segments []any
	for d := range devices {
		if d > 0 {
			traces[d] = []any{entryOf(512, 7, 9)}
		}
		segments = append(segments, map[string]any{
			"device": int64(devices - 1 - d), "address": int64(1 << 40), "total_size": int64(512), "segment_type": "small",
			"blocks": []any{map[string]any{"address": int64(1 << 40), "size": int64(512), "state": "inactive"}},
		})
	}
	var file bytes.Buffer
	w := pickle.NewWriter(&file)
	w.Value(map[string]any{"device_traces": traces, "segments": segments})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	size := file.Len()
	before := testkit.Allocated()
	s, err := snapshot.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if n := testkit.Allocated() - before; n > 40*uint64(size) {
		t.Errorf("a file of %d bytes took %d to be read", size, n)
	}
	for d, trace := range s.Traces {
		own := s.SegmentsOf(d)
		if len(own) != 1 || own[0].Device != d {
			t.Fatalf("device %d has %d segments", d, len(own))
		}
		if d == 0 {
			continue
		}
		e := trace.Events[0]
		if trace.Streams[e.Stream] != 7 || trace.Pools[e.Pool] != [2]uint64{0, 9} || len(trace.Streams) != 1 || len(trace.Pools) != 2 {
			t.Fatalf("device %d has the streams %v and the pools %v", d, trace.Streams, trace.Pools)
		}
	}
	if t0 := s.Traces[0]; len(t0.Streams) != many || len(t0.Pools) != many || t0.Pools[t0.Events[many-1].Pool] != [2]uint64{0, many - 1} {
		t.Errorf("device 0 has %d streams and %d pools", len(t0.Streams), len(t0.Pools))
	}
	if len(s.SegmentsOf(devices)) != 0 || len(s.SegmentsOf(-1)) != 0 {
		t.Error("a device that is not there has segments")
	}
}

type bytesCounted int

func (n *bytesCounted) Write(b []byte) (int, error) {
	*n += bytesCounted(len(b))
	return len(b), nil
}

// A stack that all entries share is not written out as JSON without end: text grows with entries, not with their
// product with the stack.
func TestDefect26_JSONOfSharedStacksEnds(t *testing.T) {
	const entries = 3000
	long := strings.Repeat("x", 100_000)
	stackOf := func(depth int) *trace.Stacks {
		s := &trace.Stacks{}
		refs := make([]uint32, depth)
		for i := range refs {
			refs[i] = uint32(i)
			s.Frames = append(s.Frames, trace.Frame{Name: "f", Filename: "file.py", Line: int64(i)})
		}
		s.Add(refs)
		return s
	}
	for _, c := range []struct {
		name     string
		depth    int
		metadata string
		refused  bool
	}{{"usual", 100, "", false}, {"deep", 10_000, "", true}, {"long string", 1, long, true}} {
		tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{"", c.metadata}}
		for i := range entries {
			e := trace.Event{Action: mem.ActionAlloc, Ptr: driver.Pointer(512 * (i + 1)), Size: 512, Stack: 1}
			if c.metadata != "" {
				e.Metadata = 1
			}
			tr.Events = append(tr.Events, e)
		}
		s := &snapshot.Snapshot{Traces: []*trace.Trace{tr}, Stacks: stackOf(c.depth)}
		var n bytesCounted
		err := s.WriteJSON(&n)
		var refused *snapshot.Error
		if errors.As(err, &refused) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
		if most := 66<<20 + entries*33<<10; int(n) > most {
			t.Errorf("%s: %d bytes, want at most %d", c.name, int(n), most)
		}
	}
}
