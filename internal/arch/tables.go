package arch

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
)

const (
	architectureFile = "ARCHITECTURE.md"
	partsFile        = "docs/parts.md"
	partTestsFile    = "internal/arch/parts.txt"
	behavioursFile   = "docs/behaviours.md"
)

// A tableRow is one row of a Markdown table, without its heading and rule.
type tableRow struct {
	line  int
	cells []string
}

// tableRows returns the rows of all tables of a Markdown text.
func tableRows(text string) []tableRow {
	var rows []tableRow
	n, header := 0, true
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = true
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case header:
			header = false
		case strings.Trim(cells[0], "-: ") == "" && cells[0] != "":
		default:
			rows = append(rows, tableRow{n, cells})
		}
	}
	return rows
}

// A path of the module in Markdown: the target of a link, or a code span with a slash and without spaces or wildcards.
var pathInText = regexp.MustCompile("\\]\\(([\\w./-]+)\\)|`([\\w.-]+/[\\w./-]*)`")

// checkPointers checks that the files and directories that ARCHITECTURE.md names exist.
func checkPointers(m *Module) []Problem {
	exists := map[string]bool{}
	for name := range m.Texts {
		for ; !exists[name] && name != "."; name = path.Dir(name) {
			exists[name] = true
		}
	}
	var problems []Problem
	n := 0
	for line := range strings.Lines(m.Texts[architectureFile]) {
		n++
		for _, match := range pathInText.FindAllStringSubmatch(line, -1) {
			if name := path.Clean(match[1] + match[2]); !exists[name] {
				pos := fmt.Sprintf("%s:%d", architectureFile, n)
				problems = append(problems, Problem{"pointers", pos, "no such file: " + name})
			}
		}
	}
	return problems
}

// tests returns where each Test, Fuzz, Benchmark and Example function of the module's test files stands.
func (m *Module) tests() map[string]string {
	found := map[string]string{}
	for _, f := range m.Files {
		if !f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				if name := fn.Name.Name; testName.FindString(name) == name {
					found[name] = f.Pos(fn.Pos())
				}
			}
		}
	}
	return found
}

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z0-9_]\w*`)

// A partTests is an entry of parts.txt: the tests of one part.
type partTests struct {
	pos   string
	count int
}

// partTests reads parts.txt: the name of a part, then indented lines of test names. Empty lines and lines that begin
// with # are ignored.
func (m *Module) partTests() (map[string]*partTests, []Problem) {
	parts, problems := map[string]*partTests{}, []Problem(nil)
	tests := m.tests()
	var part *partTests
	n := 0
	for line := range strings.Lines(m.Texts[partTestsFile]) {
		n++
		pos := fmt.Sprintf("%s:%d", partTestsFile, n)
		name := strings.TrimSpace(line)
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case line[0] != '\t':
			if parts[name] != nil {
				problems = append(problems, Problem{"parts", pos, "a second entry for the part: " + name})
			}
			part = &partTests{pos: pos}
			parts[name] = part
		case part == nil:
			problems = append(problems, Problem{"parts", pos, "tests without a part"})
		default:
			for _, test := range strings.Fields(name) {
				part.count++
				if tests[test] == "" {
					problems = append(problems, Problem{"parts", pos, "no such test: " + test})
				}
			}
		}
	}
	return parts, problems
}

// checkParts checks docs/parts.md against the tests: a part that is not planned has tests in parts.txt, all of which
// exist, and parts.txt has no other parts.
func checkParts(m *Module) []Problem {
	rows := tableRows(m.Texts[partsFile])
	if len(rows) == 0 {
		return []Problem{{"parts", partsFile, "no table"}}
	}
	parts, problems := m.partTests()
	for _, row := range rows {
		pos := fmt.Sprintf("%s:%d", partsFile, row.line)
		report := func(text string) { problems = append(problems, Problem{"parts", pos, text}) }
		if len(row.cells) != 3 {
			report("a row must be | part | where | state |")
			continue
		}
		name, state := row.cells[0], row.cells[2]
		missing, isMissing := strings.CutPrefix(state, "missing: ")
		part := parts[name]
		delete(parts, name)
		switch {
		case state == "planned":
		case state != "done" && (!isMissing || missing == ""):
			report("the state must be done, planned or missing: ...: " + name)
		case part == nil || part.count == 0:
			report(partTestsFile + " names no test of the part: " + name)
		}
	}
	for name, part := range parts {
		problems = append(problems, Problem{"parts", part.pos, partsFile + " has no such part: " + name})
	}
	return problems
}

var (
	behaviourTest   = regexp.MustCompile(`^TestBehaviour(\d\d+)`)
	behaviourNumber = regexp.MustCompile(`^\d\d+$`)
)

// checkBehaviours checks docs/behaviours.md against the tests: TestBehaviourNN... exists for each behaviour that is
// covered, and for no other.
func checkBehaviours(m *Module) []Problem {
	var problems []Problem
	report := func(pos, text string, args ...any) {
		problems = append(problems, Problem{"behaviours", pos, fmt.Sprintf(text, args...)})
	}
	tested := map[string]bool{}
	state := map[string]string{}
	for _, row := range tableRows(m.Texts[behavioursFile]) {
		pos := fmt.Sprintf("%s:%d", behavioursFile, row.line)
		if len(row.cells) != 3 || !behaviourNumber.MatchString(row.cells[0]) ||
			(row.cells[2] != "covered" && row.cells[2] != "planned") {
			report(pos, "a row is | two-digit number | behaviour | covered or planned |")
			continue
		}
		if state[row.cells[0]] != "" {
			report(pos, "behaviour %s has two rows", row.cells[0])
		}
		state[row.cells[0]] = row.cells[2]
	}
	if len(state) == 0 {
		report(behavioursFile, "no table")
	}
	for name, pos := range m.tests() {
		if match := behaviourTest.FindStringSubmatch(name); match != nil {
			tested[match[1]] = true
			if state[match[1]] != "covered" {
				report(pos, "%s: %s does not say that behaviour %s is covered", name, behavioursFile, match[1])
			}
		}
	}
	for number, s := range state {
		if s == "covered" && !tested[number] {
			report(behavioursFile, "behaviour %s is said to be covered, but no test is named TestBehaviour%[1]s...",
				number)
		}
	}
	return problems
}
