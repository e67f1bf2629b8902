package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// knownCause is the path of a recording with a known cause.
func knownCause(name string) string { return "../../diagnose/testdata/" + name + ".pickle.zst" }

func knownCauses(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(knownCause("*"))
	if err != nil || len(all) < 10 {
		t.Fatal(all, err)
	}
	return all
}

// The text equals the reviewed golden files.
func TestExplainOutput(t *testing.T) {
	for name, args := range map[string][]string{
		"help-explain":          {"explain", "--help"},
		"explain-limit":         {"explain", "--limit", "18.2GiB", sample("gpt2.oom")},
		"explain-stacks":        {"explain", sample("unet.stacks")},
		"explain-fragmentation": {"explain", "--at", "oom", knownCause("fragmentation")},
		"explain-leak":          {"explain", knownCause("leak.limit")},
		"explain-others":        {"explain", "--memory", "139.8GiB", knownCause("other_processes")},
		"explain-pools":         {"explain", knownCause("private_pools.graphs")},
		"explain-frames":        {"explain", "--frames", "all", knownCause("limit")},
		"explain-ranks": {
			"explain", knownCause("rank0"), knownCause("rank1"), knownCause("rank2"), knownCause("rank3"),
		},
		"explain-failed-ranks": {"explain", knownCause("rank0"), knownCause("limit"), knownCause("too_much")},
	} {
		t.Run(name, func(t *testing.T) { golden.File(t, "testdata/"+name+".txt", ok(t, args...)) })
	}
}

// The output fits 80 columns, for one trace and for many.
func TestExplainFitsTheWidth(t *testing.T) {
	all := append(knownCauses(t), sample("unet.stacks"), sample("gpt2.oom"))
	out := ok(t, append([]string{"explain"}, all...)...)
	for _, path := range all {
		out += ok(t, "explain", path)
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > holdersWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// There is one object for each recording, with the promised keys.
func TestExplainJSON(t *testing.T) {
	causes := []string{
		"limit", "too_much", "fragmentation", "leak", "cached", "private_pools", "other_processes", "setting", "none",
	}
	all := knownCauses(t)
	lines := strings.Split(strings.TrimSpace(ok(t, append([]string{"explain", "--json"}, all...)...)), "\n")
	testkit.Equal(t, "objects", len(lines), len(all))
	for i, line := range lines {
		var got struct {
			Trace         string
			Verdict       []string
			Sure          []string
			LimitBytes    *int64 `json:"limit_bytes"`
			RequestedPeak int64  `json:"requested_peak"`
			Needed        map[string]int64
			Holders       []struct {
				Frame, Category string
				Bytes           int64
				Blocks          int
			}
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		testkit.Equal(t, "trace", got.Trace, all[i])
		if len(got.Verdict) == 0 || len(got.Sure) != len(got.Verdict) || !slices.Contains(causes, got.Verdict[0]) {
			t.Errorf("%s: verdict %q, sure %q", all[i], got.Verdict, got.Sure)
		}
		name := strings.TrimSuffix(filepath.Base(all[i]), ".pickle.zst")
		limited := []string{
			"cached", "fragmentation", "leak.limit", "limit", "private_pools.graphs", "private_pools.mempool",
			"setting.roundup",
		}
		testkit.Equal(t, name+": there is a limit", got.LimitBytes != nil, slices.Contains(limited, name))
		if got.Needed["as recorded"] < got.RequestedPeak || got.Needed["expandable_segments:True"] == 0 {
			t.Errorf("%s: needed %v for a peak of %d", all[i], got.Needed, got.RequestedPeak)
		}
		var held int64
		for n, h := range got.Holders {
			held += h.Bytes
			if n > 0 && h.Bytes > got.Holders[n-1].Bytes || h.Frame == "" || h.Category == "" || h.Blocks < 1 {
				t.Errorf("%s: holder %d: %+v", all[i], n, h)
			}
		}
		testkit.Equal(t, "bytes of the holders", held, got.RequestedPeak)
	}
}

// What cannot be explained is an error with a remedy, and the other traces are still explained.
func TestExplainRefuses(t *testing.T) {
	script := file(t, "x.script", "alloc a 300MiB\n")
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{script}, exitInput, "explain reads memory snapshots, not scripts"},
		{[]string{"--at", "noon", knownCause("limit")}, exitUsage, "want peak, oom"},
		{[]string{"--at", "oom", knownCause("none")}, exitInput, `"peak" shows the moment`},
		{[]string{"--limit", "1MiB", knownCause("limit")}, exitInput, "the recorded run reserved"},
		{[]string{"--frames", "none", knownCause("limit")}, exitUsage, "--frames"},
	} {
		got := ashlar(t, nil, append([]string{"explain"}, c.args...)...)
		testkit.Equal(t, "exit code of "+strings.Join(c.args, " "), got.code, c.code)
		has(t, got.err, c.text)
	}
	got := ashlar(t, nil, "explain", script, knownCause("limit"))
	testkit.Equal(t, "exit code", got.code, exitInput)
	has(t, got.out, "Your limit of 1018 to 1137 MiB was reached")
}
