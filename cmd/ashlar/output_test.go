package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// has fails unless text, with its lines joined, has each of the parts.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	joined := strings.Join(strings.Fields(text), " ")
	for _, part := range parts {
		if !strings.Contains(joined, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

// lacks fails if text has one of the parts.
func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%q in:\n%s", part, text)
		}
	}
}

// rows are the rows that replay --json printed.
func rows(t *testing.T, out string) (all []rowLine) {
	t.Helper()
	for line := range strings.Lines(out) {
		var r rowLine
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// brokenWriter fails after some bytes.
type brokenWriter struct {
	left int
	err  error
}

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, w.err
	}
	return len(b), nil
}

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	path := sample("streams")
	for _, args := range [][]string{
		{"replay", path},
		{"replay", "--json", path},
		{"tune", "--tries", "1", path},
		{"tune", "--tries", "1", "--json", path},
		{"info", path},
		{"info", "--json", path},
		{"verify", path},
		{"verify", "--json", path},
		{"--help"},
		{"version"},
		{"completion", "bash"},
	} {
		var stderr bytes.Buffer
		code := run(args, strings.NewReader(""), &brokenWriter{err: errors.New("no space left")}, &stderr)
		if code != exitInput || strings.Count(stderr.String(), "no space left") != 1 {
			t.Errorf("%q: exit code %d, %s", args, code, stderr.String())
		}
		stderr.Reset()
		code = run(args, strings.NewReader(""), &brokenWriter{err: io.ErrClosedPipe}, &stderr)
		if code != exitOK || stderr.Len() != 0 {
			t.Errorf("%q into a closed pipe: exit code %d, %s", args, code, stderr.String())
		}
	}
}

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("a bug") }

func TestBugsAreNotSwallowed(t *testing.T) {
	defer func() {
		if recover() != "a bug" {
			t.Error("run swallowed a panic")
		}
	}()
	run([]string{"replay", "-"}, panickingReader{}, io.Discard, io.Discard)
}

// A recording that ran out of memory is compared under the memory that it is known to have had.
func TestReplayOfARecordingWithoutRoom(t *testing.T) {
	got := ashlar(t, nil, "replay", sample("gpt2.oom"))
	has(t, got.out, "with a limit of 18.03GiB: the most that was reserved before the recorded run ran out of memory.",
		"No row completed. The least that would do is a limit of about 18.08GiB, with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
		"The recorded run had at least 18.03GiB, perhaps more",
		"The request that failed when this was recorded: 2.26GiB on stream 0x0, at entry 125,081, with 15.63GiB in use and "+
			"16.66GiB reserved; the device had 122.38GiB left.",
		"largest free block there: 495.35 MiB", "stranded: 1.01 GiB", "pins 513.07 MiB", "Your own limit, of less than 18.93GiB, was reached: the device had room.",
		"your own limit of 18.03 GiB was reached, the GPU had 123.14 GiB free; the request needed 18.93 GiB in all")
	lacks(t, got.out, "would have let it complete", "would have fitted")
	if got.code != exitNoRoom {
		t.Errorf("exit code %d", got.code)
	}
	has(t, ok(t, "replay", "--limit", "18.2GiB", sample("gpt2.oom")),
		"would have let it complete within the limit of 18.20GiB, with 18.08GiB reserved.",
		"would have fitted with expandable_segments:True: free memory in pieces comes to 2.55 GiB; a replay with it got past this request")
	all := rows(t, ashlar(t, nil, "replay", "--json", sample("gpt2.oom")).out)
	for _, r := range all[:len(all)-1] { // the last is the bound
		if *r.Limit/mib != 18466 || r.OOMs == 0 || r.SmallestLimit == nil {
			t.Errorf("%+v", r)
		}
	}
	has(t, ok(t, "replay", "--capacity", "100GiB", sample("gpt2.oom")), "100.00GiB of simulated memory with no limit")
	has(t, ok(t, "info", sample("gpt2.oom")), "no room for 2.26GiB on stream 0x0, at entry 125,081, with 15.63GiB in use",
		"122.38GiB left. Your own limit, of less than 18.93GiB, was reached")
}

