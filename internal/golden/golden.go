// Package golden compares what a test prints with text files that people read and review.
//
// A script file is a list of cases. A case is some lines of input, a line "----" and the output that they must give:
//
//	# A block freed on s0 is not given to s1.
//	alloc a 512 on=s0
//	----
//	a = 0x000+512
//
// The output ends at the first blank line. Output that itself holds blank lines stands between doubled separators, two
// lines "----" before it and two after it. Lines of input that start with # are comments; blank lines before and
// between the lines of input are free. With the flag -update the outputs are written anew and everything else is kept
// as it was:
//
//	go test ./trace -update
//
// Cases run in the order of the file, as subtests named after the line of their first command. A file is never
// rewritten if one of its cases reported a failure of its own.
//
// It does no substitution and has no conditions: output that differs from machine to machine is the test's to clean.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the outputs in golden files anew")

// Run runs every case of the script files that match pattern, as filepath.Glob has it, and compares what run returns
// with the output that the file has. It is fatal if no file matches.
func Run(t *testing.T, pattern string, run func(t *testing.T, c *Case) string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("golden: no file matches %q (%v)", pattern, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("golden: %v", err)
			}
			s, err := parse(path, string(text), *update)
			if err != nil {
				t.Fatalf("golden: %v", err)
			}
			for _, c := range s.cases {
				t.Run(fmt.Sprintf("line%d", c.Line), func(t *testing.T) {
					c.output, c.ran = normal(run(t, c)), true
					if strings.Contains("\n"+c.output, "\n"+separator+"\n") {
						t.Fatalf("%s:%d: the output has a line %q, as no script file can", path, c.Line, separator)
					}
					if d := diff(c.Expected, c.output); d != "" && !*update {
						t.Errorf("%s:%d: output differs (-update writes it anew)\n%s%s", path, c.Line, c.Input, d)
					}
				})
			}
			if *update && !t.Failed() {
				write(t, path, s.format())
			}
		})
	}
}

// File compares got with the file at path, and with the flag -update writes it there.
func File(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		write(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("golden: %v (-update writes it)", err)
	}
	if d := diff(string(want), got); d != "" {
		t.Errorf("%s: output differs (-update writes it anew)\n%s", path, d)
	}
}

// write writes text to path unless it is there already, so that an update leaves the times of unchanged files alone.
func write(t testing.TB, path, text string) {
	t.Helper()
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatalf("golden: %v", err)
	}
}

// normal ends text in one newline, or leaves it empty.
func normal(text string) string {
	if text = strings.TrimRight(text, "\n"); text != "" {
		text += "\n"
	}
	return text
}
