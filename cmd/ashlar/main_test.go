package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

const traces = "../../testdata/traces/"

func sample(name string) string { return traces + name + ".pickle.zst" }

// outcome is the output and the exit code of a command.
type outcome struct {
	code     int
	out, err string
}

// commandLines are shared by the tests, because to make one takes longer than most commands.
var commandLines = sync.Pool{New: func() any { return newCommandLine() }}

// run runs a command, and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	l := commandLines.Get().(*commandLine)
	code := l.run(args, stdin, stdout, stderr)
	commandLines.Put(l)
	return code
}

// A command line that has run others runs a command as a new one does.
func TestCommandsAreIndependent(t *testing.T) {
	old, plan, script := newCommandLine(), filepath.Join(t.TempDir(), "plan"), file(t, "small.script", smallScript)
	for _, args := range [][]string{
		{"plan", "--force", "-o", plan, script},
		{"plan", script},
		{"replay", "--json", "--smallest", "-a", "caching", "-a", "arena", script},
		{"replay", "--markdown", script},
		{"replay", "--json", "--markdown", script},
		{"replay", "--limit", "16MiB", script},
		{"replay", script},
		{"info", sample("streams"), "none"},
		{"info", "--help"},
		{"info"},
		{"--help"},
		{"completion", "fish"},
		{"completion"},
		{"completion", "none"},
		{"none"},
		{"tune", "--none"},
		{"version"},
		{},
	} {
		var outputs [2]outcome
		for i, l := range []*commandLine{old, newCommandLine()} {
			setClock(t)
			var out, err bytes.Buffer
			outputs[i].code = l.run(args, strings.NewReader(""), &out, &err)
			outputs[i].out, outputs[i].err = out.String(), err.String()
		}
		if outputs[0] != outputs[1] {
			t.Errorf("ashlar %q after other commands: %+v\nat first: %+v", args, outputs[0], outputs[1])
		}
	}
}

// setClock makes every timed run take a millisecond.
func setClock(t *testing.T) {
	var clock time.Time
	now = func() time.Time { clock = clock.Add(time.Millisecond); return clock }
	t.Cleanup(func() { now = time.Now })
}

// ashlar runs a command, under the clock of setClock.
func ashlar(t *testing.T, stdin []byte, args ...string) outcome {
	t.Helper()
	setClock(t)
	var out, err bytes.Buffer
	code := run(args, bytes.NewReader(stdin), &out, &err)
	return outcome{code, out.String(), err.String()}
}

// ok runs a command that must succeed without a word on standard error, and returns its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	got := ashlar(t, nil, args...)
	if got.code != exitOK || got.err != "" {
		t.Fatalf("ashlar %q: exit code %d, %s", args, got.code, got.err)
	}
	return got.out
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// The text output equals the reviewed golden files.
func TestOutput(t *testing.T) {
	all, err := filepath.Glob(traces + "*.pickle.zst")
	if err != nil || len(all) != 13 {
		t.Fatalf("%d traces, %v", len(all), err)
	}
	for name, args := range map[string][]string{
		"replay-gpt2":     {"replay", sample("gpt2")},
		"replay-limit":    {"replay", "--limit", "18.2GiB", sample("gpt2.oom")},
		"replay-chosen":   {"replay", "-a", "caching:", "-a", "caching:max_split_size_mb:128,garbage_collection_threshold:0.8", sample("resnet"), sample("streams")},
		"replay-smallest": {"replay", "--smallest", sample("unet.split128")},
		"replay-recorded": {"replay", "-a", "caching", sample("unet.gc6")},
		"replay-others":   {"replay", "--smallest", "-a", "caching", "-a", "arena", "-a", "bfc", "-a", "direct", sample("resnet"), sample("streams")},
		"replay-markdown": append([]string{"replay", "--markdown", "--smallest", "-a", "caching", "-a", "bfc"}, all...),
		"replay-moves": {
			"replay", "-a", "caching:", "-a", "caching:expandable_segments:True", "-a", "arena:compact=off", "-a", "arena",
			"testdata/compaction.script",
		},
		"verify-all":      append([]string{"verify"}, all...),
		"info-stacks":     {"info", sample("unet.stacks")},
		"info-streams":    {"info", sample("streams")},
		"help":            {"--help"},
		"help-info":       {"info", "--help"},
		"help-replay":     {"replay", "--help"},
		"help-verify":     {"verify", "--help"},
		"completion-bash": {"completion", "bash"},
		"completion-zsh":  {"completion", "zsh"},
		"completion-fish": {"completion", "fish"},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := ashlar(t, nil, args...), exitOK
			if name == "replay-markdown" {
				want = exitNoRoom // of gpt2.oom
			}
			if got.code != want || got.err != "" {
				t.Errorf("exit code %d, want %d: %s", got.code, want, got.err)
			}
			golden.File(t, "testdata/"+name+".txt", got.out)
		})
	}
}

