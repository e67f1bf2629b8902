// Command chart draws the picture of README.md from the table of docs/policies.md:
//
//	go run ./bench/chart <docs/policies.md >docs/reserved.svg
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

func main() {
	if err := chart(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// A bar names a row of the table: the suffix of its trace, and its settings.
type bar struct{ label, class, suffix, settings string }

var bars = []bar{
	{"PyTorch", "theirs", "", "as recorded"},
	{"PyTorch, expandable segments", "theirs", ".expandable", "as recorded"},
	{"Ashlar, arena", "ours", "", "arena"},
	{"Ashlar, paged", "ours", "", "paged"},
	{"Ashlar, planned", "ours", "", "planned"},
}

// Each group of bars is a training run, named by its trace.
var groups = []struct{ trace, title string }{
	{"gpt2", "GPT-2 training"},
	{"unet", "U-Net training"},
}

// The geometry, in pixels. Bars have one scale: peaks of requested memory.
const (
	width    = 760
	barX     = 216
	barScale = 270
	rowStep  = 24
	barSize  = 16
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img">
<title>Memory reserved for two recorded training runs</title>
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.note { fill: #59636e }
.end { text-anchor: end }
.theirs { fill: #afb8c1 }
.ours { fill: #2f81f7 }
line { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.note { fill: #9198a1 }
.theirs { fill: #6e7681 }
.ours { fill: #388bfd }
line { stroke: #ff7b72 }
}
</style>
`

// chart reads the first Markdown table that has the columns it needs, and writes an SVG picture. An error names a row
// or column that is missing.
func chart(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	rows, err := parse(string(text))
	if err != nil {
		return err
	}
	var b strings.Builder
	y := 20
	for _, g := range groups {
		drawn, end, err := draw(rows, g.trace, g.title, y)
		if err != nil {
			return err
		}
		b.WriteString(drawn)
		y = end + 28
	}
	fmt.Fprintf(&b, "<text class=\"note\" x=\"%d\" y=\"%d\">Bars: memory reserved from the device. "+
		"Dashed line: peak of requested memory.</text>\n</svg>\n", 8, y)
	_, err = fmt.Fprintf(out, head+"%[3]s", width, y+12, b.String())
	return err
}

// draw returns the bars of a trace, the first of them below y, and where they end.
func draw(rows map[string]row, trace, title string, y int) (drawn string, end int, err error) {
	var b strings.Builder
	top := y + 8
	var bound row
	for i, bar := range bars {
		key := trace + bar.suffix + ", " + bar.settings
		r, ok := rows[key]
		if !ok {
			return "", 0, fmt.Errorf("the table has no row for %s", key)
		}
		if i == 0 {
			bound = r
		}
		length := float64(r.reservedBytes) / float64(bound.boundBytes) * barScale
		rowY := top + i*rowStep
		fmt.Fprintf(&b, "<text class=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", barX-8, rowY+13, bar.label)
		fmt.Fprintf(&b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n",
			bar.class, barX, rowY, length, barSize)
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", barX+length+6, rowY+13, spaced(r.reserved))
		fmt.Fprintf(&b, "<text class=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", width-8, rowY+13, spaced(r.smallest))
		end = rowY + barSize
	}
	fmt.Fprintf(&b, "<line x1=\"%[1]d\" x2=\"%[1]d\" y1=\"%d\" y2=\"%d\"/>\n", barX+barScale, top-4, end+4)
	fmt.Fprintf(&b, "<text class=\"title\" x=\"%d\" y=\"%d\">%s, %s requested</text>\n", barX, y, title,
		spaced(bound.bound))
	fmt.Fprintf(&b, "<text class=\"note end\" x=\"%d\" y=\"%d\">completes within</text>\n", width-8, y)
	return b.String(), end, nil
}

// A row is what the picture shows of a row of the table: sizes as they are printed there, and in bytes.
type row struct {
	bound, reserved, smallest string
	boundBytes, reservedBytes int64
}

// parse returns the rows of the table by trace and settings, joined by ", ".
func parse(text string) (map[string]row, error) {
	rows := map[string]row{}
	var columns map[string]int
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if columns == nil {
			columns = map[string]int{}
			for i, name := range cells {
				columns[name] = i
			}
			for _, name := range []string{"trace", "settings", "bound", "reserved", "smallest limit"} {
				if _, ok := columns[name]; !ok {
					return nil, fmt.Errorf("the table has no column %q", name)
				}
			}
			continue
		}
		if len(cells) < len(columns) {
			return nil, fmt.Errorf("the table has a short row: %s", strings.TrimSpace(line))
		}
		r := row{
			bound: cells[columns["bound"]], reserved: cells[columns["reserved"]],
			smallest: cells[columns["smallest limit"]],
		}
		var err error
		if r.boundBytes, err = bytesize.Parse(r.bound); err != nil {
			return nil, fmt.Errorf("the table has a row whose bound is no size: %w", err)
		}
		if r.reservedBytes, err = bytesize.Parse(r.reserved); err != nil {
			return nil, fmt.Errorf("the table has a row whose reserved memory is no size: %w", err)
		}
		rows[cells[columns["trace"]]+", "+cells[columns["settings"]]] = r
	}
	return rows, nil
}

// spaced writes 17.89GiB as 17.89 GiB.
func spaced(size string) string {
	unit := strings.TrimLeft(size, "0123456789.")
	return strings.TrimSuffix(size, unit) + " " + unit
}
