package arch

import (
	"fmt"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

const floorsFile = "ARCHITECTURE.md"

// A floorRow is one package of the floors table.
type floorRow struct {
	floor   int
	planned bool
	pos     string
}

// floorTable reads the rows "| floor | `package`, ... | what | state |" under the heading "## Floors".
func (m *Module) floorTable() (map[string]floorRow, []Problem) {
	rows, problems := map[string]floorRow{}, []Problem(nil)
	report := func(pos, text string, args ...any) {
		problems = append(problems, Problem{"floors", pos, fmt.Sprintf(text, args...)})
	}
	for _, row := range tableUnder(m.Texts[floorsFile], "## Floors") {
		pos := fmt.Sprintf("%s:%d", floorsFile, row.line)
		floor, err := strconv.Atoi(row.cells[0])
		if err != nil || len(row.cells) != 4 || (row.cells[3] != "here" && row.cells[3] != "planned") {
			report(pos, "a row of the floors table is | number | `package` | what | here or planned |")
			continue
		}
		for _, pkg := range backticked(row.cells[1]) {
			if _, twice := rows[pkg]; twice {
				report(pos, "%s has two rows", pkg)
			}
			rows[pkg] = floorRow{floor, row.cells[3] == "planned", pos}
		}
	}
	if len(rows) == 0 {
		report(floorsFile, "no table under the heading ## Floors")
	}
	return rows, problems
}

// checkFloors holds every package against the table: each has a row, and imports lower floors only. Test files may
// import any library, but no program.
func checkFloors(m *Module) []Problem {
	rows, problems := m.floorTable()
	report := func(pos, text string, args ...any) {
		problems = append(problems, Problem{"floors", pos, fmt.Sprintf(text, args...)})
	}
	exists := map[string]bool{}
	m.Packages(func(pkg string, files []*File) {
		exists[pkg] = true
		row, ok := rows[pkg]
		if !ok {
			report(pkg, "the package has no floor: add a row for `%s` to the table under ## Floors in %s",
				pkg, floorsFile)
			return
		}
		if row.planned {
			report(row.pos, "%s exists: its state is here, not planned", pkg)
		}
		for _, f := range files {
			f.Imports(func(importPath, _ string, pos token.Pos) {
				to, ours := m.within(importPath)
				if !ours || (f.Test && to == pkg) {
					return
				}
				below, known := rows[to]
				switch {
				case f.Test && isCommand(to):
					report(f.Pos(pos), "a test may not import the program %s", to)
				case f.Test || !known: // a package without a row is reported once, above
				case below.floor >= row.floor && !m.allowed("floors", pkg, to):
					report(f.Pos(pos), "%s (floor %d) may not import %s (floor %d): only lower floors",
						pkg, row.floor, to, below.floor)
				}
			})
		}
	})
	for pkg, row := range rows {
		if !exists[pkg] && !row.planned {
			report(row.pos, "%s does not exist: its state is planned, or the row goes", pkg)
		}
	}
	return problems
}

// checkDrivers keeps the drivers out of the libraries, which see package driver alone: programs, examples and tests
// choose a driver.
func checkDrivers(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		if f.Test || isCommand(f.Package) || isExample(f.Package) {
			continue
		}
		f.Imports(func(importPath, _ string, pos token.Pos) {
			to, ours := m.within(importPath)
			ownPart := inTree(to, f.Package)
			if ours && !ownPart && strings.HasPrefix(to, "driver/") && !m.allowed("drivers", f.Package, to) {
				problems = append(problems, Problem{
					"drivers", f.Pos(pos), fmt.Sprintf(
						"%s may not import %s: programs, examples and tests choose the driver", f.Package, to,
					),
				})
			}
		})
	}
	return problems
}

var vagueNames = []string{
	"base", "common", "core", "helper", "helpers", "lib", "misc", "pkg", "shared", "types", "util", "utils",
}

// checkNames refuses package names that say nothing.
func checkNames(m *Module) []Problem {
	var problems []Problem
	m.Packages(func(pkg string, files []*File) {
		name := strings.TrimSuffix(files[0].AST.Name.Name, "_test")
		for _, n := range []string{name, path.Base(pkg)} {
			if slices.Contains(vagueNames, n) {
				problems = append(problems, Problem{
					"names", files[0].Name, fmt.Sprintf("%q says nothing: name the package after what it provides", n),
				})
				return
			}
		}
	})
	return problems
}

// checkCgo keeps C out: Ashlar builds with CGO_ENABLED=0, but for the shared library that PyTorch loads.
func checkCgo(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		f.Imports(func(importPath, _ string, pos token.Pos) {
			if importPath == "C" && !inTree(f.Package, "cmd/libashlar") {
				problems = append(problems, Problem{"cgo", f.Pos(pos), "only cmd/libashlar may use cgo"})
			}
		})
	}
	return problems
}
