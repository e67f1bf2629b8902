package main

import (
	"encoding/json"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

const (
	base = int64(0x7f0000000000)
	mib  = int64(1) << 20
)

// entry is an entry of a trace on stream 0; more are further keys and values.
func entry(action string, addr, size, at int64, more ...any) snapshottest.D {
	return append(snapshottest.D{
		"action", action, "addr", addr, "size", size, "stream", int64(0), "time_us", at, "frames", snapshottest.L{},
	}, more...)
}

// block is a block of a segment.
func block(addr, size int64, live bool) snapshottest.D {
	state, requested := "inactive", int64(0)
	if live {
		state, requested = "active_allocated", size
	}
	return snapshottest.D{"address", addr, "size", size, "requested_size", requested, "state", state, "frames", snapshottest.L{}}
}

// smallHistory is one segment of 20 MiB in which two blocks were allocated, and the first of them freed.
func smallHistory() snapshottest.L {
	return snapshottest.L{
		entry("segment_alloc", base, 20*mib, 1),
		entry("alloc", base, 4*mib, 2),
		entry("alloc", base+4*mib, 5*mib, 3),
		entry("free_requested", base, 4*mib, 4),
		entry("free_completed", base, 4*mib, 5),
	}
}

// segment is a segment of 20 MiB, of which live bytes are in use.
func segment(addr, live int64, blocks ...any) snapshottest.D {
	d := snapshottest.D{"device", int64(0), "address", addr, "total_size", 20 * mib, "stream", int64(0)}
	d = append(d, "allocated_size", live, "active_size", live, "requested_size", live)
	d = append(d, "segment_type", "large", "segment_pool_id", snapshottest.T{int64(0), int64(0)}, "is_expandable", false)
	return append(d, "frames", snapshottest.L{}, "blocks", snapshottest.L(blocks))
}

// smallSnapshot writes a snapshot of a history that ends as smallHistory does, but for more segments, recorded under
// settings.
func smallSnapshot(t *testing.T, settings string, history snapshottest.L, more ...any) string {
	t.Helper()
	blocks := []any{block(base, 4*mib, false), block(base+4*mib, 5*mib, true), block(base+9*mib, 11*mib, false)}
	segments := append(snapshottest.L{segment(base, 5*mib, blocks...)}, more...)
	conf := snapshottest.D{"PYTORCH_CUDA_ALLOC_CONF", settings, "max_split_size", int64(-1)}
	conf = append(conf, "garbage_collection_threshold", 0.0, "expandable_segments", false)
	conf = append(conf, "roundup_power2_divisions", snapshottest.D{})
	all := snapshottest.D{"segments", segments, "device_traces", snapshottest.L{history}, "allocator_settings", conf}
	return file(t, "small.pickle", string(snapshottest.Pickle(all, 4)))
}

// The JSON output, too, has verify's assumptions.
func TestVerifyTellsProgramsWhatItAssumed(t *testing.T) {
	got := ok(t, "verify", "--json", "../../replay/verify/testdata/graphtrees.pickle.zst")
	has(t, got, `"exact":true`, `"notes":[`, "blocks were placed as recorded")
	lacks(t, ok(t, "verify", "--json", sample("gpt2")), "notes")
}

// A snapshot without a history is a list of segments: the largest first, all of them for programs.
func TestDefect24_SnapshotsWithoutHistoryListSegments(t *testing.T) {
	var more []any
	for i := range int64(24) {
		at := base + (i+1)*32*mib
		more = append(more, segment(at, 2*mib, block(at, 2*mib, true), block(at+2*mib, 18*mib, false)))
	}
	got := ashlar(t, nil, "info", smallSnapshot(t, "", nil, more...))
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	has(t, got.out, "in 25 segments", "segment size allocated blocks free stream pool kind",
		"0x7f0000000000 20.00MiB 5.00MiB 1 11.00MiB 0x0 default large", "0x7f0002000000 20.00MiB 2.00MiB 1 18.00MiB 0x0 default large",
		"and 5 more of 100.00MiB, of which 10.00MiB is allocated; --json has all")
	var line summary
	if err := json.Unmarshal([]byte(ashlar(t, nil, "info", "--json", smallSnapshot(t, "", nil, more...)).out), &line); err != nil {
		t.Fatal(err)
	}
	want := segmentLine{Address: uint64(base), Size: 20 * mib, Allocated: 5 * mib, Requested: 5 * mib, Live: 1, LargestFree: 11 * mib, Kind: "large"}
	if len(line.Segments) != 25 || line.Segments[0] != want {
		t.Errorf("%d segments, the first %+v, want %+v", len(line.Segments), line.Segments[0], want)
	}
	lacks(t, ok(t, "info", smallSnapshot(t, "", smallHistory())), "0x7f0000000000")
}
