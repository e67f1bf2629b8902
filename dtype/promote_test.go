package dtype_test

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

// golden returns the fields of the lines of a file of testdata that are no comments.
func golden(t *testing.T, name string) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines [][]string
	for s := bufio.NewScanner(f); s.Scan(); {
		if !strings.HasPrefix(s.Text(), "#") {
			lines = append(lines, strings.Fields(s.Text()))
		}
	}
	if len(lines) < 100 {
		t.Fatalf("%s: %d lines: not the file that its script writes", name, len(lines))
	}
	return lines
}

func parse(t *testing.T, name string) dtype.DType {
	t.Helper()
	d, err := dtype.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPromoteAsPyTorch(t *testing.T) {
	for _, line := range golden(t, "promote.txt") {
		a, b, want := parse(t, line[0]), parse(t, line[1]), parse(t, line[2])
		if got, err := dtype.Promote(a, b); got != want || err != nil {
			t.Errorf("Promote(%v, %v) = %v, %v; PyTorch has %v", a, b, got, err, want)
		}
	}
}

// The types that PyTorch 1.13 lacks, by c10/core/ScalarType.cpp of PyTorch 2 (promoteTypes).
func TestPromoteOfLaterTypes(t *testing.T) {
	unsigned := map[dtype.DType]bool{dtype.Uint16: true, dtype.Uint32: true, dtype.Uint64: true}
	eight := map[dtype.DType]bool{dtype.Float8E5M2: true, dtype.Float8E4M3FN: true}
	pairs := 0
	for _, a := range dtype.All() {
		for _, b := range dtype.All() {
			if !unsigned[a] && !unsigned[b] && !eight[a] && !eight[b] {
				continue
			}
			pairs++
			want := dtype.Invalid
			switch {
			case a == b:
				want = a
			case eight[a] || eight[b]:
			case a.IsFloat():
				want = a
			case b.IsFloat():
				want = b
			}
			got, err := dtype.Promote(a, b)
			if got != want || (err == nil) != (want != dtype.Invalid) {
				t.Errorf("Promote(%v, %v) = %v, %v; want %v", a, b, got, err, want)
			}
			var e *dtype.PromotionError
			if err == nil {
				continue
			}
			if !errors.As(err, &e) || !strings.Contains(err.Error(), a.String()) || !strings.Contains(err.Error(), b.String()) {
				t.Errorf("Promote(%v, %v): the error %q does not name both", a, b, err)
			}
		}
	}
	if pairs != 17*17-12*12 {
		t.Errorf("%d pairs", pairs)
	}
}
