package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

const maxLines = 500

// checkLength rejects long files. Tests may be longer.
func checkLength(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		if !f.Test && f.Lines > maxLines {
			problems = append(problems, Problem{
				"length", f.Name, fmt.Sprintf("%d lines, at most %d: split it, one concept a file", f.Lines, maxLines),
			})
		}
	}
	return problems
}

// checkSkips rejects tests that skip: a test that needs special hardware has a build tag.
func checkSkips(m *Module) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		testers := testingParams(f.AST)
		ast.Inspect(f.AST, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || (sel.Sel.Name != "Skip" && sel.Sel.Name != "Skipf" && sel.Sel.Name != "SkipNow") {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && testers[id.Name] {
				problems = append(problems, Problem{
					"skips", f.Pos(sel.Pos()),
					"tests do not skip: put one that needs special hardware behind a build tag",
				})
			}
			return true
		})
	}
	return problems
}

// testingParams returns the names of the parameters whose type is of package testing.
func testingParams(tree *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncType)
		if !ok {
			return true
		}
		for _, field := range fn.Params.List {
			typ := field.Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			sel, ok := typ.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "testing" {
				for _, name := range field.Names {
					names[name.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// checkPaths rejects text that names a directory of this machine: prefixes are such directories.
func checkPaths(m *Module, prefixes []string) []Problem {
	var problems []Problem
	for name, text := range m.Texts {
		n := 0
		for line := range strings.Lines(text) {
			n++
			for _, p := range prefixes {
				if strings.Contains(line, strings.TrimSuffix(p, "/")+"/") {
					problems = append(problems, Problem{
						"paths", fmt.Sprintf("%s:%d", name, n), "a path of one machine: " + strings.TrimSpace(line),
					})
				}
			}
		}
	}
	return problems
}

// Methods whose meaning is fixed by an interface of the standard library need no comment.
var knownMethods = []string{"Error", "String", "Unwrap", "Is", "Len", "Less", "Swap"}

// checkComments asks for a comment on every package and every exported name. In a group of constants or variables, a
// comment covers the lines below it; the values of an enumeration are covered by the comment of its type.
func checkComments(m *Module) []Problem {
	var problems []Problem
	m.Packages(func(pkg string, files []*File) {
		described, library := false, false
		for _, f := range files {
			if f.Test {
				continue
			}
			library = true
			described = described || f.AST.Doc != nil
			if f.AST.Name.Name == "main" {
				continue
			}
			for _, decl := range f.AST.Decls {
				for _, id := range uncommented(decl) {
					problems = append(problems, Problem{
						"comments", f.Pos(id.Pos()), fmt.Sprintf("%s is exported and has no comment", id.Name),
					})
				}
			}
		}
		if library && !described {
			problems = append(problems, Problem{"comments", pkg, "the package has no comment: say what it is for"})
		}
	})
	return problems
}

// uncommented returns the exported names that a declaration introduces without a comment.
func uncommented(decl ast.Decl) []*ast.Ident {
	var names []*ast.Ident
	switch d := decl.(type) {
	case *ast.FuncDecl:
		hidden := d.Recv != nil && (!receiverExported(d.Recv) || slices.Contains(knownMethods, d.Name.Name))
		if d.Name.IsExported() && d.Doc == nil && !hidden {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		covered := d.Doc != nil
		for _, spec := range d.Specs {
			var ids []*ast.Ident
			switch s := spec.(type) {
			case *ast.TypeSpec:
				covered = (covered && !d.Lparen.IsValid()) || s.Doc != nil || s.Comment != nil
				ids = []*ast.Ident{s.Name}
			case *ast.ValueSpec:
				id, typed := s.Type.(*ast.Ident)
				enumeration := d.Tok == token.CONST && typed && id.IsExported()
				covered = covered || s.Doc != nil || s.Comment != nil || enumeration
				ids = s.Names
			}
			for _, id := range ids {
				if id.IsExported() && !covered {
					names = append(names, id)
				}
			}
		}
	}
	return names
}

// receiverExported reports whether a method belongs to an exported type.
func receiverExported(recv *ast.FieldList) bool {
	typ := recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return false
		}
	}
}
