package main

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
	"github.com/ashlar-go/ashlar/snapshot"
)

// A block in the middle of a segment that was larger keeps the rest of it from a request.
const fragmented = "alloc a 100MiB\nfree a\nalloc b 30MiB\nalloc c 80MiB\n"

// Recordings without allocations have no settings to tune, and need no limit.
func TestTuneOfNothing(t *testing.T) {
	a, b := file(t, "a.script", ""), file(t, "b.script", "# nothing\n")
	if got, want := ok(t, "tune", a), "There is nothing to tune: a has no allocations.\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := ok(t, "tune", a, b), "There is nothing to tune: none of 2 recordings has allocations.\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	has(t, ok(t, "tune", a, file(t, "c.script", fragmented)), "is enough")
}

// The text equals the reviewed golden files, in 80 columns but for the line to paste.
func TestTuneOutput(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"tune":         {exitOK, []string{sample("unet")}},
		"tune-nothing": {exitOK, []string{sample("unet.expandable")}},
		"tune-several": {exitOK, []string{"--tries", "12", sample("resnet"), sample("unet.gc6"), sample("streams")}},
		"tune-limit":   {exitNoRoom, []string{"--limit", "730MiB", sample("streams"), sample("resnet")}},
		"tune-all": {
			exitOK, []string{"--all", "--budget", "1ms", "--keep", "expandable_segments:False", sample("streams")},
		},
		"tune-script": {exitOK, []string{"testdata/tune.script"}},
		"help-tune":   {exitOK, []string{"--help"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ashlar(t, nil, append([]string{"tune"}, c.args...)...)
			if got.code != c.code || got.err != "" {
				t.Errorf("exit code %d, want %d: %s", got.code, c.code, got.err)
			}
			for line := range strings.Lines(got.out) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > tuneWidth && name != "help-tune" &&
					!strings.HasPrefix(line, "    export ") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			golden.File(t, "testdata/"+name+".txt", got.out)
		})
	}
}

// The object of --json has the figures of the text, and those of plain replays.
func TestTuneJSON(t *testing.T) {
	var got tuneLine
	out := ok(t, "tune", "--json", "--tries", "4", sample("streams"), sample("resnet"))
	testkit.Must(t, json.Unmarshal([]byte(out), &got))
	var keys map[string]any
	testkit.Must(t, json.Unmarshal([]byte(out), &keys))
	want := []string{"held_back", "helps", "line", "recordings", "saving", "settings", "tried"}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	if !got.Helps || *got.Line != "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" ||
		*got.Settings != "expandable_segments:True" || len(got.Recordings) != 2 || len(got.Tried) != 4 ||
		len(got.HeldBack) != 4 {
		t.Fatalf("%+v", got)
	}
	sum := 0.0
	for i, name := range []string{"streams", "resnet"} {
		r := got.Recordings[i]
		const spec = "caching:expandable_segments:True,pytorch-exact:True"
		row := rows(t, ok(t, "replay", "--json", "-a", spec, sample(name)))[0]
		free := r.Best.WithoutLimit
		if r.Trace != sample(name) || r.RequestedPeak != row.RequestedPeak || *free.ReservedPeak != *row.ReservedPeak ||
			free.Calls != row.DriverCalls || free.NS != *row.DriverNS || *free.LaterPercent != *row.LaterPercent {
			t.Errorf("%s: %+v, a replay has %+v", name, free, row)
		}
		if *r.Best.Needed < *r.Best.Limit || *r.Best.Needed < r.RequestedPeak || !r.Best.Fits || r.Best.OverBudget ||
			*r.Best.AtNeeded.LaterPercent > 1 || r.Limit != nil {
			t.Errorf("%s: %+v", name, r.Best)
		}
		sum += 1 - float64(*r.Best.Needed)/float64(*r.Recorded.Needed)
	}
	if math.Abs(got.Saving-sum/2) > 1e-9 || math.Abs(got.Tried[0].Saving-sum/2) > 1e-9 {
		t.Errorf("a saving of %v, and %v of the first: want %v", got.Saving, got.Tried[0].Saving, sum/2)
	}
	out = ok(t, "tune", "--json", "--tries", "2", file(t, "flat.script", "alloc a 64MiB\n"))
	got = tuneLine{}
	testkit.Must(t, json.Unmarshal([]byte(out), &got))
	if got.Helps || got.Line != nil || got.Recordings[0].Best != nil || got.HeldBack == nil ||
		got.Recordings[0].Recorded.AtNeeded.LaterPercent != nil {
		t.Errorf("where nothing helps: %s", out)
	}
}