// The code line of a failed request is shown where the file has it.
func TestFailureTextNamesTheCode(t *testing.T) {
	history := append(smallHistory(), entry("oom", 0, 90*mib, 6, "device_free", 7*mib,
		"frames", snapshottest.L{snapshottest.D{"filename", "/home/me/train.py", "name", "step", "line", int64(12)}}))
	out := ashlar(t, nil, "info", smallSnapshot(t, "", history)).out
	has(t, out, "no room for 90.00MiB", "with 5.00MiB in use and 20.00MiB reserved; the device had 7.00MiB left",
		"asked for by train.py:12 step")
	// The driver had less than was asked for: that was all there was.
	has(t, ashlar(t, nil, "replay", smallSnapshot(t, "", history)).out,
		"with a limit of 27.00MiB: what the recorded run had when it ran out of memory")
}

func TestSmallestDecides(t *testing.T) {
	out := ok(t, "replay", "--smallest", sample("unet.split128"))
	has(t, out, "needs at least about 7.99GiB; the recorded settings need 8.17GiB, 188.00MiB (2.3 %) more.")
	lacks(t, out, "would have saved")
	all := rows(t, ok(t, "replay", "--smallest", "--json", sample("unet.split128")))
	var split int64
	for _, r := range all {
		if strings.HasPrefix(r.Allocator, "caching:max_split_size_mb:") {
			split = *r.SmallestLimit
		}
	}
	for _, mb := range []int{32, 64, 256, 512, 1024} {
		spec := fmt.Sprintf("caching:max_split_size_mb:%d", mb)
		if r := rows(t, ok(t, "replay", "--smallest", "--json", "-a", spec, sample("unet.split128")))[0]; *r.SmallestLimit < split {
			t.Errorf("%s can do with %d, the row has %d", spec, *r.SmallestLimit, split)
		}
	}
	// The row with the least reserved is not always the one that can do with the least.
	specs := []string{"caching:roundup_power2_divisions:2", "caching:max_split_size_mb:32"}
	out = ok(t, "replay", "--smallest", "-a", specs[0], "-a", specs[1], sample("unet.split128"))
	has(t, out, "* max_split_size_mb:32", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:32 needs at least about 8.10GiB.")
}

func TestLateRecordingStatesWhatWasRecorded(t *testing.T) {
	history := smallHistory()[3:] // both blocks were there before
	cached := segment(base+100*mib, 0, block(base+100*mib, 20*mib, false))
	out := ok(t, "replay", smallSnapshot(t, "", history, cached))
	has(t, out, "2 blocks, 9.00MiB in all, were there before it",
		"While this was recorded, 40.00MiB was reserved at most. Run again here with the recorded settings, which is what the "+
			"other rows can be compared with, 20.00MiB was reserved for at most 9.00MiB in use")
	lacks(t, out, "As recorded, ")
}

func TestSettingsThatAreNotUnderstood(t *testing.T) {
	path := smallSnapshot(t, "future_key:[1:2,3],max_split_size_mb:64,\x1b[31mx:1", smallHistory())
	out := ok(t, "replay", path)
	has(t, out, `The recorded setting "future_key:[1:2,3]" is not understood, and is ignored.`, `"\x1b[31mx:1"`)
	lacks(t, out+ok(t, "info", path), "\x1b")
	ok(t, "replay", "-a", "caching:", path)
	got := ashlar(t, nil, "verify", path)
	if got.code != exitInput {
		t.Errorf("verify: exit code %d", got.code)
	}
	has(t, got.err, "--settings replaces them")
	if got := ashlar(t, nil, "verify", "--settings", "", path); got.code == exitInput || got.err != "" {
		t.Errorf("verify with --settings: exit code %d, %s", got.code, got.err)
	}
}

func TestNothingFromAFileReachesTheTerminalRaw(t *testing.T) {
	history := smallHistory()
	frame := func(file, name string) snapshottest.L {
		return snapshottest.L{snapshottest.D{"filename", file, "name", name, "line", int64(3)}}
	}
	history[1] = entry("alloc", base, 4*mib, 2, "frames", frame("\x1b]0;x\x07.py", "a\nb\x1b[31m\u202e"))
	history[2] = entry("alloc", base+4*mib, 5*mib, 3, "frames", frame("x.py", strings.Repeat("y", 200_000)))
	path := smallSnapshot(t, "", history)
	out := ok(t, "info", path)
	lacks(t, out, "\x1b", "\x07", "\u202e")
	has(t, out, `\x1b]0;x\a.py:3 a\nb\x1b[31m\u202e`)
	for line := range strings.Lines(out) {
		if len([]rune(line)) > pageWidth+1 {
			t.Errorf("a line of %d columns", len([]rune(line)))
		}
	}
	has(t, ok(t, "info", "--json", path), strings.Repeat("y", 400)+`..."`) // labels are cut
}

func TestPagesOfOtherWidths(t *testing.T) {
	for _, width := range []int{60, 80, 100, 200} {
		var out bytes.Buffer
		p := &page{w: &out, width: width}
		tab := table{marked: 0, optional: []int{2, 1}, header: []string{"settings", "one\ntwo", "three"}, rows: [][]string{
			{"expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]", "12345678", strings.Repeat("9", 40)},
			{"short", "1", "2"},
		}}
		tab.write(p)
		p.paragraph("Note: ", strings.Repeat("word ", 60))
		p.paragraph("", strings.Repeat("of it 22 %, ", 40))
		lacks(t, out.String(), "\n%", "22\n")
		new(chart).write(p)
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("%d columns on a page of %d: %s", n, width, line)
			}
		}
		has(t, out.String(), "expandable_segments:True,", "max_split_size_mb:128,", "roundup_power2_divisions:[256:1,512:2,>:4]")
		if width == 60 {
			lacks(t, out.String(), "three")
		} else {
			has(t, out.String(), "three")
		}
	}
}

