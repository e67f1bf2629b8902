package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A report that a Go program wrote when memory ran out reads like any snapshot, and info shows the error.
func TestInfoShowsReportsOfRunningOut(t *testing.T) {
	dir := t.TempDir()
	dev := drivertest.OpenSim(t, 64<<20)
	a, err := bfc.New(dev, bfc.Config{Limit: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: dir})
	b, err := r.Alloc(dev.DefaultStream(), 20<<20)
	if err != nil {
		t.Fatal(err)
	}
	_, oom := r.Alloc(dev.DefaultStream(), 33<<20)
	if !errors.Is(oom, mem.ErrNoMemory) {
		t.Fatal(oom)
	}
	r.Free(b)
	if err := errors.Join(a.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "oom-000001.pickle")
	out := ok(t, "info", path)
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if !strings.Contains(words(out), "a request that found no room "+words(oom.Error())) || !strings.Contains(out, "1 block live, of 20.00MiB") {
		t.Errorf("info shows\n%s\nof %v", out, oom)
	}
	var line struct {
		OutOfMemory string `json:"out_of_memory"`
		Limit       int64  `json:"limit"`
	}
	if err := json.Unmarshal([]byte(ok(t, "info", "--json", path)), &line); err != nil || line.OutOfMemory != oom.Error() || line.Limit != 32<<20 {
		t.Errorf("info --json: %q, %d, %v", line.OutOfMemory, line.Limit, err)
	}
	has(t, out, "limit 32.00MiB of memory reserved")

	// A file may contain anything.
	f, err := os.Create(filepath.Join(dir, "empty.pickle"))
	if err != nil {
		t.Fatal(err)
	}
	hostile := &snapshot.Snapshot{OutOfMemory: &snapshot.OutOfMemory{Text: "no\x1b[31mroom\n" + strings.Repeat(" ", 1000) + "at all"}}
	if err := errors.Join(hostile.WritePickle(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, "info", f.Name()); strings.Contains(out, "\x1b") || !strings.Contains(out, `no\x1b[31mroom`) || !strings.Contains(out, "\n            at all\n") {
		t.Errorf("info shows\n%q", out)
	}
}

// The report of a request that the limit refused is replayed under that limit, and says that it was the cause.
func TestDefect25_AReportIsReplayedUnderItsLimit(t *testing.T) {
	dir := t.TempDir()
	dev := drivertest.OpenSim(t, 1<<30)
	a, err := mem.Open("caching", layer.NewLimitedDevice(dev, 64<<20, "the limit of this test"))
	if err != nil {
		t.Fatal(err)
	}
	r := trace.NewRecorder(trace.RecorderOptions{})
	top := snapshot.ReportOOM(r.Attach(a), snapshot.ReportOptions{Dir: dir, Live: snapshot.Live{Recorder: r}})
	block, err := top.Alloc(dev.DefaultStream(), 40<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := top.Alloc(dev.DefaultStream(), 30<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatal(err)
	}
	top.Free(block)
	path := filepath.Join(dir, "oom-000001.pickle")
	const cause = "24.00MiB was left of the limit. Your own limit of 64.00MiB was reached."
	has(t, ok(t, "info", path), cause, "limit 64.00MiB of memory reserved", "the limit of this test of 64.00 MiB was reached, the GPU had 984.00 MiB free")
	got := ashlar(t, nil, "replay", path)
	has(t, got.out, "with a limit of 64.00MiB, as it was recorded.", cause)
	lacks(t, got.out, "perhaps more", "does not say how much memory", "whole device")
	has(t, ok(t, "replay", "--limit", "70MiB", path), "with a limit of 70.00MiB.")
}