// A file that cannot be used is reported, and the others are tuned.
func TestTuneGoesOnWithoutAFile(t *testing.T) {
	script := file(t, "x.script", fragmented)
	got := ashlar(t, nil, "tune", "--tries", "6", "no/such", script)
	if got.code != exitInput || !strings.Contains(got.err, "no/such: no such file") ||
		!strings.Contains(got.out, "needs 70.00MiB (39 %) less memory") {
		t.Errorf("exit code %d, %s, %s", got.code, got.err, got.out)
	}
	if got := ashlar(t, nil, "tune", "no/such"); got.code != exitInput || got.out != "" {
		t.Errorf("without a recording: exit code %d, %s", got.code, got.out)
	}
	trace, err := os.ReadFile(sample("streams"))
	testkit.Must(t, err)
	got = ashlar(t, trace, "tune", "--tries", "1", "-")
	if got.code != exitOK || !strings.Contains(got.out, "standard input") {
		t.Errorf("from standard input: exit code %d, %s%s", got.code, got.out, got.err)
	}
}

func TestTuneFlags(t *testing.T) {
	script := file(t, "x.script", fragmented)
	for text, want := range map[string]tune.Budget{
		"1%": {Part: 0.01}, "0.25 %": {Part: 0.0025}, "100%": {Part: 1}, "20ms": {Time: 20 * time.Millisecond},
	} {
		var b budget
		if err := b.UnmarshalText([]byte(text)); err != nil || tune.Budget(b) != want {
			t.Errorf("%s: %+v, %v", text, b, err)
		}
	}
	for _, c := range []struct{ flag, says string }{
		{"--budget=0%", "more than 0 and at most 100"},
		{"--budget=101%", "more than 0 and at most 100"},
		{"--budget=NaN%", "more than 0 and at most 100"},
		{"--budget=-1ms", "want a part of the recorded time, such as 1%, or a duration, such as 20ms"},
		{"--budget=1", "want a part of the recorded time"},
		{"--tries=0", "--tries 0: want 1 to 100000"},
		{"--tries=100001", "want 1 to 100000"},
		{"--limit=0", "want 1 byte to"},
		{"--keep=none:1", `--keep "none:1": caching: settings, at 0: unknown key "none"`},
		{"--keep=expandable_segments=True", "write expandable_segments:True, with a colon"},
	} {
		got := ashlar(t, nil, "tune", c.flag, script)
		if text := strings.Join(strings.Fields(got.err), " "); got.code != exitUsage || !strings.Contains(text, c.says) {
			t.Errorf("%s: exit code %d, want %q in %s", c.flag, got.code, c.says, got.err)
		}
	}
}

// Settings of keys that are not varied stay in the line to paste if all recordings have them, unless the user gives
// others; limits of them do not bound the replays.
func TestTuneKeepsSettings(t *testing.T) {
	recorded := func(conf ...string) (in []*input) {
		for _, c := range conf {
			in = append(in, &input{snapshot: &snapshot.Snapshot{Settings: snapshot.Settings{Conf: c}}})
		}
		return in
	}
	for name, c := range map[string]struct {
		in           []*input
		own          string
		line, search string
	}{
		"other keys": {
			recorded("max_split_size_mb:64, release_lock_on_cudamalloc:True,roundup_power2_divisions:[256:1,>:4]"), "",
			"release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc:True",
		},
		"a limit":                  {recorded("per_process_memory_fraction:0.5"), "", "per_process_memory_fraction:0.5", ""},
		"a key of a newer PyTorch": {recorded("new_key:1"), "", "new_key:1", ""},
		"of one recording alone":   {recorded("release_lock_on_cudamalloc:True", ""), "", "", ""},
		"of all recordings": {
			recorded("release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc:True"), "",
			"release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc:True",
		},
		"the user's": {
			recorded("release_lock_on_cudamalloc:True"), "release_lock_on_cudamalloc:False,max_split_size_mb:99",
			"release_lock_on_cudamalloc:False,max_split_size_mb:99", "release_lock_on_cudamalloc:False,max_split_size_mb:99",
		},
		"a script": {[]*input{{}}, "", "", ""},
	} {
		got := &tuning{inputs: c.in}
		got.keepSettings(c.own)
		if got.prefix != c.line || got.opts.Keep != c.search {
			t.Errorf("%s: %q in the line, %q in the search", name, got.prefix, got.opts.Keep)
		}
	}
	lines := &tuning{Result: &tune.Result{Best: &tune.Trial{}}}
	for settings, want := range map[string]string{
		"": "unset PYTORCH_CUDA_ALLOC_CONF", "a:1": "export PYTORCH_CUDA_ALLOC_CONF=a:1",
		"a:[1:2,>:3]": "export PYTORCH_CUDA_ALLOC_CONF='a:[1:2,>:3]'",
	} {
		lines.Best.Settings = settings
		if got := lines.line(); got != want {
			t.Errorf("the line is %q, want %q", got, want)
		}
	}
}

// Recordings are told apart: by their files, their paths, or their devices.
func TestTuneNamesRecordings(t *testing.T) {
	a, b, c := &input{path: "rank0/run.pickle"}, &input{path: "rank1/run.pickle"}, &input{path: "other.pickle"}
	got := &tuning{inputs: []*input{a, b, c, c}}
	got.nameWorks([]*replay.Work{{}, {}, {}, {Device: 1}})
	want := []string{"rank0/run.pickle", "rank1/run.pickle", "other, device 0", "other, device 1"}
	if !slices.Equal(got.names, want) {
		t.Errorf("names %q, want %q", got.names, want)
	}
}
