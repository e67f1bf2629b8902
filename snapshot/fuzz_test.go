package snapshot_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// fuzzLimits keep the cost of one input so low that a fuzzer notices an input that exceeds it.
var fuzzLimits = snapshot.Limits{
	Pickle: pickle.Limits{Bytes: 4 << 20, Memory: 16 << 20, Nodes: 1 << 16, Memo: 1 << 20}, Window: 1 << 20,
}

// sameScanned checks that Scan passes on the events of a file, or refuses it.
func sameScanned(t *testing.T, b []byte, want *snapshot.Snapshot) {
	t.Helper()
	var events []trace.Event
	s, err := snapshot.Scan(bytes.NewReader(b), fuzzLimits, func(more []trace.Event) { events = append(events, more...) })
	if errors.Is(err, snapshot.ErrNotScanned) {
		return
	}
	if err != nil || s.Events != len(events) {
		t.Fatalf("%d events were passed on, %v", len(events), err)
	}
	for i := range events {
		if !s.Numbers.Have(&events[i]) {
			t.Fatalf("event %+v has numbers that are not in the tables", events[i])
		}
		s.Numbers.Replace(&events[i])
	}
	if len(events) > 0 && !slices.Equal(events, want.Traces[s.Device].Events) {
		t.Fatalf("events %+v, want %+v", events, want.Traces[s.Device].Events)
	}
}

// FuzzRead reads arbitrary input. It must not panic or take long, and every index in the result must be in range. Scan
// finds the same events.
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
		var s *snapshot.Snapshot
		var err error
		testkit.AllocatesAtMost(t, len(b), 100, 64<<20, func() { s, err = snapshot.ReadLimited(bytes.NewReader(b), fuzzLimits) })
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
		sameScanned(t, b, s)
	})
}
