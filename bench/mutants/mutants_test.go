package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// write writes the files of a module of its own into a folder, and makes that the working directory.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module planted\n\ngo 1.26\n"
	for name, text := range files {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
}

// faultsOf returns the faults of the package in the working directory, as text.
func faultsOf(t *testing.T, text func(f *fault) string) (all []string) {
	t.Helper()
	pkgs, err := list(options{patterns: []string{"."}})
	testkit.Must(t, err)
	faults, err := pkgs[0].faults()
	testkit.Must(t, err)
	for i := range faults {
		all = append(all, text(&faults[i]))
	}
	return all
}

// Every operator finds its places, and each fault has a key of its own.
func TestFaults(t *testing.T) {
	write(t, map[string]string{
		"p.go": `package p

func f(a, b int, g func(int, int) error) (n int, err error) {
	if a < b && b != 7 {
		n += a
	}
	n--
	if !ok {
		n = min(a, b)
	}
	switch {
	case a > b:
		n++
	case ok:
	}
	if a < b {
		g(a, b)
	}
	err = g(b, a)
	return n, err
}

var ok = true
`,
		"p_test.go": "package p\n",
	})
	got := faultsOf(t, (*fault).key)
	for _, want := range []string{
		"a < b && b != 7 -> !(a < b && b != 7)", "a < b && b != 7 -> a < b || b != 7", "a < b && b != 7 -> a < b",
		"a < b && b != 7 -> b != 7", "a < b -> a <= b", "b != 7 -> b == 7", "b != 7 -> b != 8", "n += a -> n -= a",
		"n += a -> (deleted)", "n-- -> n++", "n-- -> (deleted)", "!ok -> ok", "n = min(a, b) -> n = max(a, b)",
		"a > b -> !(a > b)", "a > b -> a >= b", "if a < b { g(a, b) } -> (deleted)", "a < b -> a <= b (2)",
		"g(a, b) -> g(b, a)", "g(a, b) -> (deleted)", "err = g(b, a) -> (deleted)", "return n, err -> return n, nil",
	} {
		if !slices.Contains(got, "p.go: f: "+want) {
			t.Errorf("no fault %q", want)
		}
	}
	slices.Sort(got)
	if n := len(got); len(slices.Compact(got)) != n {
		t.Errorf("two faults have the same key: %q", got)
	}
	if t.Failed() {
		t.Logf("%s", strings.Join(got, "\n"))
	}
}

// Faults that no user can notice are not planted, and those next to them are.
func TestUnseen(t *testing.T) {
	write(t, map[string]string{
		"p.go": `package p

import (
	"errors"
	"fmt"
)

var errNone = errors.New("none")

func numbers(n, m int, err error) (int, error) {
	if err != nil && n > 0 {
		return 1, err
	}
	switch {
	case n == 1:
		return 2, errNone
	case n == 2:
		return 3, fmt.Errorf("%d of %d", n, m)
	case n == 3:
		return 4, wrong("%d of "+"%d", n, m)
	case n == 4:
		return 5, errors.Join(err, errNone)
	}
	for _, x := range append(make([]int, n, n+6), len(make(map[int]int, 7))) {
		if x > 0 {
			return 8, nil
		}
	}
	return len(make([]int, 9)), err
}
`,
		"p_test.go": "package p\n",
	})
	got := faultsOf(t, (*fault).edit)
	for _, unseen := range []string{
		"return 1, err -> return 2, err", "return 2, errNone -> return 3, errNone", "return 3, ", "n+6", "int, 7",
		"(\"%d of %d\", n, m) ->", "wrong(", "errors.Join(err, errNone) -> errors.Join(",
	} {
		if i := slices.IndexFunc(got, func(edit string) bool { return strings.HasPrefix(edit, "numbers: "+unseen) }); i >= 0 {
			t.Errorf("%q is planted", got[i])
		}
	}
	for _, seen := range []string{
		"return 1, err -> return 1, nil", "return 8, nil -> return 9, nil", "return 5, errors.Join(err, errNone) -> return 6",
		"return len(make([]int, 9)), err -> return len(make([]int, 10)), err", "return 4, wrong(",
	} {
		if !slices.ContainsFunc(got, func(edit string) bool { return strings.HasPrefix(edit, "numbers: "+seen) }) {
			t.Errorf("no fault %q in\n%s", seen, strings.Join(got, "\n"))
		}
	}
}

// The tests of a package that imports an internal one count for it. An internal package of tests has no faults.
func TestInternalPackages(t *testing.T) {
	write(t, map[string]string{
		"p.go":                    "package p\n\nimport \"planted/internal/add\"\n\nfunc Three() int { return add.Add(2, 1) }\n",
		"p_test.go":               "package p\n\nimport (\n\t\"testing\"\n\t_ \"planted/internal/fake\"\n)\n\nfunc Test(t *testing.T) {\n\tif Three() != 3 {\n\t\tt.Fail()\n\t}\n}\n",
		"internal/add/add.go":     "package add\n\nfunc Add(a, b int) int { return a + b }\n",
		"internal/fake/fake.go":   "package fake\n\nfunc Twice(n int) int { return n + n }\n",
		"internal/fake/a_test.go": "package fake\n",
		"untested/u.go":           "package untested\n\nfunc Twice(n int) int { return n + n }\n",
	})
	var out strings.Builder
	testkit.Must(t, run(&out, options{seed: 1, n: 100, verbose: true, patterns: []string{"./internal/...", "./untested"}}))
	if want := "100.0 %  1 of 1 found, 0 late  planted/internal/add\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, &out)
	}
}

// Faults that tests find count, those that no test finds are printed, and those that do not compile are left out.
func TestScore(t *testing.T) {
	write(t, map[string]string{
		"p.go": `package p

func Add(a, b int) int { return a + b }

func Unseen(s string) string { return s + "." }

func Twice(n int) int {
	n *= 2
	return 0 + n
}
`,
		"p_test.go": `package p

import "testing"

func TestAdd(t *testing.T) {
	if Add(2, 1) != 3 {
		t.Fail()
	}
}
`,
	})
	var out strings.Builder
	testkit.Must(t, run(&out, options{seed: 1, n: 100, verbose: true, patterns: []string{"."}}))
	for _, want := range []string{
		"found    p.go:3: Add: a + b -> a - b\n",
		"survived p.go:8: Twice: n *= 2 -> (deleted)\n",
		"survived p.go:9: Twice: 0 + n -> 0 - n\n",
		" 20.0 %  1 of 5 found, 0 late\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(out.String(), "Unseen") { // a difference of strings
		t.Error("a fault that does not compile is counted")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// Each fault of equivalent.txt is one that can be planted today.
func TestEquivalents(t *testing.T) {
	reasons, err := readEquivalents()
	testkit.Must(t, err)
	t.Chdir(filepath.Join("..", ".."))
	possible := map[string]bool{}
	pkgs, err := list(options{patterns: []string{"./..."}})
	testkit.Must(t, err)
	for _, p := range pkgs {
		faults, err := p.faults()
		testkit.Must(t, err)
		for _, f := range faults {
			possible[f.key()] = true
		}
	}
	for key, reason := range reasons {
		if !possible[key] || len(reason) < 20 {
			t.Errorf("%s: %q: there is no such fault, or its reason is missing", key, reason)
		}
	}
}
