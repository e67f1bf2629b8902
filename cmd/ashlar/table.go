package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// pageWidth is how many columns output has at most, where that can be chosen.
const pageWidth = 100

// A table is text in columns: the first on the left, whose cells are wrapped, and numbers on the right. Headers may
// have several lines.
type table struct {
	header []string
	rows   [][]string
	marked int // index of the row with a mark before it, or -1
}

// write writes the table, no wider than width if the first column can be wrapped to that.
func (t *table) write(w io.Writer, width int) {
	n := len(t.header)
	lines := 1
	for _, h := range t.header {
		lines = max(lines, strings.Count(h, "\n")+1)
	}
	// A column is as wide as its header, or a space wider than its cells: so that numbers are at least two apart.
	widths := make([]int, n)
	rest := 0
	for i := 1; i < n; i++ {
		for line := range strings.SplitSeq(t.header[i], "\n") {
			widths[i] = max(widths[i], utf8.RuneCountInString(line))
		}
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i])+1)
		}
		rest += widths[i] + 1
	}
	names := make([][]string, len(t.rows))
	widths[0] = utf8.RuneCountInString(t.header[0])
	for i, r := range t.rows {
		names[i] = wrap(r[0], max(width-rest-2, 16))
		for _, line := range names[i] {
			widths[0] = max(widths[0], utf8.RuneCountInString(line))
		}
	}
	for l := range lines {
		cells := make([]string, n)
		for i, h := range t.header {
			if parts := strings.Split(h, "\n"); l >= lines-len(parts) {
				cells[i] = parts[l-lines+len(parts)]
			}
		}
		writeRow(w, "  ", cells, widths)
	}
	for i, r := range t.rows {
		mark := "  "
		if i == t.marked {
			mark = "* "
		}
		for l, line := range names[i] {
			cells := make([]string, n)
			if l == 0 {
				copy(cells, r)
			} else {
				mark, line = "  ", "  "+line
			}
			cells[0] = line
			writeRow(w, mark, cells, widths)
		}
	}
}

func writeRow(w io.Writer, mark string, cells []string, widths []int) {
	var b strings.Builder
	b.WriteString(mark)
	b.WriteString(pad(cells[0], -widths[0]))
	for i := 1; i < len(cells); i++ {
		b.WriteString(" " + pad(cells[i], widths[i]))
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

// pad fills text with spaces up to a width: on the left, or on the right if the width is negative.
func pad(text string, width int) string {
	spaces := strings.Repeat(" ", max(0, max(width, -width)-utf8.RuneCountInString(text)))
	if width < 0 {
		return text + spaces
	}
	return spaces + text
}

// wrap breaks text into lines of at most width columns, after a comma, a colon, an underscore or a space if it can. All
// lines but the first leave room for two columns of indentation.
func wrap(text string, width int) []string {
	var lines []string
	for len(text) > width {
		at := strings.LastIndexAny(text[:width], ",:_ ") + 1
		if at == 0 {
			at = width
		}
		lines = append(lines, text[:at])
		text = text[at:]
		if len(lines) == 1 {
			width -= 2
		}
	}
	return append(lines, text)
}

// paragraph writes text in lines of at most pageWidth columns.
func paragraph(w io.Writer, indent, text string) {
	line := indent
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > pageWidth {
			fmt.Fprintln(w, line)
			line, empty = strings.Repeat(" ", utf8.RuneCountInString(indent)), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	fmt.Fprintln(w, line)
}

// count writes n with a comma between thousands.
func count[T int | int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// plural is count with a noun, which takes an s unless there is one.
func plural[T int | int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// duration writes d with three digits: 6.68ms, 169us, 2m5s.
func duration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return threeDigits(d.Seconds()) + "s"
	case d >= time.Millisecond:
		return threeDigits(float64(d)/1e6) + "ms"
	case d >= time.Microsecond:
		return threeDigits(float64(d)/1e3) + "us"
	}
	return fmt.Sprintf("%dns", d)
}

func threeDigits(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// percent writes part as a part of whole.
func percent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	p := 100 * float64(part) / float64(whole)
	if p > 0 && p < 9.95 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}
