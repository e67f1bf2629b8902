// Package arch tests the structure of the module: which packages may import which, what libraries may use, and that
// the tables in the documents are true.
package arch

// The package parses the files itself, in the process of its test. The go command records which files a test opens, and
// drops a cached result when one of them changes. A test that ran "go list" could pass from the cache.
//
// A rule is a function from a Module to a list of problems. The list exceptions has the permitted violations with their
// reasons; an exception that is no longer needed is a failure. floors.txt has the floors. The rules see names, not
// types: they find mistakes, and can be circumvented on purpose.

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Problem is one thing that breaks a rule.
type Problem struct {
	Rule string
	Pos  string // file, or file:line
	Text string // the violation and the remedy
}

// String writes the problem on one line, as compilers do.
func (p Problem) String() string { return fmt.Sprintf("%s: %s (rule %s)", p.Pos, p.Text, p.Rule) }

// A Module is the parsed files of a Go module. It is not safe for concurrent use.
type Module struct {
	Path  string            // the module path of go.mod
	Files []*File           // in the order of their names
	Texts map[string]string // the documents and scripts, by name; Go files too

	exceptions []exception
	used       map[int]bool // the exceptions that a rule has used
}

// A File is a Go file.
type File struct {
	Name    string // from the module's root, with slashes
	Package string // the directory, or "." for the root
	Test    bool   // of a name that ends in _test.go
	Lines   int
	AST     *ast.File
	fset    *token.FileSet
}

// Pos returns pos as file:line.
func (f *File) Pos(pos token.Pos) string {
	p := f.fset.Position(pos)
	return fmt.Sprintf("%s:%d", f.Name, p.Line)
}

// Imports visits the imports of the file, each with its name in the file.
func (f *File) Imports(visit func(importPath, name string, pos token.Pos)) {
	for _, spec := range f.AST.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(importPath)
		if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(importPath))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		visit(importPath, name, spec.Pos())
	}
}

// Load parses the module whose root is fsys. It skips nested modules, directories that the go command ignores, and
// hidden directories except .ci.
func Load(fsys fs.FS) (*Module, error) {
	m := &Module{Texts: map[string]string{}, exceptions: exceptions, used: map[int]bool{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name == "." || name == ".ci" {
				return nil
			}
			_, nested := fs.Stat(fsys, path.Join(name, "go.mod"))
			if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' || nested == nil {
				return fs.SkipDir
			}
			return nil
		}
		if !isText(name) {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		m.Texts[name] = string(text)
		if path.Ext(name) == ".go" && base[0] != '_' && base[0] != '.' {
			return m.parse(name, text)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load the module: %w", err)
	}
	for line := range strings.Lines(m.Texts["go.mod"]) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "module" {
			m.Path = fields[1]
		}
	}
	if m.Path == "" {
		return nil, fmt.Errorf("load the module: no go.mod with a module line at its root")
	}
	slices.SortFunc(m.Files, func(a, b *File) int { return cmp.Compare(a.Name, b.Name) })
	return m, nil
}

// isText reports whether the rules about text apply to a file.
func isText(name string) bool {
	switch path.Ext(name) {
	case ".go", ".md", ".txt", ".mod", ".sh", ".yml", ".yaml", ".toml", ".conf", ".editorconfig":
		return true
	}
	return path.Base(name) == "Makefile" || path.Dir(name) == ".ci"
}

func (m *Module) parse(name string, text []byte) error {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	m.Files = append(m.Files, &File{
		Name: name, Package: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"),
		Lines: bytes.Count(text, []byte("\n")), AST: tree, fset: fset,
	})
	return nil
}

// Packages visits each directory that has Go files, in order, with its files.
func (m *Module) Packages(visit func(pkg string, files []*File)) {
	byPackage := map[string][]*File{}
	for _, f := range m.Files {
		byPackage[f.Package] = append(byPackage[f.Package], f)
	}
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		visit(pkg, byPackage[pkg])
	}
}

// within returns the package of the module that an import path names, "." for its root.
func (m *Module) within(importPath string) (pkg string, ok bool) {
	if importPath == m.Path {
		return ".", true
	}
	return strings.CutPrefix(importPath, m.Path+"/")
}

// isCommand reports whether pkg is a program. Programs may print, read the environment, and so on.
func isCommand(pkg string) bool { return inTree(pkg, "cmd") || inTree(pkg, "bench") }

// isExample reports whether pkg is an example.
func isExample(pkg string) bool { return inTree(pkg, "examples") }

func inTree(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }
