package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
)

// cause is a recording whose cause is known.
func cause(name string) string { return "../../diagnose/testdata/" + name + ".pickle.zst" }

// The text output equals the reviewed golden files, and fits in 80 columns.
func TestDiffOutput(t *testing.T) {
	for name, args := range map[string][]string{
		"diff-leak":  {"diff", cause("none"), cause("leak")},
		"diff-ranks": {"diff", "--at", "step:5", "--by", "module", cause("rank0"), cause("rank1"), cause("rank2")},
		"diff-top":   {"diff", "--top", "3", sample("resnet.stacks"), sample("unet.stacks")},
		"help-diff":  {"diff", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			out := ok(t, args...)
			golden.File(t, "testdata/"+name+".txt", out)
			for line := range strings.Lines(out) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > holdersWidth {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

func comparisons(t *testing.T, out string) []comparison {
	t.Helper()
	var all []comparison
	for line := range strings.Lines(out) {
		var x comparison
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, x)
	}
	return all
}

// The changes add up, and the program's own truth is found: the leak keeps 16 MiB a step at one line.
func TestDiffJSON(t *testing.T) {
	all := comparisons(t, ok(t, "diff", "--json", cause("none"), cause("leak"), cause("rank2"), cause("none")))
	if len(all) != 3 {
		t.Fatalf("%d comparisons", len(all))
	}
	for _, x := range all {
		sum := int64(0)
		for _, c := range x.Changes {
			sum += c.Bytes[1] - c.Bytes[0]
		}
		if sum != x.Change || x.Change != x.Requested[1]-x.Requested[0] || x.Before != cause("none") {
			t.Errorf("the changes add up to %d: %+v", sum, x)
		}
	}
	leak := all[0].Changes[0]
	if leak.Values[0] != "record_causes.py:85 <lambda>" || leak.Bytes[0] != 0 || leak.Bytes[1] != 13*16<<20 ||
		leak.Blocks[1] != 13 || len(all[0].Steps) != 12 {
		t.Errorf("%+v", all[0])
	}
	same := all[2]
	if same.Change != 0 || same.Changes[0].Bytes[0] != same.Changes[0].Bytes[1] {
		t.Errorf("%+v", same)
	}
}

// A recording without steps and stacks can be compared; so can one from standard input.
func TestDiffOfPlainRecordings(t *testing.T) {
	out := ok(t, "diff", sample("streams"), sample("streams.expandable"))
	has(t, out, "requested at the peak, as before.", "Nothing changed.")
	data, err := os.ReadFile(cause("rank2"))
	if err != nil {
		t.Fatal(err)
	}
	got := ashlar(t, data, "diff", cause("rank0"), "-")
	if got.code != exitOK || got.err != "" {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	has(t, got.out, "standard input against rank0: 256.00MiB more (106 %)")
}

func TestDiffExitCodes(t *testing.T) {
	none, leak := cause("none"), cause("leak")
	script := file(t, "a.script", "alloc a 512\n")
	for _, c := range []struct {
		args []string
		code int
		text string // in the output or the error
	}{
		{[]string{"--max-growth", "46%", none, leak}, exitDiffers, "111.98MiB more"},
		{[]string{"--max-growth", "47%", none, leak}, exitOK, "111.98MiB more"},
		{[]string{"--max-growth", "112MiB", none, leak}, exitOK, "111.98MiB more"},
		{[]string{"--max-growth", "0", leak, none}, exitOK, "111.98MiB less"},
		{[]string{"--max-growth", "100MiB", none, none, leak}, exitDiffers, "as before"},
		{[]string{"--max-growth=-1%", none, leak}, exitUsage, "at least 0 before the %"},
		{[]string{"--by", "color", none, leak}, exitUsage, "--by"},
		{[]string{none}, exitUsage, "the argument <after> is missing"},
		{[]string{"-", "-"}, exitUsage, "standard input (-) can be read once, and is given twice"},
		{[]string{"--at", "oom", none, leak}, exitInput, "no request failed in the recording"},
		{[]string{"--at", "step:99", none, leak}, exitInput, "the recording has the steps 1 to 12"},
		{[]string{none, "nothing.pickle", leak}, exitInput, "111.98MiB more"},
		{[]string{none, script}, exitInput, "diff reads memory snapshots, not scripts"},
	} {
		got := ashlar(t, nil, append([]string{"diff"}, c.args...)...)
		if got.code != c.code || !strings.Contains(strings.Join(strings.Fields(got.out+got.err), " "), c.text) {
			t.Errorf("%q: exit code %d, %s%s\nwant %d and %q", c.args, got.code, got.out, got.err, c.code, c.text)
		}
	}
}
