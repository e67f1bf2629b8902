package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A written is a command that writes a file: its input, and its arguments without -o FILE.
type written struct {
	input string
	args  []string
}

// writers are all commands that write a file, each with a fresh input.
func writers(t *testing.T) map[string]written {
	t.Helper()
	content := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run, table, costs := file(t, "run.pickle", content(sample("streams"))), file(t, "x.csv", noneAtTheBound), file(t, "model.json", content("testdata/bench-model.json"))
	script := file(t, "x.script", "alloc a 5MiB\nfree a\n")
	return map[string]written{
		"export":          {run, []string{"export", "--to", "json", run}},
		"pack":            {table, []string{"pack", "--time=0s", table}},
		"plot":            {run, []string{"plot", "--format", "svg", run}},
		"plan":            {script, []string{"plan", script}},
		"plan for a file": {costs, []string{"plan", "--device", "sim:cost=" + costs, script}},
		"bench":           {costs, []string{"bench", "driver", "--device", "sim:total=64MiB,cost=" + costs}},
	}
}

// No command replaces its input file, under any name, with or without --force.
func TestDefect01_OutputsNeverReplaceInputs(t *testing.T) {
	for name, w := range writers(t) {
		before, err := os.ReadFile(w.input)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		symbolic, hard := filepath.Join(dir, "symbolic"), filepath.Join(dir, "hard")
		if err := errors.Join(os.Symlink(w.input, symbolic), os.Link(w.input, hard)); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{w.input, symbolic, hard, filepath.Join(filepath.Dir(w.input), ".", filepath.Base(w.input))} {
			for _, force := range [][]string{nil, {"--force"}} {
				args := append(append(w.args, "-o", to), force...)
				if got := ashlar(t, nil, args...); got.code != exitUsage || !strings.Contains(got.err, "that is the input") {
					t.Errorf("%s: %q: exit code %d: %s", name, args, got.code, got.err)
				}
			}
		}
		for _, path := range []string{w.input, symbolic, hard} {
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("%s: %s has changed, %v", name, path, err)
			}
		}
	}
	// And standard input is an input.
	path := writers(t)["export"].input
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var stderr strings.Builder
	if code := run([]string{"export", "--to", "json", "--force", "-o", path, "-"}, in, io.Discard, &stderr); code != exitUsage {
		t.Errorf("from standard input: exit code %d: %s", code, stderr.String())
	}
	ok(t, "verify", path)
}

// A file that is there is replaced with --force alone.
func TestDefect01_ExistingFilesNeedForce(t *testing.T) {
	for name, w := range writers(t) {
		existing := file(t, "there", "before")
		args := append(w.args, "-o", existing)
		if got := ashlar(t, nil, args...); got.code != exitUsage || !strings.Contains(got.err, "the file exists; --force replaces it") {
			t.Errorf("%s: exit code %d: %s", name, got.code, got.err)
		}
		if b, err := os.ReadFile(existing); err != nil || string(b) != "before" {
			t.Errorf("%s: the file that was there has %.20q, %v", name, b, err)
		}
		ok(t, append(args, "--force")...)
		if b, err := os.ReadFile(existing); err != nil || string(b) == "before" {
			t.Errorf("%s: the file was not replaced: %v", name, err)
		}
	}
}

// With -o - the file goes to standard output, and nothing else does.
func TestDefect01_ADashIsStandardOutput(t *testing.T) {
	for name, w := range writers(t) {
		to := filepath.Join(t.TempDir(), "out")
		if got := ashlar(t, nil, append(w.args, "-o", to)...); got.code != exitOK {
			t.Fatalf("%s: %s", name, got.err)
		}
		want, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if got := ashlar(t, nil, append(w.args, "-o", "-")...); got.code != exitOK || got.out != string(want) {
			t.Errorf("%s: exit code %d: %q, want %q", name, got.code, got.out, want)
		}
	}
	if _, err := os.Stat("-"); err == nil {
		t.Error(`there is a file "-"`)
	}
}

// An output that cannot be written is found before the work begins, and is the output's fault.
func TestDefect24_UnwritableOutputsAreNotBlamedOnTheInput(t *testing.T) {
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "no", "x")
	for name, w := range writers(t) {
		for to, why := range map[string]string{nowhere: "no such file or directory", dir: "is a directory", w.input + "/x": "not a directory"} {
			got := ashlar(t, nil, append(w.args, "-o", to)...)
			if want := "ashlar: " + to + " cannot be written: " + why + "\n"; got.code != exitInput || got.err != want || got.out != "" {
				t.Errorf("%s: exit code %d: %q, want %q", name, got.code, got.err, want)
			}
		}
	}
}

// A command that fails half-way or panics leaves neither a new file nor a changed one. A file created in between stays.
func TestDefect01_FailuresLeaveNothing(t *testing.T) {
	there := file(t, "there", "before")
	fresh := filepath.Join(filepath.Dir(there), "fresh")
	failed := errors.New("half-way")
	fill := func(w io.Writer) error {
		_, err := w.Write(make([]byte, 5<<20))
		return errors.Join(err, failed)
	}
	for _, path := range []string{there, fresh} {
		o := &outputFile{path: path, force: true}
		if err := o.write(fill); err == nil || !strings.Contains(err.Error(), path+" cannot be written: half-way") || errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
		func() {
			defer func() {
				if recover() != failed {
					t.Error("the panic is lost")
				}
			}()
			_ = o.write(func(w io.Writer) error { panic(failed) })
		}()
	}
	late := &outputFile{path: fresh}
	if err := late.write(func(io.Writer) error { return os.WriteFile(fresh, []byte("another's"), 0o600) }); err == nil || !strings.Contains(err.Error(), "file already exists") {
		t.Errorf("%v", err)
	}
	for path, want := range map[string]string{there: "before", fresh: "another's"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s has %.20q, %v", path, b, err)
		}
	}
	if left, err := filepath.Glob(filepath.Dir(there) + "/*"); err != nil || len(left) != 2 {
		t.Errorf("%q are left, %v", left, err)
	}
}
