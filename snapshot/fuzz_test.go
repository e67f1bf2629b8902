package snapshot_test

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// fuzzLimits keep the cost of one input so low that a fuzzer notices an input that exceeds it.
var fuzzLimits = snapshot.Limits{
	Pickle: pickle.Limits{Bytes: 4 << 20, Memory: 16 << 20, Nodes: 1 << 16, Memo: 1 << 20}, Window: 1 << 20,
}

// FuzzRead reads arbitrary input. It must not panic or take long, and every index in the result must be in range.
func FuzzRead(f *testing.F) {
	whole := with(file(L{segment}, L{event, with(event, "action", "free_requested", "pool_id", T{1, 0})}),
		"allocator_settings", D{"max_split_size", -1}, "external_annotations", L{D{"name", "x", "time_us", 1}},
		"out_of_memory", D{"text", "no room", "facts", D{"free", 1, "pool_id", T{1, 0}, "remedies", L{D{"name", "x"}}, "pinning", L{D{"address", 1}}}})
	for protocol := 2; protocol <= 5; protocol++ {
		f.Add(snapshottest.Pickle(whole, protocol))
		f.Add(snapshottest.Pickle(L{segment}, protocol))
	}
	for _, key := range []string{"device_traces", "segments", "blocks"} {
		f.Add(share(key))
	}
	for _, b := range compress(f, snapshottest.Pickle(whole, 4)) {
		f.Add(b)
	}
	f.Add(xzBlocks(26, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := snapshot.ReadLimited(bytes.NewReader(b), fuzzLimits)
		if err != nil {
			return
		}
		stacks := s.Stacks.Len()
		for id := range stacks {
			for _, n := range s.Stacks.At(1 + trace.StackID(id)) {
				_ = s.Stacks.Frames[n]
			}
		}
		for device, tr := range s.Traces {
			if tr == nil {
				continue
			}
			if tr.Device != device || len(tr.Events) == 0 {
				t.Fatalf("trace %d: device %d, %d events", device, tr.Device, len(tr.Events))
			}
			for _, e := range tr.Events {
				_, _, _ = tr.Streams[e.Stream], tr.Pools[e.Pool], tr.Metadata[e.Metadata]
				if int(e.Stack) > stacks || e.Size < 0 {
					t.Fatalf("event %+v", e)
				}
			}
		}
		for _, seg := range s.Segments {
			for _, b := range seg.Blocks {
				if b.Size <= 0 || b.Ptr < seg.Ptr || int64(b.Ptr-seg.Ptr)+b.Size > seg.TotalSize || int(b.Stack) > stacks {
					t.Fatalf("block %+v of segment %+v", b, seg)
				}
			}
		}
		_ = s.Check()
	})
}
