package verify_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func readTrace(t *testing.T, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile("testdata/" + name + ".pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A recording does not name all the conditions it was made under: which pools there were, when limits and settings
// changed, what a wait inside a request completed. Verify finds them.
func TestVerifyFindsTheConditionsOfARecording(t *testing.T) {
	for _, c := range []struct {
		name, note string
		peak       int64 // allocated_bytes.all.peak as torch.cuda.memory_stats() told it
	}{
		{name: "graphtrees", note: "graph pools were restored", peak: 142_878_720},
		{name: "graphpools.expandable", peak: 624_501_248}, // captures and pools begun, released and left with live blocks
		{name: "nosplit.expandable", peak: 449_369_088},    // a pool that never splits
		{name: "partialwait", peak: 662_506_496},           // some frees done before a request, some in its wait
		{name: "switched", note: "expandable_segments was switched", peak: 609_155_584},
		{name: "limits.gc", peak: 845_104_128},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := verify.Verify(readTrace(t, c.name), verify.Options{})
			if err != nil || !v.Exact {
				t.Fatalf("not exact: %v, %v", v.Difference, err)
			}
			if v.AllocatedPeak != c.peak {
				t.Errorf("allocated peak %d, recorded %d", v.AllocatedPeak, c.peak)
			}
			if !strings.Contains(strings.Join(v.Notes, "\n"), c.note) {
				t.Errorf("notes %q do not say %q", v.Notes, c.note)
			}
		})
	}
}

// A limit that was not in force all the time is said to be wrong; the allocator is not blamed.
func TestVerifyDoubtsTheLimit(t *testing.T) {
	v, err := verify.Verify(readTrace(t, "limits.gc"), verify.Options{Limit: 900 << 20})
	if err != nil || v.Exact {
		t.Fatalf("exact %v, error %v", v.Exact, err)
	}
	if !strings.Contains(strings.Join(v.Notes, "\n"), "the limit was another") {
		t.Errorf("notes %q", v.Notes)
	}
}

// Information missing from a recording is reported as missing, not as a difference.
func TestVerifyTellsIncompleteRecordings(t *testing.T) {
	without := func(a mem.Action) func(*trace.Trace) {
		return func(tr *trace.Trace) {
			tr.Events = slices.DeleteFunc(tr.Events, func(e trace.Event) bool { return e.Action == a })
		}
	}
	from := func(first int) func(*trace.Trace) {
		return func(tr *trace.Trace) { tr.Events = tr.Events[first:] }
	}
	for _, c := range []struct {
		name string
		cut  func(*trace.Trace)
		want error
	}{
		{"late by one entry", from(1), verify.ErrLateStart},
		{"a full ring", from(1000), verify.ErrLateStart},
		{"the last entry alone", func(tr *trace.Trace) { tr.Events = tr.Events[len(tr.Events)-1:] }, verify.ErrLateStart},
		{"no segments", without(mem.ActionSegmentAlloc), verify.ErrLateStart},
		{"no requested frees", without(mem.ActionFreeRequested), verify.ErrIncomplete},
		{"no completed frees", without(mem.ActionFreeCompleted), verify.ErrIncomplete},
		{"no allocs", without(mem.ActionAlloc), verify.ErrIncomplete},
		{"a gap", func(tr *trace.Trace) { tr.Gaps = []int{100} }, verify.ErrIncomplete},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := readTrace(t, "partialwait")
			for _, tr := range s.Traces {
				if tr != nil && len(tr.Events) > 0 {
					c.cut(tr)
				}
			}
			if _, err := verify.Verify(s, verify.Options{}); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

// The fields have the values in force at the end, even if the text of the settings differs.
func TestRecordedConfigIsWhatWasInForce(t *testing.T) {
	want := caching.Default()
	want.MaxSplitSize, want.GarbageCollectionThreshold = 128<<20, 0.5
	want.ExpandableSegments, want.ReleaseLock, want.GraphCaptureRecordStreamReuse = true, true, true
	want.RoundupDivisions[3] = 4
	for _, text := range []string{"", "graph_capture_record_stream_reuse:False,max_split_size_mb:64"} {
		s := &snapshot.Snapshot{Settings: snapshot.SettingsOf(want)}
		s.Settings.Conf = text
		if got, _, err := verify.RecordedConfig(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("text %q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// A file has no field for the non-split rounding: it follows from the text, as in PyTorch.
func TestDefect09_RecordedNonSplitRoundingFollowsTheText(t *testing.T) {
	for text, segments := range map[string]int64{
		"large_segment_size_mb:64,max_split_size_mb:64":                              1,
		"max_split_size_mb:64":                                                       2,
		"max_non_split_rounding_mb:32,max_split_size_mb:64":                          1,
		"large_segment_size_mb:24,max_non_split_rounding_mb:24,max_split_size_mb:64": 2,
	} {
		s := &snapshot.Snapshot{Settings: snapshot.Settings{Conf: text, MaxSplitSize: 64 << 20, Raw: map[string]any{}}}
		cfg, _, err := verify.RecordedConfig(s)
		if err != nil {
			t.Fatal(err)
		}
		d := drivertest.OpenSim(t, 1<<30)
		a, err := caching.New(d, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{100 << 20, 70 << 20} {
			b, err := a.Alloc(d.DefaultStream(), size)
			if err != nil {
				t.Fatal(err)
			}
			a.Free(b)
		}
		if n := a.Stats().Segment.All.Allocated; n != segments {
			t.Errorf("%q: 100 MiB and then 70 took %d segments, want %d", text, n, segments)
		}
		again, _, err := caching.ParseConfig(snapshot.SettingsOf(a.Config()).Conf)
		if err != nil || snapshot.SettingsOf(again).Conf != snapshot.SettingsOf(cfg).Conf {
			t.Errorf("%q is written as %q, %v", text, snapshot.SettingsOf(a.Config()).Conf, err)
		}
	}
}

// PyTorch reads these settings, so recordings are made under them.
func TestDefect10_RecordingsUnderSettingsThatPyTorchReadsAreVerified(t *testing.T) {
	for _, odd := range []string{",", ",expandable_segments_reserve:abc", ",max_non_split_rounding_mb:20MB"} {
		s := readTrace(t, "nosplit.expandable")
		s.Settings.Conf = strings.TrimRight("expandable_segments:True,"+s.Settings.Conf, ",") + odd
		if v, err := verify.Verify(s, verify.Options{}); err != nil || !v.Exact {
			t.Errorf("with %q: not exact: %v, %v", odd, v.Difference, err)
		}
	}
}
