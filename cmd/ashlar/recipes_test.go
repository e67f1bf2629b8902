package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/oom.md shows how the output of commands begins.
func TestTheRecipesShowTheOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/oom.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for block := range strings.SplitSeq(string(page), "\n\n") {
		command, output, _ := strings.Cut(block, "\n")
		_, args, isAshlar := strings.Cut(command, "ashlar ")
		if !isAshlar || !strings.HasPrefix(command, "    $ ") || !strings.Contains(args, "testdata/") {
			continue
		}
		shown++
		fields := strings.Fields(args)
		for i, f := range fields[1:] {
			paths, err := filepath.Glob(filepath.Join("../..", f))
			if err != nil || len(paths) == 0 {
				t.Fatalf("%s: no such file, %v", f, err)
			}
			if i == len(fields)-2 {
				fields = append(fields[:1+i], paths...)
			}
		}
		out := ashlar(t, nil, fields...).out
		for line := range strings.Lines(output) {
			line = strings.TrimPrefix(line, "    ")
			if rest, ok := strings.CutPrefix(out, line); ok {
				out = rest
			} else {
				t.Errorf("%s: docs/oom.md has %q, and the output continues\n%s", args, line, out)
				break
			}
		}
	}
	if shown < 2 {
		t.Errorf("%d commands of docs/oom.md were run, want 2 or more", shown)
	}
}
