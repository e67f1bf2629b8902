package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/fit/pack"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const packings = "../../fit/pack/testdata/"

// noneAtTheBound has a bound of 9, and no packing lower than 10.
const noneAtTheBound = "id,lower,upper,size\na,4,8,3\nb,7,11,3\nc,1,3,3\nd,3,6,1\ne,1,4,2\nf,5,11,3\ng,2,7,2\nh,2,5,2\ni,3,5,1\n"

// The text output equals the reviewed golden files. All of these commands end by themselves, long before their time is
// up.
func TestPackOutput(t *testing.T) {
	hard := file(t, "hard.csv", noneAtTheBound)
	for name, args := range map[string][]string{
		"pack": {
			"pack", packings + "A.1048576.csv", packings + "B.1048576.csv", packings + "C.1048576.csv", packings + "resnet50.csv", hard,
			sample("streams"), sample("gpt2"), sample("unet"),
		},
		"pack-quick": {"pack", "--time", "0s", packings + "D.1048576.csv", sample("resnet")},
		"help-pack":  {"pack", "--help"},
	} {
		t.Run(name, func(t *testing.T) { golden.File(t, "testdata/"+name+".txt", ok(t, args...)) })
	}
}

func packLines(t *testing.T, out string) []packLine {
	t.Helper()
	var lines []packLine
	for line := range strings.Lines(out) {
		var l packLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestPackJSON(t *testing.T) {
	lines := packLines(t, ok(t, "pack", "--json", packings+"A.1048576.csv", file(t, "hard.CSV", noneAtTheBound), file(t, "none.csv", "id,lower,upper,size\n")))
	want := []packLine{
		{"A.1048576", 154, 1048576, 1048576, 1048576, 1, 0, 0.001, "bound reached"},
		{"hard", 9, 9, 10, 10, 10.0 / 9, 0, 0.001, "optimal"},
		{"none", 0, 0, 0, 0, 1, 0, 0.001, "bound reached"},
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%+v, want %+v", lines, want)
	}
	l := packLines(t, ok(t, "pack", "--json", "--time", "0s", packings+"D.1048576.csv"))[0]
	if l.Proved != "best so far" || l.Least != 986112 || l.Ratio != l.Gap+1 || l.Ratio < 1.2 {
		t.Errorf("%+v", l)
	}
}

// What -o writes is a solution of the instance, and an instance itself: of a trace, too, which so becomes one.
func TestPackWritesAPacking(t *testing.T) {
	dir := t.TempDir()
	solved, again := filepath.Join(dir, "solved.csv"), filepath.Join(dir, "again.csv")
	for _, c := range []struct {
		path, align string
		bound       int64
	}{{packings + "A.1048576.csv", "1", 1048576}, {sample("streams"), "512", 693348864}, {sample("streams"), "1", 693346392}} {
		ok(t, "pack", "--align", c.align, "--force", "-o", solved, c.path)
		f, err := os.Open(solved)
		if err != nil {
			t.Fatal(err)
		}
		buffers, offsets, err := pack.ReadCSV(f)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if height, err := pack.Validate(buffers, offsets); err != nil || height != c.bound || pack.Bound(buffers) != c.bound {
			t.Errorf("%s: height %d, %v, want %d", c.path, height, err, c.bound)
		}
		if c.align == "512" && slices.ContainsFunc(offsets, func(at int64) bool { return at%512 != 0 }) {
			t.Errorf("%s: offsets are no multiples of %s", c.path, c.align)
		}
		if l := packLines(t, ok(t, "pack", "--json", "--force", "-o", again, solved))[0]; l.Height != c.bound || l.Buffers != len(buffers) {
			t.Errorf("%s, read again: %+v", c.path, l)
		}
	}
}

func TestPackReadsStandardInputAndScripts(t *testing.T) {
	const script = "alloc a 1KiB\nalloc b 512\nfree a\nalloc c 1KiB\nfree b\nalloc d 512\n"
	for name, stdin := range map[string]string{"CSV": noneAtTheBound, "no trace": "alloc a 1\n"} {
		got := ashlar(t, []byte(stdin), "pack", "-")
		if (name == "CSV") != (got.code == exitOK && strings.Contains(got.out, "optimal")) {
			t.Errorf("%s: exit code %d, %s%s", name, got.code, got.out, got.err)
		}
	}
	// The name of a file, in a trace that is no table.
	var content bytes.Buffer
	named := &snapshot.Snapshot{OutOfMemory: &snapshot.OutOfMemory{Text: "torch/_inductor/lowering.py"}}
	if err := named.WritePickle(&content); err != nil || !strings.Contains(strings.SplitN(content.String(), "\n", 2)[0], "lower") {
		t.Fatalf("%q, %v", content.String(), err)
	}
	if got := ashlar(t, content.Bytes(), "pack", "-"); !strings.Contains(got.err, "no allocation history") {
		t.Errorf("exit code %d, %s", got.code, got.err)
	}
	if got := ashlar(t, []byte("\ufeff\"lower\", upper,size, id\r\n0,1,1,a\r\n"), "pack", "-"); got.code != exitOK || !strings.Contains(got.out, "bound reached") {
		t.Errorf("a table from a spreadsheet: exit code %d, %s%s", got.code, got.out, got.err)
	}
	if l := packLines(t, ok(t, "pack", "--json", file(t, "x.script", script)))[0]; l.Instance != "x" || l.Buffers != 4 || l.Height != 1536 {
		t.Errorf("%+v", l)
	}
}

// A block is taken until nothing uses it any more; an attempt that failed, and a request for nothing, take nothing.
func TestBlocksLiveFromTheirRequestToTheLastUse(t *testing.T) {
	p := &trace.Program{Blocks: 4, Streams: 1, Ops: []trace.Op{
		{Kind: trace.OpAlloc, Block: 0, Size: 513},
		{Kind: trace.OpAlloc, Block: 1, Size: 1},
		{Kind: trace.OpTry, Size: 1 << 40},
		{Kind: trace.OpFreeDeferred, Block: 0},
		{Kind: trace.OpAlloc, Block: 2, Size: 0},
		{Kind: trace.OpFree, Block: 2},
		{Kind: trace.OpComplete, Block: 0},
		{Kind: trace.OpAlloc, Block: 3, Size: 512},
		{Kind: trace.OpFree, Block: 1},
	}}
	got, err := buffersOf(p, 512)
	want := []pack.Buffer{
		{ID: "0", Lower: 0, Upper: 6, Size: 1024}, {ID: "1", Lower: 1, Upper: 8, Size: 512}, {ID: "3", Lower: 7, Upper: 9, Size: 512},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	p.Ops[0].Size = math.MaxInt64
	if _, err := buffersOf(p, 512); err == nil || !strings.Contains(err.Error(), "block 0") {
		t.Errorf("a size that cannot be rounded up: %v", err)
	}
}

func TestPackErrors(t *testing.T) {
	good := file(t, "good.csv", noneAtTheBound)
	bad := file(t, "bad.csv", "id,lower,upper,size\na,0,1,1\nb,5,5,1\n")
	large := file(t, "large.csv", "id,lower,upper,size\na,0,1,9223372036854775807\nb,5,6,1\n")
	for name, c := range map[string]struct {
		args []string
		code int
		err  string
	}{
		"no file":         {nil, exitUsage, "<file>"},
		"missing":         {[]string{"no/such.csv"}, exitInput, "ashlar: no/such.csv: no such file"},
		"missing trace":   {[]string{"no/such.pickle"}, exitInput, "ashlar: no/such.pickle: no such file"},
		"bad":             {[]string{bad}, exitInput, `bad.csv: pack: line 3, column 5: buffer "b": lifetime [5,5) is empty`},
		"bad among good":  {[]string{bad, good}, exitInput, "bad.csv: pack: line 3"},
		"too large":       {[]string{large}, exitInput, "large.csv: pack: the sizes add up"},
		"no trace":        {[]string{file(t, "x.pickle", "no")}, exitInput, "x.pickle: "},
		"time":            {[]string{"--time=-1s", good}, exitUsage, "--time -1s"},
		"align":           {[]string{"--align", "0", good}, exitUsage, "--align"},
		"output of two":   {[]string{"-o", "x", good, good}, exitUsage, "-o takes one instance"},
		"output nowhere":  {[]string{"-o", filepath.Join(t.TempDir(), "no", "x"), good}, exitInput, "cannot be written: no such file"},
		"no such setting": {[]string{"--steps", "1", good}, exitUsage, "--steps"},
	} {
		got := ashlar(t, nil, append([]string{"pack"}, c.args...)...)
		if got.code != c.code || !strings.Contains(strings.Join(strings.Fields(got.err), " "), c.err) {
			t.Errorf("%s: exit code %d, %s", name, got.code, got.err)
		}
		if (name == "bad among good") != strings.Contains(got.out, "optimal") {
			t.Errorf("%s: printed %q", name, got.out)
		}
	}
}

// Traces put together are instances of tens of thousands of buffers: one after the other, or all at once, spread over the time of the
// longest. They come within 0.5 % of their bound. BenchmarkPackTogether says how long that takes, within a minute.
func TestPackTracesTogether(t *testing.T) {
	for name, buffers := range together(t) {
		if name == "at once" {
			continue // takes seconds: for the benchmark
		}
		r, err := pack.Pack(t.Context(), buffers, pack.Options{Steps: 200})
		if err != nil {
			t.Fatal(err)
		}
		if height, err := pack.Validate(buffers, r.Offsets); err != nil || height != r.Height {
			t.Fatalf("%s: height %d, %v", name, height, err)
		}
		if over := float64(r.Height) / float64(r.Bound); len(buffers) < 18_000 || over > 1.005 {
			t.Errorf("%s: %d buffers, %.5f times the bound", name, len(buffers), over)
		}
	}
}

func BenchmarkPackTogether(b *testing.B) {
	for name, buffers := range together(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				r, err := pack.Pack(ctx, buffers, pack.Options{Steps: -1})
				cancel()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(buffers)), "buffers")
				b.ReportMetric(float64(r.Height)/float64(r.Bound), "of-the-bound")
			}
		})
	}
}