func TestTablesFitTheWidth(t *testing.T) {
	out := ok(t, "replay", "--limit", "9.5GiB", "--smallest", sample("unet.gc6")) + ok(t, "info", sample("unet.stacks"))
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > pageWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Programs read these keys.
func TestJSONHasItsKeys(t *testing.T) {
	for _, c := range []struct {
		args []string
		rows int
		keys string
	}{
		{[]string{"replay", "--json", sample("streams")}, 5, "trace device limit allocator allocs requested_peak allocated_peak " +
			"reserved_peak smallest_limit driver_calls driver_ns stalls retries ooms compactions moved_bytes ns_per_op " +
			"smallest_over_requested driver_calls_after_third driver_ns_after_third driver_percent_after_third stalls_after_third"},
		{[]string{"verify", "--json", sample("streams"), sample("resnet")}, 2, "trace allocs addresses_matched segment_events " +
			"segment_events_matched blocks blocks_matched peaks_equal exact"},
	} {
		want := strings.Fields(c.keys)
		slices.Sort(want)
		lines := strings.Split(strings.TrimSpace(ok(t, c.args...)), "\n")
		if len(lines) != c.rows {
			t.Errorf("%q: %d lines, want %d", c.args, len(lines), c.rows)
		}
		for _, line := range lines {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			var keys []string
			for k := range m {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			if !slices.Equal(keys, want) {
				t.Errorf("%q: keys %q, want %q", c.args, keys, want)
			}
		}
	}
	row := rows(t, ok(t, "replay", "--json", "-a", "caching", sample("resnet")))[0]
	if row.Trace != sample("resnet") || row.Allocator != "caching" || row.Allocs != 6615 || row.RequestedPeak != 4134814436 ||
		row.AllocatedPeak != 4149115904 || *row.ReservedPeak != 5190451200 || row.DriverCalls != 130 ||
		row.SmallestLimit != nil || row.OverBound != nil || *row.NsPerOp <= 0 || row.Stalls != 0 || *row.LaterCalls != 21 ||
		*row.LaterNS <= 0 || *row.LaterNS >= *row.DriverNS || *row.LaterPercent < 0.1 || *row.LaterPercent > 0.2 {
		t.Errorf("%+v", row)
	}
	row = rows(t, ok(t, "replay", "--json", "--smallest", "-a", "caching:", sample("resnet")))[0]
	if row.SmallestLimit == nil || *row.SmallestLimit%(1<<20) != 0 || *row.SmallestLimit < row.RequestedPeak ||
		*row.OverBound != float64(*row.SmallestLimit)/float64(row.RequestedPeak) {
		t.Errorf("%+v", row)
	}
}

// The last row of every comparison is the bound: the requested memory, without a driver call.
func TestBoundIsTheLastRow(t *testing.T) {
	all := rows(t, ok(t, "replay", "--json", "--smallest", "-a", "direct", sample("streams"), "testdata/compaction.script"))
	if len(all) != 4 {
		t.Fatalf("%d rows", len(all))
	}
	for _, r := range []rowLine{all[1], all[3]} {
		if r.Allocator != "bound" || r.RequestedPeak == 0 || *r.ReservedPeak != r.RequestedPeak || *r.SmallestLimit != r.RequestedPeak ||
			*r.OverBound != 1 || r.DriverCalls != 0 || *r.DriverNS != 0 || r.Stalls != 0 || *r.LaterCalls != 0 || r.NsPerOp != nil {
			t.Errorf("%+v", r)
		}
	}
	if p := all[1].LaterPercent; p == nil || *p != 0 || all[3].LaterPercent != nil {
		t.Error("want none of the recorded time, and nothing said of a script's")
	}
	lines := strings.Split(strings.TrimSpace(ok(t, "replay", "--markdown", "-a", "caching", sample("streams"))), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "| streams | lower bound | 661.23MiB |") {
		t.Errorf("the last of %d lines is %q", len(lines), last)
	}
}

// A limit may be given as a multiple of the memory requested at the peak.
func TestLimitMayBeAMultiple(t *testing.T) {
	const peak = 60 << 20 // of the script
	for text, want := range map[string]int64{"1x": peak, "1.004x": 63166218, "1.0999999999x": 69206015, "64MiB": 64 << 20} {
		for _, r := range rows(t, ok(t, "replay", "--json", "-a", "arena", "--limit", text, "testdata/compaction.script")) {
			if *r.Limit != want || r.OOMs != 0 {
				t.Errorf("--limit %s: %+v, want a limit of %d", text, r, want)
			}
		}
	}
	got := ashlar(t, nil, "replay", "-a", "arena", "-a", "caching", "--limit", "1.004x", sample("resnet"), sample("streams"))
	has(t, got.out, "with a limit of 3.87GiB.", "with a limit of 663.87MiB.")
}

func TestJSONTellsWhatWasMoved(t *testing.T) {
	lines := rows(t, ok(t, "replay", "--json", "-a", "caching", "-a", "arena", "-a", "direct", "testdata/compaction.script"))
	if len(lines) != 4 || lines[0].Compactions != nil || lines[0].MovedBytes != nil || lines[2].Compactions != nil {
		t.Fatalf("%+v", lines)
	}
	if a := lines[1]; a.OOMs != 0 || *a.Compactions != 1 || *a.MovedBytes != 30<<20 {
		t.Errorf("%+v: %d bytes in %d compactions", a, *a.MovedBytes, *a.Compactions)
	}
}

// emptyHistory is a snapshot without events.
func emptyHistory() string {
	return string(snapshottest.Pickle(snapshottest.D{"segments", snapshottest.L{}, "device_traces", snapshottest.L{}}, 4))
}

func TestExitCodesAndErrors(t *testing.T) {
	good, err := os.ReadFile(sample("streams"))
	if err != nil {
		t.Fatal(err)
	}
	script := file(t, "x.script", "alloc a 1MiB\n")
	for _, c := range []struct {
		name  string
		stdin string
		args  []string
		code  int
		err   string // part of standard error
	}{
		{"nothing", "", nil, exitOK, ""},
		{"version", "", []string{"version"}, exitOK, ""},
		{"standard input", string(good), []string{"verify", "-"}, exitOK, ""},
		{"script", "", []string{"replay", script}, exitOK, ""},

		{"differs", "", []string{"verify", "--settings", "expandable_segments:True", sample("streams")}, exitDiffers, ""},
		{"no row completes", "", []string{"replay", "--limit", "256MiB", sample("streams")}, exitNoRoom, ""},

		{"no such command", "", []string{"compare"}, exitUsage, "compare"},
		{"no trace", "", []string{"replay"}, exitUsage, "<trace>"},
		{"no such flag", "", []string{"info", "--limit", "1k", "x"}, exitUsage, "--limit"},
		{"bad size", "", []string{"replay", "--limit", "18.2GiBs", "x"}, exitUsage, "unknown unit"},
		{"limit of no multiple", "", []string{"replay", "--limit", "1.oo4x", "x"}, exitUsage, "want a number before the x"},
		{"limit of a negative multiple", "", []string{"replay", "--limit=-1x", "x"}, exitUsage, "more than 0"},
		{"limit of an endless multiple", "", []string{"replay", "--limit", "Infx", "x"}, exitUsage, "at most 1000000"},
		{"limit that is no number", "", []string{"replay", "--limit", "NaNx", "x"}, exitUsage, "more than 0"},
		{"size zero", "", []string{"replay", "--limit", "0", "x"}, exitUsage, "want 1 byte to 32768TiB"},
		{"no such device", "", []string{"replay", "--device", "gpu", "x"}, exitUsage, "--device"},
		{"no such allocator", "", []string{"replay", "-a", "buddy", "x"}, exitUsage, "want one of arena, bfc, caching, direct, paged, planned"},
		{"bad settings of an allocator", "", []string{"replay", "-a", "caching:max_split_size_mb:1", "x"}, exitUsage, "max_split_size_mb"},
		{"bad settings of an arena", "", []string{"replay", "-a", "arena:round=1000", "x"}, exitUsage, "want a multiple of 512"},
		{"bad settings", "", []string{"verify", "--settings", "foo:1", "x"}, exitUsage, "foo"},
		{"no such shell", "", []string{"completion", "tcsh"}, exitUsage, "tcsh"},

		{"missing file", "", []string{"replay", "no/such.pickle"}, exitInput, "no/such.pickle: no such file or directory; a trace is"},
		{"directory", "", []string{"info", "testdata"}, exitInput, "directory"},
		{"not a pickle", "hello", []string{"replay", "-"}, exitInput, "_dump_snapshot"},
		{"empty file", "", []string{"replay", "-"}, exitInput, "standard input: "},
		{"truncated", string(good[:len(good)/2]), []string{"verify", "-"}, exitInput, "ends early"},
		{"malicious", "\x80\x04cos\nsystem\nX\x04\x00\x00\x00true\x85R.", []string{"info", "-"}, exitInput, "os.system"},
		{"pickle of something else", string(snapshottest.Pickle(snapshottest.L{int64(1)}, 4)), []string{"info", "-"}, exitInput, "_dump_snapshot"},
		{"no history to replay", emptyHistory(), []string{"replay", "-"}, exitInput, "_record_memory_history"},
		{"no history to verify", emptyHistory(), []string{"verify", "-"}, exitInput, "_record_memory_history"},
		{"no history to tell of", emptyHistory(), []string{"info", "-"}, exitOK, "_record_memory_history"},
		{"script to verify", "", []string{"verify", script}, exitInput, "use replay"},
		{"bad script", "", []string{"replay", file(t, "y.script", "alloc\n")}, exitInput, "script:1:6"},
		{"too large for real memory", "", []string{"replay", "--device", "host", "--capacity", "1GiB", "-a", "caching", sample("gpt2")}, exitNoRoom, "needs 25.08GiB"},
		{"one bad trace of several", "", []string{"verify", "no/such.pickle", sample("streams")}, exitInput, "no/such.pickle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ashlar(t, []byte(c.stdin), c.args...)
			if got.code != c.code || !strings.Contains(got.err, c.err) || (c.err == "" && got.err != "") {
				t.Errorf("exit code %d, want %d; standard error, want %q in it:\n%s", got.code, c.code, c.err, got.err)
			}
			if c.code == exitUsage && got.out != "" {
				t.Errorf("wrong usage printed %q", got.out)
			}
			if c.name == "one bad trace of several" && !strings.Contains(got.out, "streams: exact") {
				t.Errorf("the good trace is missing: %q", got.out)
			}
		})
	}
}

// A difference is shown with its context.
func TestVerifyShowsTheFirstDifference(t *testing.T) {
	got := ashlar(t, nil, "verify", "--settings", "max_split_size_mb:128", sample("unet"))
	if got.code != exitDiffers {
		t.Errorf("exit code %d", got.code)
	}
	golden.File(t, "testdata/verify-differs.txt", got.out)
}

// On real memory every block is filled and checked, and the driver's time is measured.
func TestReplayOnTheHost(t *testing.T) {
	script := file(t, "small.script", "alloc a 3MiB\nalloc b 70000\nfree a\nalloc c 2MiB\nalloc d 600\nfree b\n")
	out := ok(t, "replay", "--device", "host", "--json", "-a", "caching", "-a", "caching:max_split_size_mb:64", script)
	lines := rows(t, out)
	for _, row := range lines[:2] {
		if row.Allocs != 4 || row.RequestedPeak != 3<<20+70000 || row.OOMs != 0 || row.NsPerOp == nil {
			t.Errorf("%+v", row)
		}
		// The clock of tests makes every call take a millisecond.
		if row.DriverCalls == 0 || *row.DriverNS != row.DriverCalls*1e6 || *row.LaterNS != *row.LaterCalls*1e6 || row.LaterPercent != nil {
			t.Errorf("%+v", row)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d rows", len(lines))
	}
	for _, row := range rows(t, ok(t, "replay", "--device", "host", "--json", "-a", "arena", "-a", "direct:session=on", "--limit", "1.004x",
		"--capacity", "512MiB", "testdata/compaction.script")) {
		if row.Allocs != 13 || row.OOMs != 0 || *row.ReservedPeak > 60<<20+240<<10 || row.Compactions != nil && *row.Compactions == 0 {
			t.Errorf("%+v", row)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(int64(-1234567)): "-1,234,567",
		duration(12345): "12.3us", duration(999): "999ns", duration(6675645): "6.68ms", duration(36387700): "36.4ms",
		duration(169 * time.Millisecond): "169ms", duration(1230 * time.Millisecond): "1.23s", duration(125 * time.Second): "2m5s",
		bytesize.Percent(1, 0): "0 %", bytesize.Percent(28, 100): "28 %", bytesize.Percent(5, 1000): "0.5 %",
		strings.Join(wrap("max_split_size_mb:128", 12), "|"):     "max_split_size_mb:128",
		strings.Join(wrap("a:1,b:[1:2,>:4],c:3", 8), "|"):        "a:1,|  b:[1:2,>:4],|  c:3",
		clean("a\nb\x1b[31m\u202e\xff", 100):                     `a\nb\x1b[31m\u202e\xff`,
		clean(strings.Repeat("é", 50), 3):                        "ééé...",
		strings.Join(wrap("expandable_segments:True", 100), "|"): "expandable_segments:True",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
