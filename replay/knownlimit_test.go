package replay_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/trace"
)

// A report that is written under an engine's MemoryLimit is one file with that limit, in the program's own stacks, and
// it is replayed under that limit, whichever the allocator is.
func TestDefect25_AReportOfAnEngineIsReplayedUnderItsLimit(t *testing.T) {
	const limit = 64 << 20
	for _, spec := range []string{"caching", "caching:expandable_segments:True", "bfc", "arena", "paged", "direct"} {
		dir := t.TempDir()
		r := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll})
		e, err := engine.Open(t.Context(), engine.Config{Devices: []engine.DeviceConfig{{
			Spec: "sim:total=1GiB", MemoryLimit: limit, Allocator: spec,
			Wrap: func(a mem.Allocator) mem.Allocator {
				return snapshot.ReportOOM(r.Attach(a), snapshot.ReportOptions{Dir: dir, Live: snapshot.Live{Recorder: r}})
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		train(t, s)
		if err := errors.Join(s.Close(), e.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v, %v: want one report", spec, entries, err)
		}
		report, err := snapshot.ReadFile(filepath.Join(dir, "oom-000001.pickle"))
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Limits) != 1 || report.Limits[0] != limit || report.OutOfMemory == nil || len(report.Skipped) > 0 {
			t.Errorf("%s: limits %v, %v", spec, report.Limits, report.Skipped)
		}
		for _, ev := range report.Traces[0].Events {
			stack := report.Stacks.At(ev.Stack)
			if len(stack) == 0 || !strings.HasSuffix(report.Stacks.Frames[stack[0]].Name, ".train") {
				t.Errorf("%s: the stack of %v does not begin in the program", spec, ev.Action)
			}
		}
		w, err := replay.Works(report)
		if err != nil {
			t.Fatal(err)
		}
		if !w[0].LimitKnown || w[0].RecordedLimit != limit || w[0].NumFailures != 1 || w[0].Failures[0].Limit != limit {
			t.Errorf("%s: limit %d, known %v, %d failures: %+v", spec, w[0].RecordedLimit, w[0].LimitKnown, w[0].NumFailures, w[0].Failures)
		}
		c := compare(t, w[0], replay.CompareOptions{Specs: []string{replay.AsRecorded, "paged"}})
		if c.Limit != limit || !c.LimitRecorded || c.Rows[0].Completed() || c.Rows[1].Completed() {
			t.Errorf("%s: replayed within %d: %+v", spec, c.Limit, c.Rows)
		}
		if more := compare(t, w[0], replay.CompareOptions{Specs: []string{"paged"}, Limit: limit + 6<<20}); !more.Rows[0].Completed() {
			t.Errorf("%s: with 70 MiB, which it needs: %+v", spec, more.Rows)
		}
		for _, note := range c.Rows[0].Notes {
			if strings.Contains(note, "does not say how much memory") || strings.Contains(note, "whole device") {
				t.Errorf("%s: %s", spec, note)
			}
		}
	}
}

// train asks for 40 MiB beside 30.
func train(t *testing.T, s *engine.Session) {
	first, err := tensor.Empty(s.Place(), dtype.Int8, 40<<20)
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	keep, err := tensor.Empty(s.Place(), dtype.Int8, 30<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tensor.Empty(s.Place(), dtype.Int8, 40<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Error(err)
	}
	keep.Release()
}

// A limit in the settings is used as well, unless the history shows that it was not in force.
func TestDefect25_ALimitInTheSettingsIsUsed(t *testing.T) {
	for conf, want := range map[string]struct {
		limit int64
		known bool
	}{
		"":                                    {0, false},
		"limit:12GiB":                         {12 << 30, true},
		"limit:8GiB":                          {0, false}, // 10.44 GiB were reserved
		"per_process_memory_fraction:0.5":     {replay.H200Memory / 2, true},
		"per_process_memory_fraction:0.01":    {0, false},
		"limit:12GiB,max_split_size_mb:10000": {12 << 30, true},
	} {
		s, err := snapshot.ReadFile(traces + "unet.pickle.zst")
		if err != nil {
			t.Fatal(err)
		}
		s.Settings.Conf = conf
		w, err := replay.Works(s)
		if err != nil {
			t.Fatal(err)
		}
		if w[0].LimitKnown != want.known || w[0].RecordedLimit != want.limit {
			t.Errorf("%q: limit %d, known %v; want %+v", conf, w[0].RecordedLimit, w[0].LimitKnown, want)
		}
		told := strings.Contains(strings.Join(w[0].Notes, " "), "taken to be an H200")
		if told != (want.known && strings.HasPrefix(conf, "per_process")) {
			t.Errorf("%q: notes %q", conf, w[0].Notes)
		}
		c := compare(t, w[0], replay.CompareOptions{Specs: []string{"caching:"}})
		if c.Limit != want.limit || c.LimitRecorded != want.known {
			t.Errorf("%q: replayed within %d", conf, c.Limit)
		}
	}
	// Of a request that the device had room for, the limit was less than the settings of another device say.
	s, err := snapshot.ReadFile(traces + "gpt2.oom.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	s.Settings.Conf = "per_process_memory_fraction:0.5"
	w, err := replay.Works(s)
	if err != nil || w[0].LimitKnown || w[0].RecordedLimit != w[0].RecordedReserved {
		t.Errorf("limit %d, known %v, %v", w[0].RecordedLimit, w[0].LimitKnown, err)
	}
}
