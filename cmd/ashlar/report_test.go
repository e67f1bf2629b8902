package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/snapshot"
)

// What a Go program wrote when memory ran out is read like any snapshot, and info shows the error.
func TestInfoShowsReportsOfRunningOut(t *testing.T) {
	dir := t.TempDir()
	dev := sim.New(sim.Options{Total: 64 << 20})
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
	}
	if err := json.Unmarshal([]byte(ok(t, "info", "--json", path)), &line); err != nil || line.OutOfMemory != oom.Error() {
		t.Errorf("info --json: %q, %v", line.OutOfMemory, err)
	}

	// A file may say anything.
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
