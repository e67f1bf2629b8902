package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Info with a moment prints who holds the memory then. It fits 80 columns.
func TestInfoOfAMoment(t *testing.T) {
	for name, args := range map[string][]string{
		"info-peak":      {"info", "--at", "peak", sample("unet.stacks")},
		"info-libraries": {"info", "--at", "step:3", "--frames", "libraries", "--top", "5", sample("resnet.stacks")},
		"info-stack":     {"info", "--by", "stack", sample("unet.stacks")},
		"info-two":       {"info", "--by", "stream,pool", sample("unet.stacks"), sample("streams")},
	} {
		got := ashlar(t, nil, args...)
		if got.code != exitOK || got.err != "" {
			t.Errorf("%s: exit code %d: %s", name, got.code, got.err)
		}
		golden.File(t, "testdata/"+name+".txt", got.out)
	}
}

// The lines of info --json add up to the requested peak, of every trace.
func TestInfoOfAMomentAsJSON(t *testing.T) {
	out := ok(t, "info", "--json", "--by", "line", "--by", "category", sample("unet.stacks"), sample("gpt2"))
	peaks := []int64{8442335024, 19210829128}
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var held heldMemory
		testkit.Must(t, json.Unmarshal([]byte(line), &held))
		testkit.Equal(t, "moment", held.Moment, "the peak")
		testkit.Equal(t, "requested", held.Bytes, peaks[i])
		testkit.Equal(t, "by", strings.Join(held.By, " "), "line category")
		var bytes int64
		blocks := 0
		for _, x := range held.Holders {
			bytes += x.Bytes
			blocks += x.Blocks
			testkit.Equal(t, "values", len(x.Values), 2)
		}
		testkit.Equal(t, "sum of bytes", bytes, peaks[i])
		testkit.Equal(t, "sum of blocks", blocks, held.Blocks)
		peaks[i] = 0
	}
	testkit.Equal(t, "lines", peaks[0]+peaks[1], 0)
	held := ok(t, "info", "--json", "--at", "end", sample("unet.stacks"))
	testkit.Contains(t, held, `"by":["line"]`, `"holders":[]`)
}

func TestInfoOfAMomentErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"info", "--at", "oom", sample("streams")}, exitInput, `no request failed in the recording`},
		{[]string{"info", "--at", "sometime", sample("streams")}, exitUsage, "want peak, oom"},
		{[]string{"info", "--at", "step:99", sample("unet")}, exitInput, "steps 1 to 12"},
		{[]string{"info", "--by", "size", sample("streams")}, exitUsage, "--by"},
		{[]string{"info", "--by", "line", "--top", "-1", sample("streams")}, exitUsage, "--top"},
		{[]string{"info", "--by", "line", "--frames", "mine", sample("streams")}, exitUsage, "--frames"},
		{[]string{"info", "--by", "line", file(t, "empty.pickle", "\x80\x04}\x8c\x08segments]s.")}, exitInput, "no allocation history"},
	} {
		got := ashlar(t, nil, c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.err) || got.out != "" {
			t.Errorf("%q: exit code %d, %s%s", c.args, got.code, got.err, got.out)
		}
	}
}
