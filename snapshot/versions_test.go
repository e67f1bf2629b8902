package snapshot_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
)

// TestOldFiles reads files that PyTorch wrote before some keys existed.
func TestOldFiles(t *testing.T) {
	// 2.0: no addresses, requested sizes, pools or expandable segments; a history in each block that was ever used.
	old := D{
		"device", 1, "address", 0x1000, "total_size", 2048, "allocated_size", 512, "active_size", 512, "stream", 0,
		"segment_type", "large", "blocks",
		L{
			D{"size", 512, "state", "active_allocated", "history", L{
				D{"addr", 0x1000, "real_size", 400, "frames", L{frame}},
			}},
			D{"size", 1536, "state", "inactive"},
		},
	}
	entry := D{"action", "alloc", "addr", 0x1000, "frames", L{}, "size", 400, "stream", 0}
	s := mustRead(t, D{"segments", L{old}, "device_traces", L{L{}, L{entry}}})
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	testkit.Equal(t, "skipped", len(s.Skipped), 0)
	testkit.Equal(t, "trace of device 0", s.Traces[0] == nil, true)
	testkit.Equal(t, "device of the trace", s.Traces[1].Device, 1)
	testkit.Equal(t, "time", s.Traces[1].Events[0].TimeUS, 0)
	testkit.Equal(t, "device", s.Segments[0].Device, 1)
	testkit.Equal(t, "large", s.Segments[0].Large, true)
	want := []snapshot.Block{
		{Ptr: 0x1000, Size: 512, RequestedSize: 400, State: mem.ActiveAllocated, Stack: 1},
		{Ptr: 0x1200, Size: 1536},
	}
	if !slices.Equal(s.Segments[0].Blocks, want) {
		t.Errorf("blocks = %+v, want %+v", s.Segments[0].Blocks, want)
	}

	// torch.cuda.memory_snapshot() gives the segments alone.
	s = mustRead(t, L{segment, with(segment, "device", 2), with(segment, "address", 0x800, "total_size", 0, "blocks", L{})})
	testkit.Equal(t, "segments", len(s.Segments), 3)
	testkit.Equal(t, "first by address", s.Segments[0].Ptr, 0x800)
	testkit.Equal(t, "last by device", s.Segments[2].Device, 2)
	testkit.Equal(t, "traces", len(s.Traces), 0)

	// A file without sums gets the sums of its blocks.
	s = mustRead(t, L{with(segment, "allocated_size", omit, "active_size", omit, "requested_size", omit)})
	testkit.Equal(t, "allocated", s.Segments[0].AllocatedSize, 512)
	testkit.Equal(t, "active", s.Segments[0].ActiveSize, 512)
}

// TestNewFiles reads unknown keys and actions.
func TestNewFiles(t *testing.T) {
	s := mustRead(t, D{
		"segments",
		L{with(segment, "registration_counter", 3, "blocks", L{with(block, "category", "x"), rest})},
		"device_traces",
		L{L{
			event, with(event, "action", "user_defined"), with(event, "action", "annotate", "size", omit),
			with(event, "action", "user_defined"), with(event, "colour", L{1, 2}),
			with(event, "frames", L{with(frame, "fx_node_op", "call")}), event,
		}},
		"host_segments",
		L{D{"x", 1}},
		"host_traces",
		L{},
		"external_annotations",
		L{D{"name", "step", "stage", "END", "device", 0, "time_us", 9}},
		"allocator_settings",
		D{"PYTORCH_ALLOC_CONF", "a:b", "new", D{"k", L{1, T{2, 3}}}},
	})
	want := []snapshot.Skip{
		{What: `block key "category"`, Count: 1},
		{What: `frame key "fx_node_op"`, Count: 1},
		{What: `key "host_segments"`, Count: 1},
		{What: `key "host_traces"`, Count: 1},
		{What: `segment key "registration_counter"`, Count: 1},
		{What: `trace entry action "annotate"`, Count: 1},
		{What: `trace entry key "colour"`, Count: 1},
	}
	if !slices.Equal(s.Skipped, want) {
		t.Errorf("Skipped = %v, want %v", s.Skipped, want)
	}
	testkit.Equal(t, "events", len(s.Traces[0].Events), 6)
	testkit.Equal(t, "conf", s.Settings.Conf, "a:b")
	testkit.Equal(t, "max_split_size", s.Settings.MaxSplitSize, -1)
	testkit.Equal(t, "annotation", s.Annotations[0], snapshot.Annotation{TimeUS: 9, Name: "step", Stage: "END"})
}

