package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/allocconf"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// maxBeside is the maximum width of settings beside the other columns.
const maxBeside = 26

// A table is text in columns: settings on the left, and numbers on the right. Headers may have several lines.
type table struct {
	header   []string
	rows     [][]string
	spare    []int // columns that give way to settings on one line, in the order in which they are given up
	optional []int // columns that a narrow page does without if that is not enough, in this order
	marked   int   // index of the row with a mark before it, or -1
}

// write writes the table. Settings that are too wide are on lines of their own, broken after commas only so that they
// can be copied.
func (t *table) write(p *page) {
	shown := make([]int, len(t.header)) // columns
	for i := range shown {
		shown[i] = i
	}
	first := utf8.RuneCountInString(t.header[0])
	longest := first
	for _, r := range t.rows {
		longest = max(longest, min(utf8.RuneCountInString(r[0]), maxBeside))
	}
	widths, rest := t.widths(shown)
	give := func(columns []int, room int) {
		for _, c := range columns {
			if 2+room+rest <= p.width {
				return
			}
			shown = slices.DeleteFunc(shown, func(i int) bool { return i == c })
			widths, rest = t.widths(shown)
		}
	}
	give(t.spare, longest)
	give(t.optional, first)
	room := max(p.width-rest-2, first)
	names := make([][]string, len(t.rows))
	widths[0] = first
	for i, r := range t.rows {
		names[i] = wrap(clean(r[0], 10*maxWord), room)
		for _, line := range names[i] {
			if n := utf8.RuneCountInString(line); n <= room {
				widths[0] = max(widths[0], n)
			}
		}
	}
	t.writeHeader(p, shown, widths)
	for i, r := range t.rows {
		mark := "  "
		if i == t.marked {
			mark = "* "
		}
		cells := make([]string, len(shown))
		for i, column := range shown {
			cells[i] = r[column]
		}
		writeNamed(p, mark, names[i], cells, widths)
	}
}

// writeHeader writes the headers of some columns, which end on the same line.
func (t *table) writeHeader(p *page, shown, widths []int) {
	lines := 1
	for _, h := range t.header {
		lines = max(lines, strings.Count(h, "\n")+1)
	}
	for l := range lines {
		cells := make([]string, len(shown))
		for i, column := range shown {
			if parts := strings.Split(t.header[column], "\n"); l >= lines-len(parts) {
				cells[i] = parts[l-lines+len(parts)]
			}
		}
		writeRow(p, "  ", cells, widths)
	}
}

// writeNamed writes a row whose first cell is a name in lines. The other cells are beside the first line that fits into
// its column, or below all.
func writeNamed(p *page, mark string, name, cells []string, widths []int) {
	written := false
	for _, line := range name {
		if !written && utf8.RuneCountInString(line) <= widths[0] {
			cells[0], written = line, true
			writeRow(p, mark, cells, widths)
		} else {
			writeRow(p, mark, []string{line}, widths)
		}
		mark = "  "
	}
	if !written {
		cells[0] = ""
		writeRow(p, mark, cells, widths)
	}
}

// widths are those of some columns but the first, and their sum with a space before each. A column is as wide as its
// header, or a space wider than its cells: so that numbers are at least two apart.
func (t *table) widths(columns []int) (widths []int, sum int) {
	widths = make([]int, len(columns))
	for i, column := range columns {
		if i == 0 {
			continue
		}
		for line := range strings.SplitSeq(t.header[column], "\n") {
			widths[i] = max(widths[i], utf8.RuneCountInString(line))
		}
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[column])+1)
		}
		sum += widths[i] + 1
	}
	return widths, sum
}

// wrap breaks settings into lines of at most width columns, if that can be done after commas outside of brackets. All
// lines but the first are indented by two columns.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	add := func(part string) {
		if line != "" && utf8.RuneCountInString(line+part) > width {
			lines = append(lines, line)
			line = "  "
		}
		line += part
	}
	parts := allocconf.Split(text)
	for i, part := range parts {
		if i+1 < len(parts) {
			part += ","
		}
		add(part)
	}
	return append(lines, line)
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
		return bytesize.ThreeDigits(d.Seconds()) + "s"
	case d >= time.Millisecond:
		return bytesize.ThreeDigits(float64(d)/1e6) + "ms"
	case d >= time.Microsecond:
		return bytesize.ThreeDigits(float64(d)/1e3) + "us"
	}
	return fmt.Sprintf("%dns", d)
}

// smallPercent writes a part of 1 as a percentage, with three digits and at most two of them after the point.
func smallPercent(part float64) string {
	if p := 100 * part; p == 0 || p >= 0.005 {
		return bytesize.ThreeDigits(p) + "%"
	}
	return "<0.01%"
}
