package arch

import (
	"fmt"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

const floorsFile = "internal/arch/floors.txt"

// A floorRow is one line of floors.txt.
type floorRow struct {
	floor int
	pos   string
}

// floorTable reads floors.txt: lines "floor package purpose". Empty lines and lines that begin with # are ignored.
func (m *Module) floorTable() (map[string]floorRow, []Problem) {
	rows, problems := map[string]floorRow{}, []Problem(nil)
	report := func(pos, text string, args ...any) {
		problems = append(problems, Problem{"floors", pos, fmt.Sprintf(text, args...)})
	}
	n := 0
	for line := range strings.Lines(m.Texts[floorsFile]) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		pos := fmt.Sprintf("%s:%d", floorsFile, n)
		floor, err := strconv.Atoi(fields[0])
		if err != nil || len(fields) < 3 {
			report(pos, "a line must be: floor package purpose")
			continue
		}
		if _, twice := rows[fields[1]]; twice {
			report(pos, "%s has two lines", fields[1])
		}
		rows[fields[1]] = floorRow{floor, pos}
	}
	if len(rows) == 0 {
		report(floorsFile, "no floors: write one line for each package")
	}
	return rows, problems
}

// checkFloors checks every package against floors.txt: each has a line, and imports lower floors only. Test files may
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
			report(pkg, "the package has no floor: add a line for %s to %s", pkg, floorsFile)
			return
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
				case f.Test || !known: // a package without a line is reported once, above
				case below.floor >= row.floor && !m.allowed("floors", pkg, to):
					report(f.Pos(pos), "%s (floor %d) may not import %s (floor %d): only lower floors",
						pkg, row.floor, to, below.floor)
				}
			})
		}
	})
	for pkg, row := range rows {
		if !exists[pkg] {
			report(row.pos, "%s does not exist: remove the line", pkg)
		}
	}
	return problems
}

// checkDrivers forbids libraries to import a driver: they use package driver. Programs, examples and tests choose the
// driver. driver/intercept opens no device, and so is no driver.
func checkDrivers(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		if f.Test || isCommand(f.Package) || isExample(f.Package) {
			continue
		}
		f.Imports(func(importPath, _ string, pos token.Pos) {
			to, ours := m.within(importPath)
			ownPart := inTree(to, f.Package)
			if ours && !ownPart && strings.HasPrefix(to, "driver/") && to != "driver/intercept" &&
				!m.allowed("drivers", f.Package, to) {
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

// checkNames rejects package names without meaning.
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

// checkCgo forbids cgo: Ashlar builds with CGO_ENABLED=0, except for the shared library that PyTorch loads.
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