func TestScriptsAreNoRecordings(t *testing.T) {
	script := file(t, "x.script", "device sim total=64MiB\nallocator caching\nalloc a 3MiB\nalloc b 70000\nfree a\nalloc c 2MiB\n")
	out := ok(t, "replay", script)
	has(t, out, "replayed on 64.00MiB of simulated memory", "With PyTorch's defaults,", "Line 2 of the script names an allocator")
	lacks(t, out, "ecorded", "PYTORCH_CUDA_ALLOC_CONF")
	has(t, ok(t, "replay", "--capacity", "1GiB", script), "on 1.00GiB")
	for text, part := range map[string]string{
		"device host\nalloc a 1\n":            "script:1:1: device host",
		"device sim seed=7\nalloc a 1\n":      "knows total=SIZE alone",
		"device sim total=1GiB\ndevice sim\n": "script:2:1",
	} {
		got := ashlar(t, nil, "replay", file(t, "y.script", text))
		if got.code != exitInput || !strings.Contains(got.err, part) {
			t.Errorf("%q: exit code %d, %s", text, got.code, got.err)
		}
	}
	has(t, ok(t, "--help"), ".script")
}

func TestInfoAndReplayTellTheSameOfBadEntries(t *testing.T) {
	history := append(smallHistory(), entry("free_completed", base, 4*mib, 6), entry("free_requested", base, 4*mib, 7))
	path := smallSnapshot(t, "", history)
	info := ok(t, "info", path)
	has(t, info, "contradicts 2 entries; the first: entry 5: ")
	lacks(t, info, "starts late")
	has(t, ok(t, "replay", path), "2 entries contradict those before them; the first: entry 5: ", "entries contradict each other, so")
	lacks(t, ok(t, "replay", path), "before the recording")

	history = smallHistory()
	history[1] = entry("alloc", base, 1<<62, 2)
	path = smallSnapshot(t, "", history)
	info = ok(t, "info", path)
	has(t, info, "oversized 1 entry of more than was ever reserved", "alloc of 4,611,686,018,427,387,904 bytes",
		"peaks 5.00MiB requested")
	lacks(t, info, "TiB")
}

func TestInfoJSON(t *testing.T) {
	out := ok(t, "info", "--json", smallSnapshot(t, "", append(smallHistory(), entry("weird", 0, 0, 6))))
	has(t, out, `"skipped":[{"what":"trace entry action \"weird\"","count":1}]`)
	lacks(t, out, "where", "no stack")
}

func TestUsualFormsWork(t *testing.T) {
	for _, c := range [][2][]string{
		{{"help"}, {"--help"}}, {{"help", "replay"}, {"replay", "--help"}}, {{"--version"}, {"version"}},
	} {
		if a, b := ok(t, c[0]...), ok(t, c[1]...); a != b || a == "" {
			t.Errorf("%q and %q differ", c[0], c[1])
		}
	}
	for _, flag := range []string{"--limit", "--settings"} {
		has(t, ashlar(t, nil, "verify", flag).err, flag+": a value is missing")
	}
}

