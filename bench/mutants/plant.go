package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An outcome is how a run of the tests ended.
type outcome int

const (
	survived outcome = iota
	found
	late     // found by the time limit alone
	unusable // it does not compile
)

// A planter plants faults and counts the outcomes.
type planter struct {
	out    io.Writer
	o      options
	limits map[string]time.Duration // by import path
	scores map[string]*score
}

// A score is of one package.
type score struct{ planted, survived, late int }

func newPlanter(out io.Writer, o options) *planter {
	return &planter{out: out, o: o, limits: map[string]time.Duration{}, scores: map[string]*score{}}
}

// plantAll plants faults until there are enough, and prints the scores.
func (p *planter) plantAll(faults []fault) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	planted := 0
	for i := range faults {
		if planted == p.o.n && p.o.at == "" {
			break
		}
		how, err := p.plant(dir, &faults[i])
		if err != nil {
			return err
		}
		if how == unusable {
			continue
		}
		planted++
		p.count(&faults[i], how)
	}
	p.report()
	return nil
}

// plant runs the tests with a fault, package by package until one finds it.
func (p *planter) plant(dir string, f *fault) (outcome, error) {
	overlay, err := f.write(dir)
	if err != nil {
		return 0, err
	}
	for _, tester := range f.pkg.testers {
		limit, err := p.limit(tester)
		if err != nil {
			return 0, err
		}
		output, err := p.test(tester, limit, "-overlay="+overlay)
		switch {
		case err == nil:
		case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
			return unusable, nil
		case strings.Contains(output, "panic: test timed out after"):
			return late, nil
		default:
			return found, nil
		}
	}
	return survived, nil
}

// write writes the file with the fault to a folder, and returns the path of the overlay that puts it in place.
func (f *fault) write(dir string) (overlay string, err error) {
	original := filepath.Join(f.pkg.Module.Dir, filepath.FromSlash(f.path))
	src, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	copied := filepath.Join(dir, "fault.go")
	text := slices.Concat(src[:f.at], []byte(f.text), src[f.end:])
	names, err := json.Marshal(map[string]any{"Replace": map[string]string{original: copied}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(copied, text, 0o600); err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, names, 0o600)
}

// limit returns the time limit of a package's tests with a fault: five times what they take without one.
func (p *planter) limit(pkg *goPackage) (time.Duration, error) {
	if limit, ok := p.limits[pkg.ImportPath]; ok {
		return limit, nil
	}
	start := time.Now()
	if output, err := p.test(pkg, 0); err != nil {
		return 0, fmt.Errorf("the tests of %s fail without a fault: %w\n%s", pkg.ImportPath, err, output)
	}
	p.limits[pkg.ImportPath] = 20*time.Second + 5*time.Since(start)
	return p.limits[pkg.ImportPath], nil
}

// test runs the tests of a package.
func (p *planter) test(pkg *goPackage, limit time.Duration, flags ...string) (string, error) {
	args := append([]string{
		"test", "-short", "-failfast", "-count=1", "-vet=off", "-tags=" + p.o.tags,
		"-timeout=" + limit.String(), fmt.Sprintf("-race=%v", p.o.race),
	}, flags...)
	cmd := exec.Command("go", append(args, pkg.ImportPath)...)
	cmd.Dir = pkg.Module.Dir
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// count counts an outcome, and prints it if it is one to look at.
func (p *planter) count(f *fault, how outcome) {
	s := p.scores[f.pkg.ImportPath]
	if s == nil {
		s = &score{}
		p.scores[f.pkg.ImportPath] = s
	}
	s.planted++
	switch how {
	case survived:
		s.survived++
		fmt.Fprintln(p.out, "survived", f)
	case late:
		s.late++
		fmt.Fprintln(p.out, "late    ", f)
	default:
		if p.o.verbose {
			fmt.Fprintln(p.out, "found   ", f)
		}
	}
}

// report prints the scores, the lowest first.
func (p *planter) report() {
	var sum score
	names := slices.SortedFunc(maps.Keys(p.scores), func(x, y string) int {
		return cmp.Or(cmp.Compare(p.scores[x].share(), p.scores[y].share()), cmp.Compare(x, y))
	})
	for _, name := range names {
		s := p.scores[name]
		fmt.Fprintf(p.out, "%5.1f %%  %d of %d found, %d late  %s\n", s.share(), s.planted-s.survived, s.planted, s.late, name)
		sum.planted, sum.survived, sum.late = sum.planted+s.planted, sum.survived+s.survived, sum.late+s.late
	}
	fmt.Fprintf(p.out, "%5.1f %%  %d of %d found, %d late\n", sum.share(), sum.planted-sum.survived, sum.planted, sum.late)
}

// share is the percentage of faults found.
func (s *score) share() float64 {
	return 100 * float64(s.planted-s.survived) / float64(max(1, s.planted))
}
