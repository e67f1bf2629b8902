package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/oom.md and docs/guide.md show how the output of commands begins.
func TestTheRecipesShowTheOutput(t *testing.T) {
	for page, want := range map[string]int{"../../docs/oom.md": 2, "../../docs/guide.md": 2} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		lines := strings.Split(string(text), "\n")
		for i, command := range lines {
			_, args, isAshlar := strings.Cut(command, "ashlar ")
			if !isAshlar || !strings.HasPrefix(command, "    $ ") || !strings.Contains(args, "testdata/") {
				continue
			}
			shown++
			checkShown(t, page, args, lines[i+1:])
		}
		if shown < want {
			t.Errorf("%d commands of %s were run, want %d or more", shown, page, want)
		}
	}
}

// checkShown runs a command, whose last argument is a pattern of files, and compares its output with the indented lines
// that a page shows of it. A line "..." ends them.
func checkShown(t *testing.T, page, args string, lines []string) {
	t.Helper()
	fields := strings.Fields(args)
	last := len(fields) - 1
	paths, err := filepath.Glob(filepath.Join("../..", fields[last]))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no such file, %v", fields[last], err)
	}
	out := ashlar(t, nil, append(fields[:last], paths...)...).out
	for i, line := range lines {
		text, indented := strings.CutPrefix(line, "    ")
		if !indented && line != "" || line == "" && !strings.HasPrefix(lines[i+1], "    ") || text == "..." {
			return
		}
		rest, ok := strings.CutPrefix(out, text+"\n")
		if !ok {
			t.Errorf("%s: %s has %q, and the output continues\n%s", args, page, text, out)
			return
		}
		out = rest
	}
}