func TestSmallThingsInReplay(t *testing.T) {
	path := smallSnapshot(t, "", smallHistory())
	work := &replay.Work{Program: &trace.Program{Ops: make([]trace.Op, 8)}}
	if cells := rowCells(&replay.Comparison{Work: work}, &replay.Row{NsPerOp: 12}); cells[colNs] != "-" {
		t.Errorf("a few operations are timed: %q", cells)
	}
	has(t, ok(t, "replay", "--limit", "999GiB", path), "a limit of 999.00GiB, which is more than there is")
	has(t, ok(t, "info", path), "recorded at an unknown time, for 4.00us")
	has(t, ok(t, "replay", smallSnapshot(t, "", append(smallHistory(), entry("free_completed", base, 4*mib, 6)))),
		"1 entry contradicts those before it")
}

func TestHostCostIsToldOfLongReplays(t *testing.T) {
	in, err := read(sample("gpt2"), nil, newProgress(io.Discard, ""))
	if err != nil {
		t.Fatal(err)
	}
	works, err := in.works()
	if err != nil {
		t.Fatal(err)
	}
	has(t, fillCost("host", works[0], 4), "to write and as much to read for each of 4 rows")
	if got := fillCost("host", &replay.Work{Program: works[0].Program}, 0); got != "" {
		t.Errorf("nothing to do costs %q", got)
	}
	script := file(t, "small.script", "alloc a 3MiB\nfree a\n")
	has(t, ok(t, "replay", "--device", "host", "--capacity", bytesize.Exact(1024*mib), script), "With PyTorch's defaults, ")
}

func TestBashCompletes(t *testing.T) {
	script := ok(t, "completion", "bash")
	for words, want := range map[string]string{
		"ashlar replay --device =":     "sim host cuda:0",
		"ashlar replay --device = h":   "host",
		"ashlar replay --device=":      "--device=sim --device=host --device=cuda:0",
		"ashlar replay -a c":           "caching",
		"ashlar replay --allocator ca": "caching",
		"ashlar replay -":              "--help -h --allocator -a --device --capacity --limit --smallest --json --markdown",
		"ashlar -":                     "--help -h --version",
	} {
		run := script + "\nCOMP_WORDS=(" + words + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_ashlar\necho ${COMPREPLY[*]}\n"
		out, err := exec.Command("bash", "-c", run).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", words, got, want, err)
		}
	}
}

// The names of files are completed after flags that take them.
func TestFlagsOfFilesAreCompleted(t *testing.T) {
	for shell, lines := range map[string][]string{
		"zsh": {
			`'--output[Write the plan to this file; - is standard output.]:file:_files'`,
			`'-o[Write the plan to this file; - is standard output.]:file:_files'`, `'--at[`, `'*:file:_files'`,
		},
		"fish": {
			"-l output -s o -r -F -d 'Write the plan to this file", "-l export -r -F -d 'Write the page", "-l at -x -d",
		},
	} {
		out := ok(t, "completion", shell)
		for _, line := range lines {
			if !strings.Contains(out, line) {
				t.Errorf("%s: no %s", shell, line)
			}
		}
	}
}

// The time of a recording is never less than nothing, whatever its first and last entries say.
func TestTimesOfRecordings(t *testing.T) {
	for _, c := range []struct {
		start, end int64
		want       string
	}{
		{0, 0, "at an unknown time"},
		{0, 1_500_000, "at an unknown time, for 1.50s"},
		{1790000000000000, 1790000000000001, "2026-09-21 14:13:20 UTC, for 1.00us"},
		{math.MinInt64, math.MaxInt64, "at an unknown time, for 2562047h47m16s"},
		{-1, math.MaxInt64, "at an unknown time, for 2562047h47m16s"},
		{math.MaxInt64, math.MaxInt64, "at an unknown time"},
	} {
		if got := recordedText(c.start, c.end); got != c.want {
			t.Errorf("from %d to %d: %q, want %q", c.start, c.end, got, c.want)
		}
	}
}
