package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The program starts itself as its own worker, so the test binary must be one, too; and workers that misbehave.
func TestMain(m *testing.M) {
	switch arg := slices.Concat(os.Args, []string{"", ""})[1]; arg {
	case "-worker":
		if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "misbehave":
		misbehave(os.Args[2])
	}
	os.Exit(m.Run())
}

// misbehave is a worker that says hello and answers whatever it is asked with a line, or by dying.
func misbehave(line string) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch {
		case in.Text() == "hello":
			fmt.Println(`{"facts":{"kind":"bad"}}`)
		case line == "die":
			fmt.Fprintln(os.Stderr, "last words")
			os.Exit(3)
		default:
			fmt.Println("a library says something")
			fmt.Println(line)
		}
	}
	os.Exit(0)
}

func tiny(device string) []string {
	return []string{
		"-device", device, "-python", "none", "-reps", "2", "-ms", "1", "-live", "16", "-warm", "1", "-rounds", "1",
		"-largest", "65536", "-threads", "2",
	}
}

// TestRunMeasuresAshlar: on devices that are everywhere, every figure of Ashlar's own is there, twice, and nothing
// fails; the file holds what was printed.
func TestRunMeasuresAshlar(t *testing.T) {
	for _, c := range [][2]string{{"sim:unchecked", ""}, {"host:total=4GiB", ""}, {"sim:unchecked", operations}, {"host:total=4GiB", operations}} {
		device, what := c[0], c[1]
		file := filepath.Join(t.TempDir(), "results.json")
		var out, again strings.Builder
		if err := run(t.Context(), append(tiny(device), "-what", what, "-o", file), nil, &out, io.Discard); err != nil {
			t.Fatalf("%s: %v", device, err)
		}
		r, err := readResults(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Failures {
			t.Errorf("%s: %s: %s", device, f.What, f.Error)
		}
		for _, p := range r.Settings.parts() {
			for _, s := range slices.Concat(p.groups...) {
				c := r.at(s.first())
				switch {
				case s.worker == "go" && (c == nil || len(c.Samples) != 2 || slices.Min(c.Samples) <= 0):
					t.Errorf("%s: %q gave %+v, want two figures", device, s.question, c)
				case s.worker != "go" && c != nil:
					t.Errorf("%s: figures of %s, which was not started", device, s.worker)
				}
			}
		}
		if err := run(t.Context(), []string{"-what", what, "-render", file}, nil, &again, io.Discard); err != nil {
			t.Fatal(err)
		}
		if out.String() != again.String() {
			t.Errorf("%s: -render of the file prints something else", device)
		}
	}
}

// first is the place of the value that each step has: the rate or the time.
func (s step) first() place { return s.places["ns"] }

// TestRequestedPeak: the allocator counted the very bytes that the history asked for.
func TestRequestedPeak(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	args := append(tiny("sim:unchecked"), "-o", file, "-seed", "1", "-warm", "2", "-rounds", "2")
	if err := run(t.Context(), args, nil, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	r, err := readResults(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = 218341928 // as in TestReplacements
	for _, column := range []string{"Ashlar", "Ashlar, expandable", "Ashlar, paged", "Ashlar, planned"} {
		c := r.at(place{"replace", column, colRequested})
		if c == nil || c.median() != want {
			t.Errorf("%s: requested peak %+v, want %d", column, c, want)
		}
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"extra"}, `"extra": there are flags only`},
		{[]string{"-reps", "0"}, "-reps"},
		{[]string{"-render", filepath.Join(t.TempDir(), "none.json")}, "read results"},
		{tiny("nosuchdriver"), "no such driver"},
	} {
		if err := run(t.Context(), c.args, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want it to say %q", c.args, err, c.want)
		}
	}
}

// TestOtherSidesMayBeMissing: without PyTorch, Ashlar is measured, and the failure says what was missing.
func TestOtherSidesMayBeMissing(t *testing.T) {
	var out strings.Builder
	args := append(tiny("sim:unchecked"), "-python", filepath.Join(t.TempDir(), "nopython"))
	if err := run(t.Context(), args, nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "- starting the worker python: start: ") {
		t.Errorf("no word of what is missing:\n%s", out.String())
	}
}

// misbehaving is a run with one worker, which answers with line.
func misbehaving(t *testing.T, line string) *bench {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		r:       &results{Settings: settings{Reps: 2}, Machine: map[string]string{}},
		workers: map[string]*worker{}, progress: io.Discard, checksum: func() string { return "1" },
	}
	b.start(t.Context(), "bad", nil, self, "misbehave", line)
	t.Cleanup(b.close)
	if b.r.Machine["bad: kind"] != "bad" {
		t.Fatalf("not started: %+v", b.r.Failures)
	}
	return b
}

// TestWorkersMayFail: what a worker does wrong is told once, its figures are left out, and it is asked the next
// question all the same.
func TestWorkersMayFail(t *testing.T) {
	at := place{"part", "row", "column"}
	group := []step{{"bad", "what", map[string]place{"ns": at}}}
	for _, c := range []struct{ line, want string }{
		{"die", `worker bad: it ended when asked "what" (exit status 3); it wrote: last words`},
		{`{"error":"no memory"}`, "no memory"},
		{`{"values":7}`, "it answered"},
		{`{"values":{"ns":7},"facts":{"checksum":"2"}}`, "random numbers are not ours: checksum 2, not 1"},
	} {
		b := misbehaving(t, c.line)
		b.ask(t.Context(), "part", group)
		b.ask(t.Context(), "part", group)
		if len(b.r.Failures) != 2 || b.r.at(at) != nil {
			t.Fatalf("%s: %d failures, %+v; want one for each time it was asked", c.line, len(b.r.Failures), b.r.Cells)
		}
		for _, f := range b.r.Failures {
			if !strings.Contains(f.Error, c.want) || f.What != `part: bad, asked "what"` {
				t.Errorf("%s: failure %+v, want %q", c.line, f, c.want)
			}
		}
	}
	b := misbehaving(t, `{"values":{"ns":7},"facts":{"checksum":"1"}}`)
	b.ask(t.Context(), "part", group)
	if c := b.r.at(at); len(b.r.Failures) > 0 || c == nil || !slices.Equal(c.Samples, []float64{7, 7}) {
		t.Errorf("%+v, failures %+v; want two samples", c, b.r.Failures)
	}
}

// A worker that keeps dying is left alone in the end.
func TestWorkersThatKeepDying(t *testing.T) {
	b := misbehaving(t, "die")
	for range 2 * maxStarts {
		b.ask(t.Context(), "part", []step{{worker: "bad", question: "what"}})
	}
	if len(b.r.Failures) != maxStarts {
		t.Errorf("%d failures, want %d", len(b.r.Failures), maxStarts)
	}
}

// TestAnswerSurvivesBadQuestions: a worker answers nonsense with an error and goes on.
func TestAnswerSurvivesBadQuestions(t *testing.T) {
	for _, question := range []string{"", "nonsense", "warm", "warm caching x 1", "warm none 512 1", "in nowhere 4096 1"} {
		var out strings.Builder
		if err := serve("sim", strings.NewReader(question+"\nhello\n"), &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"error"`) || !strings.Contains(lines[1], "simulated") {
			t.Errorf("%q: answered %q, want an error and then a greeting", question, lines)
		}
	}
	if err := serve("sim:total=0", nil, io.Discard); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("a device that cannot be opened: %v", err)
	}
}
