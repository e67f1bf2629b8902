package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	pageWidth = 100 // columns of output that no terminal shows, and of prose at most
	minWidth  = 40
	maxWord   = 400 // runes of a word, or of a name

	pageBuffer = 64 << 10 // bytes that are written together
)

// A page is the output of results. It keeps the first error of a write and ignores further output, so commands need not
// check.
type page struct {
	w      io.Writer
	width  int           // columns
	buffer *bufio.Writer // over w; nil if each Write goes there at once
	err    error
}

func newPage(w io.Writer) *page {
	p := &page{w: w, width: pageWidth}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			p.width = max(width, minWidth)
		}
	}
	return p
}

// newBufferedPage is newPage for many lines: they are written together, when there are enough of them and at flush.
func newBufferedPage(w io.Writer) *page {
	p := newPage(w)
	p.buffer = bufio.NewWriterSize(w, pageBuffer)
	return p
}

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	switch {
	case p.err != nil:
	case p.buffer != nil:
		_, p.err = p.buffer.Write(b)
	default:
		_, p.err = p.w.Write(b)
	}
	return len(b), nil
}

// flush writes the buffered output, and reports whether further output may still be read.
func (p *page) flush() bool {
	if p.err == nil && p.buffer != nil {
		p.err = p.buffer.Flush()
	}
	return p.err == nil
}

// failed returns the first error, unless it is that a reader, such as head, closed the pipe.
func (p *page) failed() error {
	p.flush()
	if errors.Is(p.err, syscall.EPIPE) || errors.Is(p.err, io.ErrClosedPipe) {
		return nil
	}
	return p.err
}

// paragraph writes text in lines of at most the page's width, and never more than pageWidth. Words are cut at maxWord.
func (p *page) paragraph(indent, text string) {
	width := min(p.width, pageWidth)
	line := indent
	empty := true
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		word := clean(words[i], maxWord)
		if i+1 < len(words) && strings.HasPrefix(words[i+1], "%") {
			i++ // stays with its number
			word += " " + clean(words[i], maxWord)
		}
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			fmt.Fprintln(p, line)
			line, empty = strings.Repeat(" ", utf8.RuneCountInString(indent)), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	fmt.Fprintln(p, line)
}

// clean makes text from a file safe for a terminal: unprintable characters are escaped as in Go, and text of more than
// most runes is cut.
func clean(text string, most int) string {
	var b strings.Builder
	n := 0
	for i, r := range text {
		switch {
		case n >= most:
			return b.String() + "..."
		case r == utf8.RuneError && !utf8.ValidString(text[i:min(len(text), i+utf8.RuneLen(r))]):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		n++
	}
	return b.String()
}

// cleanLines is clean for each line of a text.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = clean(line, 10*maxWord)
	}
	return strings.Join(lines, "\n")
}
