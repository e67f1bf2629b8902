package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
)

func TestPlotHelp(t *testing.T) {
	golden.File(t, "testdata/help-plot.txt", ok(t, "plot", "--help"))
}

// The format is that of the name or of --format, and the picture has what was asked for.
func TestPlot(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		has  string // in an SVG
	}{
		{"a.svg", []string{sample("unet.stacks")}, "train.py:80 forward"},
		{"category.svg", []string{"--by", "category", "--at", "3s", sample("unet.stacks")}, "At 3s: "},
		{"steps.svg", []string{"--from", "step:4", "--to", "step:6", sample("unet.stacks")}, "At the peak, 4.629s: 4.97 GiB requested"},
		{"events.svg", []string{"--axis", "events", sample("gpt2")}, "event of the recording"},
		{"oom.svg", []string{"--at", "oom", sample("gpt2.oom")}, "A request of 2.26 GiB failed."},
		{"map.svg", []string{"--kind", "addresses", sample("streams")}, "separate ranges"},
		{"two.svg", []string{sample("streams"), sample("resnet")}, ">resnet</text>"},
		{"compare.svg", []string{"--kind", "compare", "-a", "caching", "-a", "arena", sample("streams")}, "PyTorch, as recorded"},
		{"limit.svg", []string{"--kind", "compare", "--limit", "600MiB", sample("streams")}, "592.00 MiB, fails"},
		{"script.svg", []string{"--kind", "compare", "--smallest", "testdata/compaction.script"}, "completes within"},
		{"a.png", []string{sample("streams")}, ""},
		{"B.PNG", []string{"--dark", sample("streams")}, ""},
		{"c", []string{"--format", "png", sample("streams")}, ""},
	} {
		path := filepath.Join(dir, c.name)
		if said := ok(t, append([]string{"plot", "-o", path}, c.args...)...); said != "" {
			t.Errorf("%s: %q on standard output", c.name, said)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.has == "" {
			if m, err := png.Decode(bytes.NewReader(b)); err != nil || m.Bounds().Dx() < 1000 {
				t.Errorf("%s is no picture: %v", c.name, err)
			}
			continue
		}
		if !strings.HasPrefix(string(b), "<svg ") || !strings.Contains(string(b), c.has) {
			t.Errorf("%s: %q is not in it", c.name, c.has)
		}
	}
}

func TestPlotErrors(t *testing.T) {
	to := filepath.Join(t.TempDir(), "x.svg")
	final := file(t, "final.pickle", emptyHistory())
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{sample("streams")}, exitUsage, "--output"},
		{[]string{"-o", "x.gif", sample("streams")}, exitUsage, "want a name that ends in .svg or .png"},
		{[]string{"-o", to, "--kind", "pie", sample("streams")}, exitUsage, "pie"},
		{[]string{"-o", to, "--kind", "compare", "--at", "peak", sample("streams")}, exitUsage, "--at: compare shows no moments"},
		{[]string{"-o", to, "--kind", "compare", "--frames", "all", sample("streams")}, exitUsage, "--frames: compare shows no moments"},
		{[]string{"-o", to, "--smallest", sample("streams")}, exitUsage, "--smallest: only with --kind compare"},
		{[]string{"-o", to, "--kind", "compare", "-a", "jemalloc", sample("streams")}, exitUsage, "jemalloc"},
		{[]string{"-o", to, "--at", "oom", sample("streams")}, exitInput, "no request failed"},
		{[]string{"-o", to, "testdata/compaction.script"}, exitInput, "use --kind compare"},
		{[]string{"-o", to, final}, exitInput, "no allocation history"},
		{[]string{"-o", to, sample("streams"), "no/such.pickle"}, exitInput, "no such file"},
	} {
		got := ashlar(t, nil, append([]string{"plot"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.err, c.err) || got.out != "" {
			t.Errorf("%q: exit code %d, %s", c.args, got.code, got.err)
		}
		if _, err := os.Stat(to); err == nil {
			t.Fatalf("%q: there is a picture", c.args)
		}
	}
}
