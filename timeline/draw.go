package timeline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// TimelineOptions say how WriteTimeline prints.
type TimelineOptions struct {
	Width   int  // characters in a line, at least 60; 0 means 150
	Unicode bool // draw with box characters and print names unchanged; otherwise the output is ASCII
}

const (
	defaultWidth = 150
	leastWidth   = 60
	longestLane  = 20 // characters of a lane's name beside its rows
	tickWidth    = 12 // characters between two ticks of the axis, at least
)

// A pen is the characters that bars are drawn with.
type pen struct {
	charset
	begin, fill  string
	ends         [Failed + 1]string // by state
	one, several string             // spans that have less than two characters
	axis, tick   string
	levels       []string // of a column, from nothing to all of a line
}

var (
	asciiPen = pen{
		charset: ascii, begin: "[", fill: "=", one: "|", several: "*", axis: "-", tick: "+", levels: []string{" ", "#"},
		ends: [...]string{"]", ">", "?", "~", ".", "!"},
	}
	unicodePen = pen{
		charset: anyRune, begin: "├", fill: "─", one: "│", several: "┃", axis: "─", tick: "┴",
		levels: []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
		ends:   [...]string{"┤", "▷", "?", "~", ".", "!"},
	}
)

// A chart is the area in which things are drawn by time: each column is an equal part of it.
type chart struct {
	pen
	start, end time.Duration
	gutter     int // characters left of the columns
	columns    int
}

// column returns the column of a time.
func (c *chart) column(at time.Duration) int {
	part := float64(at-c.start) / float64(c.end-c.start) // float64 is exact enough for a few hundred columns
	return min(max(0, int(part*float64(c.columns))), c.columns)
}

// WriteTimeline draws a Recording over time. Each lane and nesting depth has a row, or several where spans of one depth
// overlap on several streams. Each span is a bar with its name, if that fits. Below the axis, in milliseconds, each
// counter has a curve, memory first; a column shows the largest value in its time. Spans without a time are counted and
// not drawn. For a device without a clock a line says so.
func WriteTimeline(w io.Writer, r *Recording, opts TimelineOptions) error {
	out := bufio.NewWriter(w)
	p := asciiPen
	if opts.Unicode {
		p = unicodePen
	}
	fmt.Fprintf(out, "%s: %s\n", p.visible(r.Device), r.summary())
	c := &chart{pen: p}
	curves := r.series()
	if !c.fit(r, curves) {
		fmt.Fprintln(out, "nothing has a time")
		return out.Flush()
	}
	rows, missing := c.rows(r)
	for _, row := range rows {
		c.gutter = max(c.gutter, utf8.RuneCountInString(row.label)+1)
	}
	for _, s := range curves {
		c.gutter = max(c.gutter, len(quantity(s.most(), s.bytes))+1, len(quantity(s.least(), s.bytes))+1)
	}
	opts.Width = cmp.Or(opts.Width, defaultWidth)
	c.columns = max(opts.Width, leastWidth) - c.gutter
	used := map[string]bool{}
	for _, row := range rows {
		c.line(out, row.label, c.bars(row.spans, used))
	}
	c.scale(out)
	c.legend(out, used, missing)
	for _, s := range curves {
		c.curve(out, s)
	}
	return out.Flush()
}

// fit sets the range of time to draw, and reports whether it holds anything.
func (c *chart) fit(r *Recording, curves []series) bool {
	first := true
	see := func(at time.Duration) {
		switch {
		case at == Unknown:
		case first:
			c.start, c.end, first = at, at, false
		default:
			c.start, c.end = min(c.start, at), max(c.end, at)
		}
	}
	for i := range r.Spans {
		see(r.Spans[i].Start)
		see(r.Spans[i].End)
	}
	for _, s := range curves {
		see(s.points[0].at)
		see(s.points[len(s.points)-1].at)
	}
	c.end = max(c.end, c.start+1)
	return !first
}

// A row is a line of bars that do not overlap.
type row struct {
	label string
	spans []*Entry
	until time.Duration
}

