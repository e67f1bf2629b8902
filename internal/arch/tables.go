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
	behavioursFile   = "docs/behaviours.md"
)

// A tableRow is one row of a Markdown table, without its heading and rule.
type tableRow struct {
	line  int
	cells []string
}

// tableUnder returns the rows of the tables below a heading, up to the next heading of the same depth or above. With
// an empty heading it returns those of the whole text.
func tableUnder(text, heading string) []tableRow {
	var rows []tableRow
	n, inside, header := 0, heading == "", true
	depth := len(heading) - len(strings.TrimLeft(heading, "#"))
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if hashes := len(line) - len(strings.TrimLeft(line, "#")); hashes > 0 && heading != "" && hashes <= depth {
			inside = line == heading
		}
		if !inside || !strings.HasPrefix(line, "|") {
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

var codeSpan = regexp.MustCompile("`([^`]+)`")

// backticked returns the texts between backticks.
func backticked(cell string) []string {
	var names []string
	for _, match := range codeSpan.FindAllStringSubmatch(cell, -1) {
		names = append(names, match[1])
	}
	return names
}

// checkPointers holds the table "To change X, look in Y" against the tree: a name without a slash lies beside the one
// before it.
func checkPointers(m *Module) []Problem {
	exists := map[string]bool{}
	for name := range m.Texts {
		for ; !exists[name] && name != "."; name = path.Dir(name) {
			exists[name] = true
		}
	}
	var problems []Problem
	for _, row := range tableUnder(m.Texts[architectureFile], "## To change X, look in Y") {
		dir := "."
		for _, name := range backticked(row.cells[len(row.cells)-1]) {
			if !strings.Contains(name, "/") {
				name = path.Join(dir, name)
			}
			dir = path.Dir(name)
			if !exists[name] {
				pos := fmt.Sprintf("%s:%d", architectureFile, row.line)
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

// checkParts holds docs/parts.md against the tests: a row that is done or part names tests, all of which exist, and one that
// is part says what is missing.
func checkParts(m *Module) []Problem {
	var problems []Problem
	rows, tests := tableUnder(m.Texts[partsFile], ""), m.tests()
	if len(rows) == 0 {
		return []Problem{{"parts", partsFile, "no table"}}
	}
	for _, row := range rows {
		pos := fmt.Sprintf("%s:%d", partsFile, row.line)
		if len(row.cells) != 4 || (row.cells[2] != "done" && row.cells[2] != "part" && row.cells[2] != "planned") {
			text := "a row is | part | where | done, part or planned | tests |"
			problems = append(problems, Problem{"parts", pos, text})
			continue
		}
		named := testName.FindAllString(row.cells[3], -1)
		if row.cells[2] != "planned" && len(named) == 0 {
			problems = append(problems, Problem{"parts", pos, "no test is named that shows this part: " + row.cells[0]})
		}
		if row.cells[2] == "part" && !strings.Contains(row.cells[0], "; missing: ") {
			problems = append(problems, Problem{"parts", pos, `a row that is part says "; missing: ..." of: ` + row.cells[0]})
		}
		for _, name := range named {
			if tests[name] == "" {
				problems = append(problems, Problem{"parts", pos, "no such test: " + name})
			}
		}
	}
	return problems
}

var (
	behaviourTest   = regexp.MustCompile(`^TestBehaviour(\d\d+)`)
	behaviourNumber = regexp.MustCompile(`^\d\d+$`)
)

// checkBehaviours holds docs/behaviours.md against the tests: TestBehaviourNN... exists for each behaviour that is
// covered, and for no other.
func checkBehaviours(m *Module) []Problem {
	var problems []Problem
	report := func(pos, text string, args ...any) {
		problems = append(problems, Problem{"behaviours", pos, fmt.Sprintf(text, args...)})
	}
	tested := map[string]bool{}
	state := map[string]string{}
	for _, row := range tableUnder(m.Texts[behavioursFile], "") {
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
			report(behavioursFile, "behaviour %s is said to be covered, and no test is named TestBehaviour%[1]s...", number)
		}
	}
	return problems
}
