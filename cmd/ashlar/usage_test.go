package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const noMoment = `holders: moment "middle": want peak, oom, oom:N, end, step:N, event:N, or a time since the start of the ` +
	`recording such as 12.5s`

const oneInput = "standard input (-) can be read once, and is given twice"

// The error for a command line that cannot be parsed says what is wrong in the words of the help, not of the parser.
func TestWrongUsageIsExplained(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"nothing", `there is no command "nothing"`},
		{"replya x", `there is no command "replya", did you mean "replay"?`},
		{"run python train.py", `run is a command of the Python package: see docs/pytorch.md`},
		{"bench torch", `bench torch is a command of the Python package: see docs/pytorch.md`},
		{"devices x", `unexpected argument x`},
		{"info", `the argument <trace> is missing`},
		{"diff x", `the argument <after> is missing`},
		{"explain --limit -1 x", `--limit: a value is missing, and -1 looks like a flag: --limit=-1 passes it`},
		{"tune --budget -1% x", `--budget: a value is missing, and -1% looks like a flag: --budget=-1% passes it`},
		{"plan -o x --limit --time", `unknown flag --limit`},
		{"info --top x y", `--top "x": want a whole number from 0`},
		{"info --top=-1 y", `--top "-1": want a whole number from 0`},
		{"tune --tries 1e9 y", `--tries "1e9": want a whole number`},
		{"view --port 99999 y", `--port "99999": want a whole number from 0 to 65535`},
		{"estimate --dropout x y", `--dropout "x": want a number`},
		{"pack --time 5 y", `--time "5": want a duration, such as 500ms, 30s or 1m`},
		{"estimate --dtype int8 y", `--dtype "int8": want one of fp32, bf16, fp16, amp`},
		{"info --by x y", `--by "x": want one of line, function, module, stack, category, stream, pool, tag`},
		{"info --at middle no/such", `--at: ` + noMoment},
		{"explain --at middle no/such", `--at: ` + noMoment},
		{"diff --at middle no/such no/such", `--at: ` + noMoment},
		{"export --to pprof --at middle no/such", `--at: ` + noMoment},
		{"plot -o x.svg --from middle no/such", `--from: ` + noMoment},
		{"plot -o x.svg --to middle no/such", `--to: ` + noMoment},
		{"info --top 5 no/such", `--top: only with --at or --by`},
		{"info --frames all no/such", `--frames: only with --at or --by`},
		{"export --to json --frames all no/such", `--frames: only with --to pprof, flamegraph, parquet or perfetto`},
		{"export --to json --ordinal 1 no/such", `--ordinal: only with --to script`},
		{"plot -o x.svg --dark no/such", `--dark: an SVG follows its reader's choice; --format png draws a PNG`},
		{"info - -", oneInput},
		{"replay - x -", oneInput},
		{"diff - -", oneInput},
		{"pack - -", oneInput},
		{"remat - -", oneInput},
		{"view --export - - -", oneInput},
		{"completion x", `<shell> "x": want one of bash, zsh, fish`},
	} {
		got := ashlar(t, nil, strings.Fields(c.line)...)
		want := "ashlar: " + c.want + "\nRun \"ashlar --help\" or \"ashlar COMMAND --help\" for usage.\n"
		if got.code != exitUsage || got.err != want {
			t.Errorf("ashlar %s: exit code %d, %s", c.line, got.code, got.err)
		}
	}
}

// documented matches a command that a page shows: on a line of its own, or as code in a sentence.
var documented = regexp.MustCompile("(?m)^(?:    |\\$ )(?:\\$ )?(?:go run \\./cmd/)?(ashlar [^|>&#\n]*)|`(ashlar [a-z][^`]*)`")

// The commands in the documentation and in the examples of the help can be parsed.
func TestDocumentedCommandsCanBeParsed(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	texts := map[string]string{}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../python/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = string(text)
	}
	l := newCommandLine()
	for _, c := range l.parser.Model.Children {
		texts[c.Name+" --help"] = c.Detail
	}
	found := 0
	for page, text := range texts {
		for _, match := range documented.FindAllStringSubmatch(text, -1) {
			line := match[1] + match[2]
			args := strings.Fields(strings.NewReplacer("'", "", "\n", " ").Replace(line))[1:]
			if len(args) < 2 || args[0] == "run" || match[2] != "" && !strings.ContainsAny(args[len(args)-1], "./") ||
				slices.Contains(args, "--help") {
				continue // the beginning of a command, or a command of the Python package
			}
			found++
			l.reset(newPage(nil), nil)
			if _, err := parse(l.parser, args); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d commands were found, want 100 or more", found)
	}
}

// The device of a trace is the one that --ordinal names, or the only one.
func TestTheDeviceOfATrace(t *testing.T) {
	for _, c := range []struct {
		devices []int
		ordinal int
		index   int
		want    string
	}{
		{[]int{3}, -1, 0, ""},
		{[]int{0, 2}, 2, 1, ""},
		{[]int{0, 2}, -1, 0, "the trace has several devices: choose one with --ordinal, of 0, 2"},
		{[]int{0, 2}, 1, 0, "--ordinal 1: the trace has no such device: want one of 0, 2"},
	} {
		i, err := chooseDevice(c.devices, c.ordinal)
		if i != c.index || (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%d of %v: index %d, %v", c.ordinal, c.devices, i, err)
		}
	}
}
