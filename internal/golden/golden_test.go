package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// sums adds up each line of input.
func sums(t *testing.T, c *Case) string {
	var out []string
	for line, fields := range c.Commands() {
		sum := 0
		for _, f := range fields {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatalf("%s:%d: %v", c.Path, line, err)
			}
			sum += n
		}
		text := strconv.Itoa(sum)
		if len(fields) == 1 {
			text += fmt.Sprintf(" at line %d", line)
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n\n")
}

func TestRun(t *testing.T) {
	Run(t, "testdata/*.txt", sums)
}

func TestParse(t *testing.T) {
	text := "# head\n\nalloc a 1\n----\na = 0\n\n\n# second\nfree a\n\nalloc b 2\n----\n\n" +
		"alloc c 3\n----\n----\none\n\nthree\n----\n----\n\n# tail\n"
	s, err := parse("x.txt", text, false)
	if err != nil {
		t.Fatal(err)
	}
	type plain struct {
		line            int
		input, expected string
	}
	want := []plain{
		{3, "# head\n\nalloc a 1\n", "a = 0\n"},
		{9, "# second\nfree a\n\nalloc b 2\n", ""},
		{14, "alloc c 3\n", "one\n\nthree\n"},
	}
	var got []plain
	for _, c := range s.cases {
		got = append(got, plain{c.Line, c.Input, c.Expected})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if back := s.format(); back != text {
		t.Errorf("format of an unchanged script is\n%s\nwant\n%s", back, text)
	}
}

func TestCommandsCountsLines(t *testing.T) {
	s, err := parse("x.txt", "\n\n# note\nalloc  a 1\n\n  # indented\nfree a\n----\n", false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line, fields := range s.cases[0].Commands() {
		got = append(got, fmt.Sprint(line, fields))
	}
	if want := []string{"4 [alloc a 1]", "7 [free a]"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no separator", "\nalloc a 1\n", "x.txt:2: commands without"},
		{"no commands", "# only a comment\n----\nout\n", "x.txt:2: \"----\" without commands"},
		{"open double", "alloc a 1\n----\n----\nout\n----\n", "x.txt:1: an output that starts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parse("x.txt", c.text, false); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestFormatRoundTrip writes outputs of every awkward kind and reads them back.
func TestFormatRoundTrip(t *testing.T) {
	for _, output := range []string{"", "one\n", "one\n\nthree\n", "\nsecond\n", "a\n \nb\n", "-----\n"} {
		s := &script{cases: []*Case{
			{Line: 1, Input: "first\n", output: output, ran: true},
			{Line: 9, Input: "second\n", Expected: "kept\n"},
		}}
		text := s.format()
		back, err := parse("x.txt", text, false)
		if err != nil {
			t.Errorf("output %q is written as %q: %v", output, text, err)
			continue
		}
		if len(back.cases) != 2 || back.cases[0].Expected != output || back.cases[1].Expected != "kept\n" {
			t.Errorf("output %q is written as %q and read back as %d cases", output, text, len(back.cases))
		}
		if again := back.format(); again != text {
			t.Errorf("output %q is written as %q and then as %q", output, text, again)
		}
	}
}

func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.txt")
	text := "# Kept.\n1 1\n----\nold\n\n# Kept too.\n\n2 2\n3\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	defer func(was bool) { *update = was }(*update)
	*update = true
	Run(t, path, sums)
	want := "# Kept.\n1 1\n----\n2\n\n# Kept too.\n\n2 2\n3\n----\n----\n4\n\n3 at line 9\n----\n----\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("after an update the file is (%v)\n%s\nwant\n%s", err, got, want)
	}

	whole := filepath.Join(t.TempDir(), "whole.txt")
	File(t, whole, "any\n\ntext")
	*update = false
	File(t, whole, "any\n\ntext")
}

// recorder is a testing.TB that keeps what a test reports instead of failing.
type recorder struct {
	testing.TB
	reports []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.reports = append(r.reports, fmt.Sprintf(format, args...))
}

func TestFileReportsADifference(t *testing.T) {
	if *update {
		return
	}
	path := filepath.Join(t.TempDir(), "whole.txt")
	if err := os.WriteFile(path, []byte("a\nb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	File(r, path, "a\nc\n")
	if len(r.reports) != 1 || !strings.Contains(r.reports[0], "- b\n+ c\n") {
		t.Errorf("reports %q, want one with the difference", r.reports)
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ want, got, diff string }{
		{"same\n", "same\n", ""},
		{
			"1\n2\n3\n4\n5\n6\n", "1\n2\n3\nfour\n5\n6\n",
			"line 4 of the output, - wanted, + got:\n  2\n  3\n- 4\n+ four\n  5\n  6\n",
		},
		{"1\n", "1\n2\n", "line 2 of the output, - wanted, + got:\n  1\n+ 2\n"},
		{"", "1\n", "line 1 of the output, - wanted, + got:\n+ 1\n"},
		{"1\n", "1", "line 1 of the output, - wanted, + got:\n- 1\n+ 1\n(only the newline at the end differs)\n"},
	} {
		if d := diff(c.want, c.got); d != c.diff {
			t.Errorf("diff(%q, %q) =\n%s\nwant\n%s", c.want, c.got, d, c.diff)
		}
	}
}
