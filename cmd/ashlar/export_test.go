package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

func TestExportHelp(t *testing.T) {
	golden.File(t, "testdata/help-export.txt", ok(t, "export", "--help"))
}

// Each format begins as its readers expect, and goes to standard output or a file alike.
func TestExport(t *testing.T) {
	for to, begins := range map[string]string{
		"pickle": "\x80\x04\x95", "pprof": "\x1f\x8b", "json": `{"device_traces":[`, "perfetto": `{"displayTimeUnit":"ms",`,
		"flamegraph": "<?xml ", "parquet": "PAR1",
	} {
		out := ok(t, "export", "--to", to, sample("unet.stacks"))
		if !strings.HasPrefix(out, begins) || len(out) < 500 {
			t.Errorf("%s: %.40q", to, out)
		}
		if strings.HasPrefix(out, "{") != json.Valid([]byte(out)) {
			t.Errorf("%s is no JSON", to)
		}
		path := filepath.Join(t.TempDir(), "out")
		if said := ok(t, "export", "--to", to, "--output", path, sample("unet.stacks")); said != "" {
			t.Errorf("%s: %q on standard output", to, said)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != out {
			t.Errorf("%s: %d bytes in the file, %d on standard output, %v", to, len(b), len(out), err)
		}
	}
}

// An exported file gives the same results as its source.
func TestExportedPicklesAreVerified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plain.pickle")
	for _, name := range []string{"streams.expandable", "resnet.stacks"} {
		ok(t, "export", "--to", "pickle", "--force", "-o", path, sample(name))
		has(t, ok(t, "verify", path), "plain: exact")
		was, now := ok(t, "info", "--json", sample(name)), ok(t, "info", "--json", path)
		if strings.ReplaceAll(was, sample(name), path) != now {
			t.Errorf("%s:\n%s\n%s", name, was, now)
		}
	}
}

func TestExportErrors(t *testing.T) {
	dir := t.TempDir()
	existing := file(t, "there", "before")
	unknown := file(t, "new.pickle", string(snapshottest.Pickle(snapshottest.D{
		"segments", snapshottest.L{}, "device_traces", snapshottest.L{}, "host_segments", snapshottest.L{},
	}, 4)))
	b, err := os.ReadFile(unknown)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unknown+"2", append(b, "!!"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"export", sample("streams")}, exitUsage, "--to"},
		{[]string{"export", "--to", "svg", sample("streams")}, exitUsage, "svg"},
		{[]string{"export", "--to", "json"}, exitUsage, "<trace>"},
		{[]string{"export", "--to", "pprof", "--at", "oom", "--force", "-o", existing, sample("streams")}, exitInput, "no request failed"},
		{[]string{"export", "--to", "json", "--force", "-o", existing, "no/such.pickle"}, exitInput, "no/such.pickle: no such file"},
		{[]string{"export", "--to", "json", "testdata/compaction.script"}, exitInput, "a script has no addresses"},
		{[]string{"export", "--to", "json", "-o", dir + "/no/such/file", sample("streams")}, exitInput, "/no/such/file cannot be written: no such file"},
		{[]string{"export", "--to", "json", "-o", dir, sample("streams")}, exitInput, "cannot be written: "},
		{[]string{"export", "--to", "pprof", "--force", "-o", existing, unknown}, exitOK, `left out: key "host_segments" (1 time)`},
		{[]string{"export", "--to", "pickle", "--force", "-o", existing, unknown + "2"}, exitOK, "left out: bytes after the pickle (2 times)"},
	} {
		got := ashlar(t, nil, c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.err) || got.out != "" {
			t.Errorf("%q: exit code %d, %s", c.args, got.code, got.err)
		}
		if b, err := os.ReadFile(existing); err != nil || c.code != exitOK && string(b) != "before" {
			t.Errorf("%q: the file that was there has %q, %v", c.args, b, err)
		}
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	var stderr bytes.Buffer
	code := run([]string{"export", "--to", "json", sample("streams")}, nil, &brokenWriter{err: os.ErrClosed}, &stderr)
	if code != exitInput || !strings.Contains(stderr.String(), "could not be written") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}

// Keys that are not known are exported, without a word.
func TestDefect13_ExportKeepsWhatItDoesNotKnow(t *testing.T) {
	path := file(t, "new.pickle", string(snapshottest.Pickle(snapshottest.D{
		"segments", snapshottest.L{}, "device_traces", snapshottest.L{}, "host_segments", snapshottest.L{snapshottest.D{"x", 7}},
	}, 4)))
	for to, want := range map[string]string{"pickle": "host_segments", "json": `"host_segments":[{"x":7}]`} {
		if got := ashlar(t, nil, "export", "--to", to, path); got.code != exitOK || got.err != "" || !strings.Contains(got.out, want) {
			t.Errorf("%s: exit code %d, %s, %q", to, got.code, got.err, got.out)
		}
	}
}

// Export also reads from standard input, and writes to files that are not regular.
func TestExportThroughPipes(t *testing.T) {
	b, err := os.ReadFile(sample("streams"))
	if err != nil {
		t.Fatal(err)
	}
	got := ashlar(t, b, "export", "--to", "pickle", "-")
	if s, err := snapshot.ReadBytes([]byte(got.out)); err != nil || len(s.Segments) != 46 {
		t.Errorf("%v: %s", err, got.err)
	}
	if got := ashlar(t, b, "export", "--to", "pickle", "-o", os.DevNull, "-"); got.code != exitOK || got.err != "" {
		t.Errorf("%s: %s", os.DevNull, got.err)
	}
}

// A pickle at a moment is a snapshot whose end is the moment.
func TestExportAtAMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peak.pickle")
	ok(t, "export", "--to", "pickle", "--at", "peak", "-o", path, sample("unet.stacks"))
	has(t, ok(t, "info", "--at", "end", path), "with 7.86GiB requested in 429 blocks", "train.py:80 forward")
	has(t, ok(t, "info", path), "429 blocks live, of 7.86GiB")
}

// The script of a trace has the same requests as the trace.
func TestExportedScriptsAreThePrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "unet.script")
	ok(t, "export", "--to", "script", "-o", path, sample("unet.stacks"))
	type bound struct{ Buffers, Bound int64 }
	var of [2]bound
	for i, trace := range []string{sample("unet.stacks"), path} {
		if err := json.Unmarshal([]byte(ok(t, "pack", "--time=0s", "--json", trace)), &of[i]); err != nil {
			t.Fatal(err)
		}
	}
	if of[0] != of[1] || of[0].Bound == 0 {
		t.Errorf("the trace has %+v, the script %+v", of[0], of[1])
	}
	for _, args := range [][]string{{"--ordinal", "7"}, {"--ordinal", "1"}} {
		got := ashlar(t, nil, append(append([]string{"export", "--to", "script"}, args...), sample("unet.stacks"))...)
		if got.code != exitUsage || !strings.Contains(got.err, "no such device") {
			t.Errorf("%q: exit code %d, %s", args, got.code, got.err)
		}
	}
}

// Every line is an event.
func TestExportedLinesAreEvents(t *testing.T) {
	var sum struct{ Entries int }
	if err := json.Unmarshal([]byte(ok(t, "info", "--json", sample("unet.stacks"))), &sum); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(ok(t, "export", "--to", "jsonl", sample("unet.stacks"))) {
		var event struct {
			Device *int
			Action string
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.Device == nil || event.Action == "" {
			t.Fatalf("%q: %v", line, err)
		}
		lines++
	}
	if lines != sum.Entries || lines == 0 {
		t.Errorf("%d lines of %d entries", lines, sum.Entries)
	}
}
