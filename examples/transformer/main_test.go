package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// with returns the options of a command line in this directory.
func with(t testing.TB, line string) options {
	t.Helper()
	o, err := parse(strings.Fields("-file data/block.safetensors " + line))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A run fails if its errors exceed the bound of its type. The errors of bfloat16 are above those of float32, so the
// type took effect.
func TestAgreesWithPyTorch(t *testing.T) { agrees(t, "host") }

func agrees(t *testing.T, device string) {
	t.Helper()
	for name, least := range map[string]float64{"float32": 0, "bfloat16": 1.0 / (1 << 10)} {
		r, err := run(t.Context(), io.Discard, with(t, fmt.Sprintf("-device %s -type %s", device, name)))
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s on %s: errors of at most %.2g of the greatest output", name, device, r.worst/r.greatest)
		if r.worst <= least*r.greatest {
			t.Errorf("%s on %s: errors of at most %g of the greatest output, want more than %g", name, device, r.worst/r.greatest, least)
		}
	}
}

// A file whose weights do not belong to its output is refused, in either type.
func TestTellsWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wrong.safetensors")
	p, err := compute.Open("host")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := p.Scope()
	defer s.Close()
	f, err := safetensors.Open("data/block.safetensors", safetensors.Options{Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensors, err := f.LoadAll(t.Context(), s.Place, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tensors["rotary.sin"].Fill(nil, 0); err != nil { // positions become hard to distinguish
		t.Fatal(err)
	}
	if err := safetensors.WriteFile(path, tensors, f.Metadata()); err != nil {
		t.Fatal(err)
	}
	for name := range types {
		_, err := run(t.Context(), io.Discard, with(t, "-file "+path+" -type "+name))
		if err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: the error is %v, want one that says that the error is too large", name, err)
		}
	}
}

// The default limits can be met only with compaction.
func TestLimit(t *testing.T) { meetsLimit(t, "host") }

func meetsLimit(t *testing.T, device string) {
	t.Helper()
	const margin = 16 << 10
	for name, kind := range types {
		for _, limit := range []int64{kind.limit - margin, kind.limit, kind.limit + margin} {
			line := fmt.Sprintf("-device %s -type %s -limit %d", device, name, limit)
			if r, err := run(t.Context(), io.Discard, with(t, line)); err != nil || r.moves.Compactions == 0 || r.moves.Bytes == 0 {
				t.Errorf("%s: %+v was moved, %v", line, r.moves, err)
			}
			line += " -compact=false"
			if _, err := run(t.Context(), io.Discard, with(t, line)); !errors.Is(err, mem.ErrNoMemory) {
				t.Errorf("%s: the error is %v, want one that matches mem.ErrNoMemory", line, err)
			}
		}
	}
}

var rounded = regexp.MustCompile(`[0-9.]+e-[0-9]+|[0-9]+\.[0-9]+`)

// The output of the program is the same each time, except for rounded numbers.
func TestPrints(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T, c *golden.Case) string {
		var printed strings.Builder
		for line := range strings.Lines(c.Input) {
			args, ok := strings.CutPrefix(line, "transformer")
			if !ok {
				continue // a comment
			}
			if _, err := run(t.Context(), &printed, with(t, args)); err != nil {
				short, _, _ := strings.Cut(err.Error(), ". ") // the rest is the machine's figures
				fmt.Fprintln(&printed, short)
			}
		}
		return rounded.ReplaceAllString(printed.String(), "#")
	})
}
