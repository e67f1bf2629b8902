package arch

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// sound is a small module without violations.
var sound = map[string]string{
	"go.mod": "module example.org/wall\n\ngo 1.26\n",
	"internal/arch/floors.txt": "# floor package purpose\n\n0 driver  the seam\n1 driver/sim  a driver\n" +
		"1 driver/host  another\n2 mem  allocators\n5 replay  replays\n8 cmd/wall  the program\n",
	"ARCHITECTURE.md": "# Wall\n\nSee [mem](mem) and `mem/mem.go`, not `a/b c` or `mem.Find`.\n",
	"docs/parts.md": "| part | where | state |\n|---|---|---|\n" +
		"| A | `mem` | done |\n| B | `x` | planned |\n| C | `y` | missing: more |\n",
	"internal/arch/parts.txt": "# The tests of the parts\n\nA\n\tTestBehaviour01_Sizes\n\nC\n\tTestBehaviour01_Sizes\n",
	"docs/behaviours.md": "| no | behaviour | state |\n| --- | --- | --- |\n" +
		"| 01 | sizes | covered |\n| 02 | more | planned |\n",

	"driver/driver.go":    "// Package driver is the seam.\npackage driver\n\n// Open opens.\nfunc Open() {}\n",
	"driver/sim/sim.go":   "// Package sim simulates.\npackage sim\n\nimport \"example.org/wall/driver\"\n\nvar _ = driver.Open\n",
	"driver/host/host.go": "// Package host is memory.\npackage host\n",
	"mem/mem.go":          "// Package mem allocates.\npackage mem\n\nimport \"example.org/wall/driver\"\n\nvar _ = driver.Open\n",
	"mem/mem_test.go": "package mem_test\n\n" +
		"import (\n\t\"testing\"\n\n\t_ \"example.org/wall/driver/sim\"\n\t_ \"example.org/wall/replay\"\n)\n\n" +
		"func TestBehaviour01_Sizes(t *testing.T) { t.Log(1) }\n",
	"replay/replay.go": "// Package replay replays.\npackage replay\n\nimport _ \"example.org/wall/driver/sim\"\n",
	"cmd/wall/main.go": "// Command wall stands.\npackage main\n\n" +
		"import (\n\t\"fmt\"\n\t\"os\"\n\n\t_ \"example.org/wall/driver/host\"\n)\n\n" +
		"func main() { fmt.Println(os.Getenv(\"HOME\")) }\n",
	"mem/testdata/bad.go":   "not Go at all",
	".git/hooks/ignored.go": "nor this",
}

// body is a file of package mem with the imports and the code.
func body(code string, imports ...string) string {
	var b strings.Builder
	b.WriteString("package mem\n")
	for _, i := range imports {
		fmt.Fprintf(&b, "\nimport %s\n", i)
	}
	return b.String() + "\n" + code + "\n"
}

