package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// A call is a use of a name of an imported package: time.Now.
type call struct {
	importPath, name string
	pos              token.Pos
}

// calls visits the uses of names of imported packages. It takes a local variable that hides an import for that import.
func (f *File) calls(visit func(call)) {
	imported := map[string]string{}
	f.Imports(func(importPath, name string, _ token.Pos) { imported[name] = importPath })
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && imported[id.Name] != "" {
				visit(call{imported[id.Name], sel.Sel.Name, sel.Pos()})
			}
		}
		return true
	})
}

// checkEnvironment forbids reading the environment outside programs, so that two runs of a test are equal.
func checkEnvironment(m *Module) []Problem {
	forbidden := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
	var problems []Problem
	for _, f := range m.Files {
		if isCommand(f.Package) || isExample(f.Package) && !f.Test {
			continue
		}
		f.calls(func(c call) {
			if (c.importPath == "os" || c.importPath == "syscall") && slices.Contains(forbidden, c.name) &&
				!m.allowed("environment", f.Package, c.importPath+"."+c.name) {
				problems = append(problems, Problem{
					"environment", f.Pos(c.pos),
					fmt.Sprintf("only programs read the environment: pass the result of %s.%s", c.importPath, c.name),
				})
			}
		})
	}
	return problems
}

// checkOutput forbids output in libraries: they return values and errors, and their callers print.
func checkOutput(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		if f.Test || isCommand(f.Package) || isExample(f.Package) {
			continue
		}
		report := func(pos token.Pos, what string) {
			if !m.allowed("output", f.Package, what) {
				problems = append(problems, Problem{
					"output", f.Pos(pos),
					fmt.Sprintf("libraries do not print or log: return a value, or take an io.Writer (%s)", what),
				})
			}
		}
		f.Imports(func(importPath, _ string, pos token.Pos) {
			if importPath == "log" || importPath == "log/slog" {
				report(pos, importPath)
			}
		})
		f.calls(func(c call) {
			switch {
			case c.importPath == "fmt" && strings.HasPrefix(c.name, "Print"),
				c.importPath == "os" && (c.name == "Stdout" || c.name == "Stderr"):
				report(c.pos, c.importPath+"."+c.name)
			}
		})
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if e, ok := n.(*ast.CallExpr); ok {
				if id, ok := e.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					report(e.Pos(), id.Name)
				}
			}
			return true
		})
	}
	return problems
}

// The functions of package time that read or wait for the real clock, and the names of math/rand that do not use its
// global source.
var (
	clockFuncs = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	randNames  = []string{
		"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf",
	}
)

// checkDeterminism forbids libraries to read a clock or random numbers unless the caller passes them in, so that a
// history can be repeated from its seed. Random numbers in tests come from a seed too.
func checkDeterminism(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		f.calls(func(c call) {
			var text string
			switch {
			case c.importPath == "math/rand" || c.importPath == "math/rand/v2":
				if slices.Contains(randNames, c.name) {
					return
				}
				text = "the global random source has no seed that a failure could name: use rand.New with one (%s)"
			case f.Test || isCommand(f.Package) || isExample(f.Package):
				return
			case c.importPath == "crypto/rand":
				text = "libraries use no randomness that was not passed in (%s)"
			case c.importPath == "time" && slices.Contains(clockFuncs, c.name):
				text = "libraries read no clock that was not passed in (%s)"
			default:
				return
			}
			if what := c.importPath + "." + c.name; !m.allowed("determinism", f.Package, what) {
				problems = append(problems, Problem{"determinism", f.Pos(c.pos), fmt.Sprintf(text, what)})
			}
		})
	}
	return problems
}
