package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// A fault is an edit of one file.
type fault struct {
	pkg      *goPackage
	path     string // of the file, from the module's root
	line     int
	function string
	old, new string // the smallest expression or statement that the edit changes, in one line
	copies   int    // of the same edit of the same text before it in the function
	at, end  int    // the bytes of the file that are replaced
	text     string // by this
}

// key identifies a fault in equivalent.txt, wherever the function moves in its file.
func (f *fault) key() string { return f.path + ": " + f.edit() }

func (f *fault) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.edit()) }

func (f *fault) edit() string {
	text := fmt.Sprintf("%s: %s -> %s", f.function, f.old, f.new)
	if f.copies > 0 {
		text += fmt.Sprintf(" (%d)", f.copies+1)
	}
	return text
}

// faults returns every fault of a package, in the order of its files.
func (p *goPackage) faults() ([]fault, error) {
	var all []fault
	for _, name := range p.GoFiles {
		if name == "invariants.go" { // it is a test itself
			continue
		}
		c := collector{pkg: p, fset: token.NewFileSet(), seen: map[string]int{}}
		path := filepath.Join(p.Dir, name)
		var err error
		if c.path, err = filepath.Rel(p.Module.Dir, path); err != nil {
			return nil, err
		}
		c.path = filepath.ToSlash(c.path)
		if err := c.read(path); err != nil {
			return nil, err
		}
		all = append(all, c.found...)
	}
	return all, nil
}

// A collector finds the faults of one file.
type collector struct {
	pkg      *goPackage
	path     string
	fset     *token.FileSet
	src      []byte
	function string
	found    []fault
	seen     map[string]int // by key
}

func (c *collector) read(path string) error {
	var err error
	if c.src, err = os.ReadFile(path); err != nil {
		return err
	}
	file, err := parser.ParseFile(c.fset, path, c.src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			c.function = f.Name.Name
			var around []ast.Node // the nodes around n, the smallest last
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if n == nil {
					around = around[:len(around)-1]
					return true
				}
				if isCapacity(n, around) {
					return false
				}
				c.node(n, around)
				around = append(around, n)
				return true
			})
		}
	}
	return nil
}

// edit adds the fault that replaces the bytes of part, a part of node, by text.
func (c *collector) edit(node ast.Node, from, to token.Pos, text string) {
	at, end := c.offset(from), c.offset(to)
	start, stop := c.offset(node.Pos()), c.offset(node.End())
	f := fault{
		pkg: c.pkg, path: c.path, function: c.function, line: c.fset.Position(from).Line,
		old: oneLine(string(c.src[start:stop])), at: at, end: end, text: text,
	}
	f.new = oneLine(string(c.src[start:at]) + text + string(c.src[end:stop]))
	if f.new == "" {
		f.new = "(deleted)"
	}
	if f.old == f.new {
		return
	}
	key := f.key()
	f.copies = c.seen[key]
	c.seen[key]++
	c.found = append(c.found, f)
}

func (c *collector) replace(node ast.Node, text string) { c.edit(node, node.Pos(), node.End(), text) }

func (c *collector) source(n ast.Node) string {
	return string(c.src[c.offset(n.Pos()):c.offset(n.End())])
}

func (c *collector) offset(p token.Pos) int { return c.fset.Position(p).Offset }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