func check(t *testing.T, files map[string]string) []Problem {
	t.Helper()
	all := fstest.MapFS{}
	for _, set := range []map[string]string{sound, files} {
		for name, text := range set {
			all[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	m, err := Load(all)
	if err != nil {
		t.Fatal(err)
	}
	m.exceptions = []exception{{"drivers", "replay", "driver/sim", "planted"}}
	return Check(m, []string{"/builds/someone"})
}

// TestRulesFindPlantedViolations adds one violation at a time to the sound module: the rules must find exactly one
// problem, at its place.
func TestRulesFindPlantedViolations(t *testing.T) {
	const mod = "example.org/wall/"
	for _, c := range []struct {
		name, file, text string
		want             string // the beginning of the problem; none if empty
		more             string // and something else in it
	}{
		{"sound", "mem/doc.go", body(""), "", ""},
		{
			"higher floor", "driver/sim/up.go",
			"package sim\n\nimport _ \"" + mod + "mem\"\n",
			"driver/sim/up.go:3: driver/sim (floor 1) may not import mem (floor 2)", "",
		},
		{
			"same floor", "driver/host/side.go",
			"package host\n\nimport _ \"" + mod + "driver\"\nimport _ \"" + mod + "replay\"\n",
			"driver/host/side.go:4: driver/host (floor 1) may not import replay", "",
		},
		{
			"no floor", "quarry/quarry.go",
			"// Package quarry digs.\npackage quarry\n",
			"quarry: the package has no floor: add a line for quarry to internal/arch/floors.txt", "",
		},
		{
			"test imports a program", "mem/cmd_test.go",
			"package mem\n\nimport _ \"" + mod + "cmd/wall\"\n",
			"mem/cmd_test.go:3: a test may not import the program", "",
		},
		{
			"library imports a driver", "mem/dev.go",
			body("", `_ "`+mod+`driver/host"`),
			"mem/dev.go:3: mem may not import driver/host", "rule drivers",
		},
		{"cgo", "mem/c.go", body("", `"C"`), "mem/c.go:3: only cmd/libashlar may use cgo", ""},
		{
			"environment", "mem/env.go",
			body("var x = os.Getenv(\"X\")", `"os"`),
			"mem/env.go:5: only programs read the environment", "",
		},
		{
			"environment in a test", "mem/env_test.go",
			body("var x, _ = where.LookupEnv(\"X\")", `where "os"`),
			"mem/env_test.go:5: only programs read the environment", "",
		},
		{
			"print", "mem/p.go",
			body("func f() { fmt.Printf(\"x\") }", `"fmt"`),
			"mem/p.go:5: libraries do not print or log", "fmt.Printf",
		},
		{"built-in print", "mem/p.go", body("func f() { println(1) }"), "mem/p.go:3: libraries do not print", ""},
		{"standard error", "mem/p.go", body("var w = os.Stderr", `"os"`), "mem/p.go:5: libraries do not print", ""},
		{"slog", "mem/p.go", body("", `_ "log/slog"`), "mem/p.go:3: libraries do not print or log", ""},
		{"formatting is fine", "mem/p.go", body("var s = fmt.Sprint(1)", `"fmt"`), "", ""},
		{"clock", "mem/t.go", body("var x = time.Now()", `"time"`), "mem/t.go:5: libraries read no clock", ""},
		{"durations are fine", "mem/t.go", body("var x = time.Second", `"time"`), "", ""},
		{"clock in a test is fine", "mem/t_test.go", body("var x = time.Now()", `"time"`), "", ""},
		{
			"global chance", "mem/r_test.go",
			body("var x = rand.IntN(3)", `"math/rand/v2"`),
			"mem/r_test.go:5: the global random source", "",
		},
		{
			"seeded chance is fine", "mem/r.go",
			body("var x = rand.New(rand.NewPCG(1, 2))", `"math/rand/v2"`),
			"", "",
		},
		{"length", "mem/long.go", body(strings.Repeat("\n", 500)), "mem/long.go: 503 lines, at most 500", ""},
		{"long tests are fine", "mem/long_test.go", body(strings.Repeat("\n", 500)), "", ""},
		{
			"skip", "mem/s_test.go",
			body("func TestS(q *testing.T) { q.Skipf(\"no\") }", `"testing"`),
			"mem/s_test.go:5: tests do not skip", "",
		},
		{
			"skip in a subtest", "mem/s_test.go",
			body("func TestS(t *testing.T) { t.Run(\"\", func(u *testing.T) { u.SkipNow() }) }", `"testing"`),
			"mem/s_test.go:5: tests do not skip", "",
		},
		{"another Skip is fine", "mem/s.go", body("func f(d interface{ Skip() }) { d.Skip() }"), "", ""},
		{"path", "mem/path.md", "See /builds/someone/notes.\n", "mem/path.md:1: a path of one machine", ""},
		{
			"function without comment", "mem/x.go",
			body("func Take() {}"),
			"mem/x.go:3: Take is exported and has no comment", "",
		},
		{
			"method without comment", "mem/x.go",
			body("// T is.\ntype T[E any] struct{}\n\nfunc (*T[E]) Take() {}"),
			"mem/x.go:6: Take is exported", "",
		},
		{"method of a hidden type", "mem/x.go", body("type t struct{}\n\nfunc (t) Take() {}"), "", ""},
		{
			"known method", "mem/x.go",
			body("// T is.\ntype T struct{}\n\nfunc (T) Error() string { return \"\" }"),
			"", "",
		},
		{
			"constant without comment", "mem/x.go",
			body("const (\n\tA = 1\n\tB = 2 // two\n\tC = 3\n)"),
			"mem/x.go:4: A is exported", "",
		},
		{
			"enumeration", "mem/x.go",
			body("// A Kind is.\ntype Kind int\n\nconst (\n\tA Kind = iota\n\tB\n)"),
			"", "",
		},
		{"type in a group", "mem/x.go", body("// Both.\ntype (\n\tA struct{}\n)"), "mem/x.go:5: A is exported", ""},
		{
			"package without comment", "driver/driver.go",
			"package driver\n",
			"driver: the package has no comment", "",
		},
		{"vague name", "driver/host/more.go", "package host\n", "", ""},
		{
			"part without tests", partTestsFile, sound[partTestsFile] + "D\n",
			"internal/arch/parts.txt:8: docs/parts.md has no such part: D", "",
		},
		{
			"part of two entries", partTestsFile, sound[partTestsFile] + "A\n\tTestBehaviour01_Sizes\n",
			"internal/arch/parts.txt:8: a second entry for the part: A", "",
		},
		{
			"part with a false test", partTestsFile, sound[partTestsFile] + "\tTestBehaviour01_Sizes TestGone\n",
			"internal/arch/parts.txt:8: no such test: TestGone", "",
		},
		{
			"part that is done and has no tests", "docs/parts.md", sound["docs/parts.md"] + "| D | x | done |\n",
			"docs/parts.md:6: internal/arch/parts.txt names no test of the part: D", "",
		},
		{
			"part that does not say what is missing", "docs/parts.md",
			strings.Replace(sound["docs/parts.md"], "missing: more", "missing: ", 1),
			"docs/parts.md:5: the state must be", "",
		},
		{
			"part with a false state", "docs/parts.md", sound["docs/parts.md"] + "| D | x | nearly |\n",
			"docs/parts.md:6: the state must be", "",
		},
		{
			"part of too many cells", "docs/parts.md", sound["docs/parts.md"] + "| D | x | planned | more |\n",
			"docs/parts.md:6: a row must be", "",
		},
		{
			"behaviour without test", "docs/behaviours.md",
			sound["docs/behaviours.md"] + "| 03 | y | covered |\n",
			"docs/behaviours.md: behaviour 03 is said to be covered", "",
		},
		{
			"behaviour not listed", "mem/b_test.go",
			body("func TestBehaviour07_X(t *testing.T) {}", `"testing"`),
			"mem/b_test.go:5: TestBehaviour07_X: docs/behaviours.md does not say", "",
		},
		{
			"behaviour said to be planned", "mem/b_test.go",
			body("func TestBehaviour02(t *testing.T) {}", `"testing"`),
			"mem/b_test.go:5: TestBehaviour02", "",
		},
		{
			"behaviour twice", "docs/behaviours.md",
			sound["docs/behaviours.md"] + "| 02 | y | planned |\n",
			"docs/behaviours.md:5: behaviour 02 has two rows", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := check(t, map[string]string{c.file: c.text})
			switch {
			case c.want == "" && len(problems) > 0:
				t.Errorf("found %q, want nothing", problems)
			case c.want == "":
			case len(problems) != 1 || !strings.HasPrefix(problems[0].String(), c.want),
				!strings.Contains(problems[0].String(), c.more):
				t.Errorf("found %q, want just %q", problems, c.want)
			}
		})
	}
}

func TestRulesOnTheTables(t *testing.T) {
	floors := func(more string) string { return sound[floorsFile] + more }
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{
			"floor without package",
			map[string]string{floorsFile: floors("0 fit  fits\n")},
			"internal/arch/floors.txt:9: fit does not exist",
		},
		{
			"floor of two lines",
			map[string]string{floorsFile: floors("2 mem  again\n")},
			"internal/arch/floors.txt:9: mem has two lines",
		},
		{
			"floor without a number",
			map[string]string{floorsFile: floors("high mem  again\n")},
			"internal/arch/floors.txt:9: a line must be: floor package purpose",
		},
		{
			"floor without a purpose",
			map[string]string{floorsFile: floors("2 mem\n")},
			"internal/arch/floors.txt:9: a line must be: floor package purpose",
		},
		{
			"vague name",
			map[string]string{
				floorsFile:      floors("2 mem/util  anything\n"),
				"mem/util/x.go": "// Package util is anything.\npackage util\n",
			},
			"mem/util/x.go: \"util\" says nothing",
		},
		{
			"false pointer",
			map[string]string{"ARCHITECTURE.md": strings.Replace(sound["ARCHITECTURE.md"], "mem.go", "gone.go", 1)},
			"ARCHITECTURE.md:3: no such file: mem/gone.go",
		},
		{
			"false link",
			map[string]string{"ARCHITECTURE.md": strings.Replace(sound["ARCHITECTURE.md"], "(mem)", "(gone)", 1)},
			"ARCHITECTURE.md:3: no such file: gone",
		},
		{
			"no behaviours",
			map[string]string{
				"docs/behaviours.md": "none", "mem/mem_test.go": "package mem\n",
				"docs/parts.md": "|a|\n|-|\n| p | w | planned |\n", partTestsFile: "",
			},
			"docs/behaviours.md: no table",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := check(t, c.files)
			if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), c.want) {
				t.Errorf("found %q, want just %q", problems, c.want)
			}
		})
	}
}

func TestStaleExceptions(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range sound {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	files["replay/replay.go"] = &fstest.MapFile{Data: []byte("// Package replay replays.\npackage replay\n")}
	m, err := Load(files)
	if err != nil {
		t.Fatal(err)
	}
	m.exceptions = []exception{{"drivers", "replay", "driver/sim", "planted"}, {"drivers", "later", "driver/sim", "planted"}}
	Check(m, nil)
	stale := m.StaleExceptions()
	if len(stale) != 1 || !strings.Contains(stale[0].Text, "replay no longer needs the exception for driver/sim") {
		t.Errorf("stale exceptions %q, want just that of replay", stale)
	}
}

func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		files fstest.MapFS
		want  string
	}{
		{"no module", fstest.MapFS{"a.go": {Data: []byte("package a\n")}}, "no go.mod"},
		{
			"not Go",
			fstest.MapFS{"go.mod": {Data: []byte("module a\n")}, "a.go": {Data: []byte("pack age\n")}},
			"parse: a.go:1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Load(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}