// rows distributes the spans: by lane, in the order of their first spans, then by depth, then into the first row with
// room.
func (c *chart) rows(r *Recording) (rows []row, missing int) {
	type lane struct {
		name   string
		depths [][]row
	}
	var lanes []*lane
	byNumber := map[int]*lane{}
	for i := range r.Spans {
		e := &r.Spans[i]
		if e.Start == Unknown {
			missing++
			continue
		}
		l := byNumber[e.LaneNumber]
		if l == nil {
			l = &lane{name: c.name(e.Lane, longestLane)}
			byNumber[e.LaneNumber], lanes = l, append(lanes, l)
		}
		for len(l.depths) <= e.Depth {
			l.depths = append(l.depths, nil)
		}
		l.depths[e.Depth] = deal(l.depths[e.Depth], e, c.end)
	}
	for _, l := range lanes {
		label := l.name
		for _, depth := range l.depths {
			for _, row := range depth {
				row.label = label
				rows, label = append(rows, row), ""
			}
		}
	}
	return rows, missing
}

// deal puts a span into the first row that is free from its start on, or into a new row.
func deal(rows []row, e *Entry, end time.Duration) []row {
	until := e.End
	switch {
	case until != Unknown:
	case e.State == Open:
		until = end
	default:
		until = e.Start
	}
	for i := range rows {
		if rows[i].until <= e.Start {
			rows[i].spans, rows[i].until = append(rows[i].spans, e), max(until, rows[i].until)
			return rows
		}
	}
	return append(rows, row{spans: []*Entry{e}, until: until})
}

// bars draws the spans of a row, and notes which characters the legend must explain.
func (c *chart) bars(spans []*Entry, used map[string]bool) string {
	cells := make([]string, c.columns)
	for _, e := range spans {
		from, to, end := min(c.column(e.Start), c.columns-1), 0, c.ends[e.State]
		switch {
		case e.End != Unknown:
			to = c.column(e.End)
		case e.State == Open:
			to = c.columns
		}
		to = max(to, from+1)
		if cells[from] != "" && to-from > 1 {
			from++
		}
		switch {
		case cells[from] != "":
			cells[from] = c.several
			used[c.several] = true
			continue
		case to-from == 1 && e.State == Done:
			cells[from] = c.one
			continue
		}
		used[end] = true
		cells[from], cells[to-1] = c.begin, end
		if to-from == 1 {
			continue
		}
		inner := cells[from+1 : to-1]
		for i := range inner {
			inner[i] = c.fill
		}
		if label := []rune(c.visible(e.Name)); len(label) <= len(inner) {
			for i, r := range label {
				inner[i] = string(r)
			}
		}
	}
	return join(cells)
}

// join makes a line of cells, with spaces in those that are empty.
func join(cells []string) string {
	var b strings.Builder
	for _, cell := range cells {
		cell = cmp.Or(cell, " ")
		b.WriteString(cell)
	}
	return b.String()
}

// line prints one line, with a label in the gutter.
func (c *chart) line(out io.Writer, label, text string) {
	pad := strings.Repeat(" ", max(0, c.gutter-utf8.RuneCountInString(label)))
	fmt.Fprintln(out, strings.TrimRight(label+pad+text, " "))
}

// legend explains the characters that were used.
func (c *chart) legend(out io.Writer, used map[string]bool, missing int) {
	var notes []string
	explain := func(sign, meaning string) {
		if used[sign] {
			notes = append(notes, sign+" "+meaning)
		}
	}
	explain(c.several, "several spans")
	for state, meaning := range []string{
		Open: "open", Unfinished: "never ended, but what it lies in did", Crossed: "ended on another stream",
		Pending: "not reached yet", Failed: "its end has no time",
	} {
		if state > 0 {
			explain(c.ends[state], meaning)
		}
	}
	if missing > 0 {
		notes = append(notes, fmt.Sprintf("%d without a time are not drawn", missing))
	}
	if len(notes) > 0 {
		c.line(out, "", strings.Join(notes, "; "))
	}
}