// together are the recorded traces in one.
func together(t testing.TB) map[string][]pack.Buffer {
	t.Helper()
	parts := map[string][]pack.Buffer{}
	for _, name := range []string{"gpt2", "resnet", "streams", "unet"} {
		in, err := readInstances(sample(name), nil, newProgress(io.Discard, ""), 512)
		if err != nil {
			t.Fatal(err)
		}
		parts[name] = in[0].buffers
	}
	const span = 1 << 20
	end := func(buffers []pack.Buffer) (end int64) {
		for _, b := range buffers {
			end = max(end, b.Upper)
		}
		return end
	}
	var all, some, sequence []pack.Buffer
	var from int64
	for _, name := range []string{"gpt2", "resnet", "streams", "unet"} {
		last := end(parts[name])
		for _, b := range parts[name] {
			sequence = append(sequence, pack.Buffer{Lower: from + b.Lower, Upper: from + b.Upper, Size: b.Size})
			spread := pack.Buffer{Lower: b.Lower * span / last, Upper: b.Upper*span/last + 1, Size: b.Size}
			all = append(all, spread)
			if name != "gpt2" {
				some = append(some, spread)
			}
		}
		from += last
	}
	for _, b := range parts["streams"] { // once more, later
		last := end(parts["streams"])
		some = append(some, pack.Buffer{Lower: b.Lower*span/last + span/2, Upper: b.Upper*span/last + span/2 + 1, Size: b.Size})
	}
	return map[string][]pack.Buffer{"sequence": sequence, "at once": all, "without gpt2": some}
}
