package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every command returns the same exit code for the same mistake: 2 for wrong usage, 3 for a file or a device that
// cannot be used, 4 for work that does not fit.
func TestDefect24_ExitCodesAreThoseOfTheTable(t *testing.T) {
	script, table, plan := file(t, "x.script", "alloc a 64MiB\n"), file(t, "x.csv", noneAtTheBound), file(t, "x.plan", "no plan\n")
	tensors, model := checkpoints+"metadata.safetensors", file(t, "x.json", "no model")
	out := func() string { return filepath.Join(t.TempDir(), "out") }
	for _, c := range []struct {
		code int
		says string
		args [][]string
	}{
		{exitUsage, "no such driver", [][]string{
			{"bench", "driver", "--device", "none"},
			{"tensors", "--device", "none", tensors},
			{"plan", "-o", out(), "--device", "none", script},
		}},
		{exitUsage, `"none"`, [][]string{
			{"replay", "--device", "none", script},
			{"verify", "--device", "none", sample("streams")},
			{"doctor", "none"},
			{"export", "--to", "none", sample("streams")},
			{"replay", "-a", "none", script},
			{"completion", "none"},
		}},
		{exitUsage, "unknown setting \"none\"", [][]string{
			{"bench", "driver", "--device", "host:none=1"},
			{"tensors", "--device", "host:none=1", tensors},
			{"plan", "-o", out(), "--device", "host:none=1", script},
			{"replay", "--device", "host:none=1", script},
			{"verify", "--device", "host:none=1", sample("streams")},
		}},
		{exitUsage, "the file exists", [][]string{
			{"export", "--to", "json", "-o", plan, sample("streams")},
			{"pack", "-o", plan, table},
			{"plan", "-o", plan, script},
			{"bench", "driver", "--device", benchSpec, "-o", plan},
		}},
		{exitInput, "no/such: no such file or directory", [][]string{
			{"info", "no/such"},
			{"replay", "no/such"},
			{"tune", "no/such"},
			{"verify", "no/such"},
			{"export", "--to", "json", "no/such"},
			{"tensors", "no/such"},
			{"pack", "no/such"},
			{"plan", "-o", out(), "no/such"},
			{"bench", "driver", "--device", "sim:cost=no/such"},
			{"tensors", "--device", "sim:cost=no/such", tensors},
			{"plan", "--device", "sim:cost=no/such", "-o", out(), script},
			{"replay", "-a", "planned:no/such", script},
		}},
		{exitInput, plan + ": ", [][]string{
			{"info", plan},
			{"replay", plan},
			{"tune", plan},
			{"verify", plan},
			{"export", "--to", "json", plan},
			{"tensors", plan},
			{"pack", plan},
			{"plan", "-o", out(), plan},
			{"replay", "-a", "planned:" + plan, script},
		}},
		{exitInput, model + ": ", [][]string{
			{"bench", "driver", "--device", "sim:cost=" + model}, {"tensors", "--device", "sim:cost=" + model, tensors},
		}},
		{exitInput, "no card", [][]string{
			{"bench", "driver", "--device", "broken:0"},
			{"tensors", "--device", "broken:0", tensors},
			{"plan", "-o", out(), "--device", "broken:0", script},
			{"replay", "--device", "broken:0", script},
			{"verify", "--device", "broken:0", sample("streams")},
		}},
		{exitNoRoom, "", [][]string{
			{"replay", "--limit", "32MiB", script},
			{"tune", "--limit", "32MiB", script},
			{"tune", "--json", "--capacity", "32MiB", script},
			{"replay", "--json", "--capacity", "32MiB", "-a", "direct", script},
			{"replay", "--markdown", "--limit", "32MiB", script, "testdata/compaction.script"},
			{"replay", "--device", "host", "--capacity", "32MiB", script},
			{"verify", "--device", "host:total=1MiB", sample("streams")},
			{"tensors", "--device", "host:total=1", tensors},
			{"tensors", "--device", "host:total=1", tensors, "no/such"},
		}},
		{exitOK, "", [][]string{
			{"replay", "--limit", "64MiB", "-a", "direct", "-a", "caching:expandable_segments:True", script},
			{"replay", "--limit", "60MiB", "-a", "caching", "-a", "arena", "testdata/compaction.script"}, // one row completes
		}},
	} {
		for _, args := range c.args {
			got := ashlar(t, nil, args...)
			if text := strings.Join(strings.Fields(got.err), " "); got.code != c.code || !strings.Contains(text, c.says) {
				t.Errorf("%q: exit code %d, want %d, and %q in %s", args, got.code, c.code, c.says, got.err)
			}
		}
	}
	help := strings.Join(strings.Fields(ok(t, "--help")), " ")
	for _, line := range []string{
		"0 success", "1 verify found a difference", "2 wrong usage", "3 a file or a device cannot be used", "4 out of memory",
		"130, 143 ended by SIGINT or SIGTERM",
	} {
		if !strings.Contains(help, line) {
			t.Errorf("--help lacks %q", line)
		}
	}
}

// The error for settings with an equals sign in place of a colon, or the other way round, shows the right form.
func TestDefect24_SettingsWithTheWrongSignGetAHint(t *testing.T) {
	script := file(t, "x.script", "alloc a 64MiB\n")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"write max_split_size_mb:128, with a colon", []string{"replay", "-a", "caching:max_split_size_mb=128", script}},
		{"write expandable_segments:True, with a colon", []string{"verify", "--settings", "expandable_segments=True", sample("streams")}},
		{"write roundup_power2_divisions:, with a colon", []string{"replay", "-a", "caching:roundup_power2_divisions=[256:1]", script}},
		{"write round=1MiB, with an equals sign", []string{"replay", "-a", "arena:round:1MiB", script}},
		{"write session=on, with an equals sign", []string{"replay", "-a", "direct:limit=1GiB,session: on", script}},
		{"write keep=1GiB, with an equals sign", []string{"replay", "-a", "paged:keep:1GiB", script}},
		{"write initial=1MiB, with an equals sign", []string{"replay", "-a", "bfc:initial:1MiB", script}},
		{"write total=1GiB, with an equals sign", []string{"bench", "driver", "--device", "sim:total:1GiB"}},
		{"write total=1GiB, with an equals sign", []string{"bench", "driver", "--device", "host:total:1GiB"}},
	} {
		got := ashlar(t, nil, c.args...)
		if got.code != exitUsage || !strings.Contains(got.err, c.want) || strings.Contains(got.err, "known are") {
			t.Errorf("%q: exit code %d, want %q in %s", c.args, got.code, c.want, got.err)
		}
	}
	for _, args := range [][]string{{"replay", "-a", "caching:none=1", script}, {"replay", "-a", "arena:none:1", script}, {"bench", "driver", "--device", "sim:none:1"}} {
		if got := ashlar(t, nil, args...); got.code != exitUsage || strings.Contains(got.err, "write none") {
			t.Errorf("%q: exit code %d, %s", args, got.code, got.err)
		}
	}
}
