package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// maxScriptLine is the maximum length of a line of a script in bytes, with its newline.
const maxScriptLine = 64 << 10

// ReadScript parses the text form of a Script, line by line, up to the first invalid line. The error is a *ScriptError,
// or wraps an error of r. A line has at most 64 KiB. Each line is checked on its own: whether a freed block exists, for
// example, is checked when the script is run.
func ReadScript(r io.Reader) (*Script, error) {
	lines := bufio.NewReaderSize(r, maxScriptLine)
	s := &Script{}
	for number := 1; ; number++ {
		text, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, &ScriptError{
				Line: number, Column: 1,
				What: fmt.Sprintf("the line has more than %d bytes", maxScriptLine),
			}
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("script: line %d: %w", number, err)
		case len(text) == 0:
			return s, nil
		}
		line := strings.TrimSuffix(string(text), "\n")
		if strings.TrimSuffix(line, "\r") == scriptSeparator {
			expected, err := io.ReadAll(lines)
			if err != nil {
				return nil, fmt.Errorf("script: %w", err)
			}
			s.HasExpected, s.Expected = true, string(expected)
			return s, nil
		}
		l := lineParser{line: number, text: line, size: len(strings.TrimRight(line, scriptBlanks))}
		c, err := l.command()
		if err != nil {
			return nil, err
		}
		s.Commands = append(s.Commands, c)
	}
}

// ParseScript is ReadScript for a string.
func ParseScript(text string) (*Script, error) { return ReadScript(strings.NewReader(text)) }

const scriptBlanks = " \t\r"

// A lineParser reads one line, word by word.
type lineParser struct {
	line   int
	text   string
	at     int // offset of the next unread byte
	size   int // length without trailing blanks
	column int // of the last word, or of the place where one was expected; from 1
}

// word returns the next word, or "" at the end or before a comment.
func (l *lineParser) word() string {
	for l.at < l.size && strings.IndexByte(scriptBlanks, l.text[l.at]) >= 0 {
		l.at++
	}
	l.column = l.at + 1
	if l.at >= l.size || l.text[l.at] == '#' {
		return ""
	}
	start := l.at
	for l.at < l.size && strings.IndexByte(scriptBlanks, l.text[l.at]) < 0 {
		l.at++
	}
	return l.text[start:l.at]
}

func (l *lineParser) fail(format string, args ...any) error {
	return &ScriptError{Line: l.line, Column: l.column, What: fmt.Sprintf(format, args...)}
}

// command reads the whole line.
func (l *lineParser) command() (Command, error) {
	var c Command
	var err error
	verb := l.word()
	if n := slices.Index(verbNames[:], verb); n >= 0 {
		c.Verb = Verb(n)
	} else {
		return c, l.fail("unknown command %.100q: want one of %s", verb, strings.Join(verbNames[1:], ", "))
	}
	if err = l.operands(&c); err != nil {
		return c, err
	}
	free := c.Verb == VerbDevice || c.Verb == VerbAllocator || c.Verb == VerbStats
	var seen []string
	for w := l.word(); w != ""; w = l.word() {
		if key, _, _ := strings.Cut(w, "="); !free {
			if slices.Contains(seen, key) {
				return c, l.fail("%s given twice", key)
			}
			seen = append(seen, key)
		}
		if err = l.option(&c, w); err != nil {
			return c, err
		}
	}
	c.Comment = l.text[l.at:l.size]
	return c, nil
}

// operands reads the words that must follow the verb.
func (l *lineParser) operands(c *Command) (err error) {
	switch c.Verb {
	case VerbDevice, VerbAllocator:
		if c.Name = l.word(); c.Name == "" || strings.ContainsAny(c.Name, ":=") {
			example := "device sim total=1MiB"
			if c.Verb == VerbAllocator {
				example = "allocator caching"
			}
			return l.fail("%q: want a name, as in %q", c.Name, example)
		}
	case VerbAlloc:
		if c.Name, err = l.block(); err == nil {
			c.Size, err = l.bytes()
		}
	case VerbTry, VerbLimit:
		c.Size, err = l.bytes()
	case VerbFree, VerbComplete:
		c.Name, err = l.block()
	case VerbWork, VerbSync:
		c.Stream, err = l.stream(l.word(), 0)
	case VerbWait:
		if c.Stream, err = l.stream(l.word(), 0); err == nil {
			c.Other, err = l.stream(l.word(), 0)
		}
	}
	return err
}

// option reads one word that may follow the operands.
func (l *lineParser) option(c *Command, w string) (err error) {
	key, value, _ := strings.Cut(w, "=")
	offset := len(key) + 1
	switch c.Verb {
	case VerbDevice, VerbAllocator, VerbStats:
		c.Args = append(c.Args, w)
		return nil
	case VerbAlloc, VerbTry:
		switch key {
		case "on":
			c.Stream, err = l.stream(value, offset)
			return err
		case "pool":
			c.Pool, err = l.pool(value, offset)
			return err
		}
		return l.fail("%q: want on=STREAM, pool=A,B or the end of the line", w)
	case VerbFree:
		switch {
		case key == "used" && !c.Pending:
			for name := range strings.SplitSeq(value, ",") {
				s, err := l.stream(name, offset)
				if err != nil {
					return err
				}
				c.Used = append(c.Used, s)
				offset += len(name) + 1
			}
			return nil
		case w == "pending" && c.Used == nil:
			c.Pending = true
			return nil
		case key == "used" || w == "pending":
			return l.fail("%q: used= and pending exclude each other", w)
		}
		return l.fail("%q: want used=STREAM,STREAM..., pending or the end of the line", w)
	}
	return l.fail("%q: want the end of the line", w)
}

func (l *lineParser) block() (string, error) {
	name := l.word()
	valid := name != ""
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_'
		valid = valid && (letter || i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '-'))
	}
	if !valid {
		return "", l.fail("%q: want the name of a block, such as a, b2 or layer.0", name)
	}
	return name, nil
}

func (l *lineParser) bytes() (int64, error) {
	w := l.word()
	n, err := bytesize.Parse(w)
	if err != nil {
		return 0, l.fail("%v", err)
	}
	return n, nil
}

// stream parses the name of a stream, which begins offset bytes into the last word.
func (l *lineParser) stream(name string, offset int) (uint32, error) {
	digits, ok := strings.CutPrefix(name, "s")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n > MaxScriptStream || digits != strconv.FormatUint(n, 10) {
		l.column += offset
		return 0, l.fail("%q: want a stream, s0 to s%d", name, MaxScriptStream)
	}
	return uint32(n), nil
}

func (l *lineParser) pool(value string, offset int) (mem.PoolID, error) {
	first, second, ok := strings.Cut(value, ",")
	a, err1 := strconv.ParseUint(first, 10, 64)
	b, err2 := strconv.ParseUint(second, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		l.column += offset
		return mem.PoolID{}, l.fail("%q: want a pool as two numbers, such as 0,1", value)
	}
	return mem.PoolID{a, b}, nil
}