func TestStreamsPoolsAndMetadata(t *testing.T) {
	s := mustRead(t, D{"segments", L{with(segment, "segment_pool_id", T{0, 7})}, "device_traces", L{
		L{
			with(event, "stream", -1, "pool_id", T{2, 0}, "user_metadata", "b"),
			with(event, "stream", 5, "pool_id", T{0, 0}, "user_metadata", "a"),
			with(event, "stream", -1, "pool_id", L{1, 0}, "user_metadata", "b"),
			with(event, "stream", 3, "pool_id", T{0, 0}, "user_metadata", ""),
			with(event, "stream", 3, "pool_id", T{0, 0}, "user_metadata", nil),
		},
		L{with(event, "stream", 9, "pool_id", T{4, 0}), event},
	}})
	tr := s.Traces[0]
	if want := []uint64{3, 5, 1<<64 - 1}; !slices.Equal(tr.Streams, want) {
		t.Errorf("Streams = %v, want %v", tr.Streams, want)
	}
	if want := []mem.PoolID{{0, 0}, {0, 7}, {1, 0}, {2, 0}}; !slices.Equal(tr.Pools, want) {
		t.Errorf("Pools = %v, want %v", tr.Pools, want)
	}
	if want := []string{"", "b", "a"}; !slices.Equal(tr.Metadata, want) {
		t.Errorf("Metadata = %q, want %q", tr.Metadata, want)
	}
	testkit.Equal(t, "pools known", tr.PoolsKnown, true)
	var got [][3]int
	for _, e := range tr.Events {
		got = append(got, [3]int{int(e.Stream), int(e.Pool), int(e.Metadata)})
	}
	if want := [][3]int{{2, 3, 1}, {1, 0, 2}, {2, 2, 1}, {0, 0, 0}, {0, 0, 0}}; !slices.Equal(got, want) {
		t.Errorf("stream, pool, metadata = %v, want %v", got, want)
	}

	// One entry without a pool, and none is known.
	tr = s.Traces[1]
	testkit.Equal(t, "pools known", tr.PoolsKnown, false)
	testkit.Equal(t, "pool", tr.Events[0].Pool, 0)
	if want := []uint64{0, 9}; !slices.Equal(tr.Streams, want) {
		t.Errorf("Streams = %v, want %v", tr.Streams, want)
	}
}

func TestAddressesOf64Bits(t *testing.T) {
	s := mustRead(t, file(L{with(segment, "address", -4096, "blocks", L{with(block, "address", -4096)}, "stream", -2)},
		L{with(event, "addr", -4096), with(event, "action", "oom", "addr", omit, "device_free", 1<<40)}))
	testkit.Equal(t, "segment", s.Segments[0].Ptr, 1<<64-4096)
	testkit.Equal(t, "stream", s.Segments[0].Stream, 1<<64-2)
	testkit.Equal(t, "event", s.Traces[0].Events[0].Ptr, 1<<64-4096)
	testkit.Equal(t, "free bytes", s.Traces[0].Events[1].Ptr, 1<<40)
}

func TestBlockStates(t *testing.T) {
	for name, want := range map[string]mem.BlockState{
		"active_allocated": mem.ActiveAllocated, "active_pending_free": mem.ActivePendingFree,
		"active_awaiting_free": mem.ActivePendingFree, "inactive": mem.Inactive,
	} {
		s := mustRead(t, L{with(segment, "blocks", L{with(block, "state", name)})})
		testkit.Equal(t, name, s.Segments[0].Blocks[0].State, want)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		file any
		want string
	}{
		{"sound", L{segment}, ""},
		{
			"a gap",
			L{with(segment, "blocks", L{block, with(rest, "address", 0x1400, "size", 1024)})},
			"a gap of 512 bytes before the block at 0x1400",
		},
		{"a gap at the end", L{with(segment, "blocks", L{block})}, "blocks: a gap of 1536 bytes after the last"},
		{
			"allocated",
			L{with(segment, "allocated_size", 1024)},
			"device 0, segment at 0x1000: allocated_size: 1024, but the allocated blocks have 512",
		},
		{"active", L{with(segment, "active_size", 0)}, "active_size: 0, but the active blocks have 512"},
		{"requested", L{with(segment, "requested_size", 1)}, "requested_size: 1, but the active blocks have 500"},
		{
			"overlap",
			L{segment, with(segment, "address", 0x1400, "blocks", L{})},
			"segment at 0x1400: address: overlaps the segment at 0x1000",
		},
		{"no overlap", L{segment, with(segment, "device", 1)}, ""},
	} {
		err := mustRead(t, c.file).Check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !contains(err, c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
