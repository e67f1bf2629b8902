package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A rendered is a Markdown table or list, under the name that its markers have in the document.
type rendered struct{ name, title, text string }

// tables renders everything that the results hold, in the order of the document.
func (r *results) tables() []rendered {
	out := []rendered{{"targets", "Targets", r.targetTable()}}
	for _, p := range r.Settings.parts() {
		out = append(out, rendered{p.name, p.title, r.table(p)})
	}
	return append(out,
		rendered{"machine", "The run", r.machine()},
		rendered{"failures", "What could not be measured", r.failures()})
}

func row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", "\\|")
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func header(cells ...string) string {
	return row(cells...) + "|" + strings.Repeat(" --- |", len(cells)) + "\n"
}

func (r *results) targetTable() string {
	var b strings.Builder
	b.WriteString(header("what", "target", "measured", "verdict"))
	for _, t := range r.targets() {
		b.WriteString(row(t.what, t.want, t.measured, string(t.verdict)))
	}
	return b.String()
}

// table renders a part, and names the sides of which there is no figure.
func (r *results) table(p part) string {
	var b strings.Builder
	b.WriteString(header(append([]string{p.corner}, p.columns...)...))
	for _, name := range p.rows {
		cells := []string{name}
		for _, column := range p.columns {
			text := "–"
			if c := r.at(place{p.name, name, column}); c != nil {
				text = c.text()
			}
			cells = append(cells, text)
		}
		b.WriteString(row(cells...))
	}
	measured := func(side string) bool { return r.has(p.name, side) }
	if missing := slices.DeleteFunc(slices.Clone(p.sides()), measured); len(missing) > 0 {
		fmt.Fprintf(&b, "\nThis run did not measure %s.\n", strings.Join(missing, "; "))
	}
	return b.String()
}

// has reports whether a part has any figure of a side.
func (r *results) has(part, side string) bool {
	return slices.ContainsFunc(r.Cells, func(c cell) bool {
		return c.Part == part && (c.Row == side || c.Column == side)
	})
}

// text is the median, and the least and the greatest sample if they differ from it.
func (c *cell) text() string {
	mid, low, high := figure(c.median()), figure(slices.Min(c.Samples)), figure(slices.Max(c.Samples))
	if low == high {
		return mid
	}
	return fmt.Sprintf("%s (%s to %s)", mid, low, high)
}

// figure writes a number with three digits or, if it is larger, without decimals and with commas.
func figure(x float64) string {
	switch {
	case x == 0 || (x < 100 && x == float64(int64(x))):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x < 1:
		return strconv.FormatFloat(x, 'f', 3, 64)
	case x < 10:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// buildFacts say where things lie on the machine, which is of use to the compiler alone.
var buildFacts = []string{"python: includes", "python: lib", "python: cudart", "python: abi"}

func (r *results) machine() string {
	var b strings.Builder
	b.WriteString(header("fact", "value"))
	for _, name := range slices.Sorted(maps.Keys(r.Machine)) {
		if slices.Contains(buildFacts, name) {
			continue
		}
		b.WriteString(row(name, r.Machine[name]))
	}
	s := r.Settings
	b.WriteString(row("command", "`"+r.Command+"`"))
	b.WriteString(row("begun", r.Started))
	b.WriteString(row("took", figure(r.Seconds)+" s"))
	b.WriteString(row("each figure", fmt.Sprintf("median of %d measurements of %d ms", s.Reps, s.Millis)))
	b.WriteString(row("replacements", fmt.Sprintf("seed %d, %d rounds of %d unmeasured, %d measured", s.Seed,
		s.WarmRounds, s.Live, s.Rounds)))
	return b.String()
}

// failures lists what went wrong: of a compiler's output the beginning (the file and the progress have the whole), of
// other errors the first line.
func (r *results) failures() string {
	var b strings.Builder
	for _, a := range r.Build {
		if !a.OK {
			lines := strings.Split(strings.TrimSpace(a.Output), "\n")
			lines = lines[:min(len(lines), 20)]
			fmt.Fprintf(&b, "- `%s` failed\n\n```\n%s\n```\n", a.Command, strings.Join(lines, "\n"))
		}
	}
	for _, f := range r.Failures {
		first, _, _ := strings.Cut(f.Error, "\n")
		fmt.Fprintf(&b, "- %s: %s\n", f.What, first)
	}
	if b.Len() == 0 {
		return "Nothing.\n"
	}
	return b.String()
}

// fill puts each table between its markers, which stand on lines of their own: <!-- compare:NAME --> and
// <!-- /compare:NAME -->. Every table must have them once.
func fill(doc string, tables []rendered) (string, error) {
	for _, t := range tables {
		begin, end := "<!-- compare:"+t.name+" -->\n", "<!-- /compare:"+t.name+" -->\n"
		if strings.Count(doc, begin) != 1 || strings.Count(doc, end) != 1 {
			return "", fmt.Errorf("want the markers %q and %q once each", strings.TrimSpace(begin),
				strings.TrimSpace(end))
		}
		head, rest, _ := strings.Cut(doc, begin)
		_, tail, ordered := strings.Cut(rest, end)
		if !ordered {
			return "", fmt.Errorf("the marker %q stands before its beginning", strings.TrimSpace(end))
		}
		doc = head + begin + "\n" + t.text + "\n" + end + tail
	}
	return doc, nil
}
