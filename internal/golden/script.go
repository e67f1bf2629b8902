package golden

import (
	"fmt"
	"iter"
	"strings"
)

const (
	separator = "----"
	doubled   = separator + "\n" + separator + "\n"
)

// A Case is some lines of input and the output that they must give.
type Case struct {
	Path     string // the file
	Line     int    // of the first command, counted from 1
	Input    string // the lines before the separator, with comments, without the blank lines above them
	Expected string // the lines after it, each ending in a newline

	first  int    // line of the first line of Input
	lead   string // the blank lines before Input
	output string // what the run gave
	ran    bool
}

// Commands visits the lines of the input that are neither blank nor comments, split at white space, each with its line
// number in the file.
func (c *Case) Commands() iter.Seq2[int, []string] {
	return func(yield func(int, []string) bool) {
		line := c.first
		for text := range strings.Lines(c.Input) {
			if fields := command(text); fields != nil && !yield(line, fields) {
				return
			}
			line++
		}
	}
}

// command splits a line of input, and returns nil for one without a command.
func command(line string) []string {
	fields := strings.Fields(line)
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return nil
	}
	return fields
}

// A script is a parsed file: its cases, and the blank lines and comments after the last.
type script struct {
	cases []*Case
	tail  string
}

// parse reads a script. If unfinished is set, commands at the end may lack a separator and an output.
func parse(path, text string, unfinished bool) (*script, error) {
	s := &script{}
	lines := strings.SplitAfter(normal(text), "\n")
	lines = lines[:len(lines)-1]
	for at := 0; at < len(lines); {
		c := &Case{Path: path}
		for ; at < len(lines) && strings.TrimSpace(lines[at]) == ""; at++ {
			c.lead += lines[at]
		}
		c.first = at + 1
		for ; at < len(lines) && lines[at] != separator+"\n"; at++ {
			if c.Line == 0 && command(lines[at]) != nil {
				c.Line = at + 1
			}
			c.Input += lines[at]
		}
		switch {
		case c.Line == 0 && at == len(lines):
			s.tail = c.lead + c.Input
			return s, nil
		case c.Line == 0:
			return nil, fmt.Errorf("%s:%d: %q without commands above it", path, at+1, separator)
		case at == len(lines) && !unfinished:
			return nil, fmt.Errorf("%s:%d: commands without %q and output (-update writes them)", path, c.Line,
				separator)
		}
		var ok bool
		if c.Expected, at, ok = expected(lines, at); !ok {
			return nil, fmt.Errorf("%s:%d: an output that starts with %q twice must end so", path, c.Line, separator)
		}
		s.cases = append(s.cases, c)
	}
	return s, nil
}

// expected reads the output below the separator at lines[at] and returns the index of the line after it.
func expected(lines []string, at int) (output string, next int, ok bool) {
	isSeparator := func(i int) bool { return i < len(lines) && lines[i] == separator+"\n" }
	if at == len(lines) {
		return "", at, true
	}
	if at++; !isSeparator(at) {
		start := at
		for at < len(lines) && strings.TrimSpace(lines[at]) != "" {
			at++
		}
		return strings.Join(lines[start:at], ""), at, true
	}
	at++
	for start := at; at < len(lines); at++ {
		if isSeparator(at) && isSeparator(at+1) {
			return strings.Join(lines[start:at], ""), at + 2, true
		}
	}
	return "", at, false
}

// format writes the script with the outputs of the cases that ran. Two cases have at least a blank line between them.
func (s *script) format() string {
	var b strings.Builder
	for i, c := range s.cases {
		if i > 0 && c.lead == "" {
			b.WriteString("\n")
		}
		b.WriteString(c.lead + c.Input)
		output := c.Expected
		if c.ran {
			output = c.output
		}
		if needsDouble(output) {
			b.WriteString(doubled + output + doubled)
		} else {
			b.WriteString(separator + "\n" + output)
		}
	}
	b.WriteString(s.tail)
	return b.String()
}

// needsDouble reports whether an output would end too early between single separators.
func needsDouble(output string) bool {
	for line := range strings.Lines(output) {
		if strings.TrimSpace(line) == "" {
			return true
		}
	}
	return false
}
