package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// A goPackage is what go list says of a package.
type goPackage struct {
	Dir          string
	ImportPath   string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Module       struct{ Dir, Path string }

	testers []*goPackage // whose tests can find its faults, itself first
}

func (p *goPackage) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

func (p *goPackage) internal() bool { return strings.Contains(p.ImportPath+"/", "/internal/") }

// list returns the packages whose faults tests can find. The tests of a package find them, and, if the package is
// internal, also those of the packages that import it: users see it through them alone.
func list(o options) ([]*goPackage, error) {
	pkgs, err := goList(o.tags, o.patterns)
	if err != nil || len(pkgs) == 0 {
		return nil, err
	}
	module, err := goList(o.tags, []string{pkgs[0].Module.Path + "/..."})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pkgs, func(p *goPackage) bool {
		p.setTesters(module)
		return len(p.testers) == 0
	}), nil
}

// setTesters sets the packages whose tests can find faults of p. An internal package that only tests import has none:
// it is part of the tests.
func (p *goPackage) setTesters(module []*goPackage) {
	if p.tested() {
		p.testers = append(p.testers, p)
	}
	if !p.internal() {
		return
	}
	imported := false
	for _, by := range module {
		if slices.Contains(by.Imports, p.ImportPath) {
			imported = true
			if by.tested() {
				p.testers = append(p.testers, by)
			}
		}
	}
	if !imported {
		p.testers = nil
	}
}

// goList returns the packages with Go files that patterns match.
func goList(tags string, patterns []string) ([]*goPackage, error) {
	args := []string{"list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Imports,Module", "-tags", tags, "--"}
	cmd := exec.Command("go", append(args, patterns...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	var pkgs []*goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &goPackage{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.GoFiles) > 0 {
			pkgs = append(pkgs, p)
		}
	}
}
