package plot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/holders"
)

// Distances from the top of a panel over time, in pixels.
const (
	stepsTop    = 58 // the numbers of steps
	chartTop    = 84
	chartBottom = chartTop + chartHeight
	historyEnd  = chartBottom + 44
	roomOnTop   = 1.04 // of the scale
)

// A history is what the panels over time have in common.
type history struct {
	o        Options
	h        *holders.History
	columns  *columns
	groups   *groups
	segments []holders.Segment
	most     []int64 // reserved bytes, in each column
	reserved int64   // at the moment
}

// newHistory divides the recording into n columns.
func newHistory(h *holders.History, o Options, n int) (*history, error) {
	first, err := boundary(h, o.From, min(0, len(h.Trace.Events)-1), func(s holders.Step) int { return s.First })
	if err != nil {
		return nil, err
	}
	last, err := boundary(h, o.To, len(h.Trace.Events)-1, func(s holders.Step) int { return s.Last })
	if err != nil {
		return nil, err
	}
	if last < first || last == first && o.From+o.To != "" {
		return nil, fmt.Errorf("plot: the picture would end at event %d and begin at event %d", last, first)
	}
	x := &history{o: o, h: h, columns: newColumns(h, first, last, n, o.Axis), segments: h.Segments()}
	moment, err := x.moment()
	if err != nil {
		return nil, err
	}
	x.groups = newGroups(x.columns, o.By, moment)
	x.most, x.reserved = x.columns.reserved(x.segments, moment.Event)
	return x, nil
}

// boundary returns the event of a moment, or a default for an empty name. A step begins and ends the picture with its own
// first and last event.
func boundary(h *holders.History, name string, usual int, of func(holders.Step) int) (int, error) {
	if name == "" {
		return usual, nil
	}
	m, err := h.Moment(name)
	if number, ok := strings.CutPrefix(name, "step:"); ok && err == nil {
		for _, s := range h.Steps().List {
			if strconv.Itoa(s.Number) == number {
				return of(s), nil
			}
		}
	}
	return m.Event, err
}

// moment returns the moment whose groups are named.
func (x *history) moment() (holders.Moment, error) {
	if x.o.At == "" && len(x.h.Trace.Events) == 0 {
		return x.h.Moment("end")
	}
	if x.o.At == "" || x.o.At == "peak" {
		m, err := x.h.Moment(fmt.Sprintf("event:%d", x.columns.peak()))
		m.Name = "the peak"
		return m, err
	}
	m, err := x.h.Moment(x.o.At)
	if err == nil && (m.Event < x.columns.first || m.Event > x.columns.last) {
		return m, fmt.Errorf("plot: the moment %q is not between the beginning and the end of the picture", x.o.At)
	}
	return m, err
}

func (x *history) title() string { return x.o.Title }

func (x *history) size() (width, height float64) { return historyWidth, historyEnd }

// notes are those of all panels over time.
func (x *history) notes() (notes []string) {
	if slices.ContainsFunc(x.groups.all, func(g group) bool { return strings.HasPrefix(g.label, holders.NoStack(true)) }) {
		notes = append(notes, holders.NoStack(true)+": no stack was recorded, such as in PyTorch's backward pass.")
	}
	if len(x.columns.failures()) > 0 {
		notes = append(notes, "Red: a request failed.")
	}
	if len(x.h.Trace.Events) > 0 {
		notes = append(notes, "Each column of pixels shows the moment of the most requested memory in it.")
	}
	return notes
}

// momentText is the heading of the names: "At the peak, 3.952s: 7.86 GiB requested".
func (x *history) momentText() string {
	m := x.groups.moment
	when := ""
	if _, err := time.ParseDuration(m.Name); err != nil && m.Since > 0 { // the name is not a time itself
		when = ", " + m.Since.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("At %s%s: %s requested", m.Name, when, sizeText(m.Bytes))
}

// momentX is the place of the moment.
func (x *history) momentX() float64 {
	return chartLeft + x.columns.position(x.groups.moment.Event)*chartWidth
}

// markMoment draws a line at the moment, from y to the lower edge of the chart.
func (x *history) markMoment(p *painter, y, bottom float64) {
	if len(x.h.Trace.Events) > 0 {
		p.dashed(paintMoment, 1, point{x.momentX(), y}, point{x.momentX(), bottom})
	}
}

// frame draws the scale of time, the steps above the chart, the failed requests and the gaps. Y is the top of the panel.
func (x *history) frame(p *painter, y float64) {
	p.axis(x.columns, y+chartBottom)
	x.steps(p, y+stepsTop)
	drawn := marks{}
	for _, g := range x.h.Trace.Gaps {
		if g <= x.columns.first || g > x.columns.last || !drawn.first(x.columns.position(g)*chartWidth) {
			continue
		}
		from, to := x.columns.position(g-1)*chartWidth, x.columns.position(g)*chartWidth
		p.rect(paintAxis, "recording was off", rect{chartLeft + from, y + chartBottom - 3, max(to-from, 1), 3})
	}
	drawn = marks{}
	for _, e := range x.columns.failures() {
		at := chartLeft + x.columns.position(e)*chartWidth
		if !drawn.first(at) {
			continue
		}
		title := fmt.Sprintf("out of memory: a request of %s failed", sizeText(x.h.Trace.Events[e].Size))
		p.line(paintAlarm, 1, point{at, y + chartTop - 4}, point{at, y + chartBottom})
		p.add(polygon{paint: paintAlarm, title: title, points: []point{
			{at - 5, y + chartTop - 10}, {at + 5, y + chartTop - 10}, {at, y + chartTop - 1},
		}})
	}
}

// marks are the columns of pixels that have a mark, so that each gets one, however many events it has.
type marks map[int]bool

// first reports whether the column at x has no mark yet.
func (m marks) first(x float64) bool {
	marked := m[int(x)]
	m[int(x)] = true
	return !marked
}

// steps writes the numbers of the steps, as many as there is room for.
func (x *history) steps(p *painter, y float64) {
	steps := x.h.Steps()
	var shown []holders.Step
	for _, s := range steps.List {
		if s.First >= x.columns.first && s.First <= x.columns.last {
			shown = append(shown, s)
		}
	}
	if len(shown) == 0 {
		return
	}
	name := "step"
	if steps.Inferred {
		name = "repetition"
	}
	p.text(label{x: chartLeft - 8, y: y + 12, text: name, style: textNote, align: alignRight, title: steps.Source})
	free, drawn := 0.0, marks{}
	for _, s := range shown {
		from := chartLeft + x.columns.position(s.First)*chartWidth
		if !drawn.first(from / 2) {
			continue
		}
		p.line(paintAxis, 1, point{from, y + chartTop - stepsTop - 5}, point{from, y + chartTop - stepsTop})
		text := fmt.Sprint(s.Number)
		if from >= free {
			p.text(label{x: from, y: y + 12, text: text, style: textNote, align: alignMiddle})
			free = from + p.fonts.width(textNote, text) + 8
		}
	}
}

// names writes the sizes, the shares and the names of entries beside the bar of the moment.
func (p *painter) names(entries []entry, whole int64, top, bottom float64) {
	ys := make([]float64, len(entries))
	for i := range entries {
		ys[i] = entries[i].y
	}
	spread(ys, top+lineHeight/2, bottom-lineHeight/2)
	for i, e := range entries {
		y := ys[i]
		p.line(paintAxis, 1, point{momentLeft + momentWidth, e.y}, point{namesLeft - 14, y}, point{namesLeft - 4, y})
		p.text(label{x: sizesRight, y: y + 4, text: sizeText(e.bytes), style: textBold, align: alignRight})
		if e.share {
			p.text(label{x: sharesRight, y: y + 4, text: shareText(e.bytes, whole), style: textNote, align: alignRight})
		}
		p.text(label{
			x: labelsLeft, y: y + 4, text: p.fonts.fit(textPlain, e.label, historyWidth-margin-labelsLeft), title: e.label,
		})
	}
}

// An entry is a part of the bar of the moment, whose middle is at y.
type entry struct {
	y     float64
	bytes int64
	share bool // it has a part of the requested memory
	label string
}

// spread moves ascending positions apart, to distances of at least a line between top and bottom, as far as they fit.
func spread(ys []float64, top, bottom float64) {
	least := top
	for i := range ys {
		ys[i] = max(ys[i], least)
		least = ys[i] + lineHeight
	}
	most := bottom
	for i := len(ys) - 1; i >= 0; i-- {
		ys[i] = min(ys[i], most)
		most = ys[i] - lineHeight
	}
}

// Memory returns a chart of the requested and the reserved memory over time, whose bands are groups of blocks. Beside it
// are the groups at one moment, which add up to the requested memory. Steps, failed requests and gaps are marked. The
// error is that of holders.History.Moment for the moments in o.
func Memory(h *holders.History, o Options) (Panel, error) {
	x, err := newHistory(h, o, chartWidth)
	if err != nil {
		return nil, err
	}
	return &memoryPanel{x}, nil
}

type memoryPanel struct{ *history }

func (x *memoryPanel) extent() float64 {
	most := int64(1)
	for i, e := range x.columns.moments {
		most = max(most, x.most[i], x.h.ActiveBytes(int(e)))
	}
	return float64(most) * roomOnTop
}

func (x *memoryPanel) note() []string {
	return append([]string{
		fmt.Sprintf("Colors: memory that the program requested, by %s.", x.groups.keysText()),
		"Line: memory that the allocator reserved. The area between the colors and the line was not in use.",
	}, x.notes()...)
}

// summary is the line below the title.
func (x *memoryPanel) summary() string {
	requested, reserved := int64(0), int64(0)
	for i, e := range x.columns.moments {
		requested, reserved = max(requested, x.h.ActiveBytes(int(e))), max(reserved, x.most[i])
	}
	text := fmt.Sprintf("Memory over time: at most %s requested and %s reserved.", sizeText(requested), sizeText(reserved))
	failures := x.columns.failures()
	switch n := len(failures); {
	case n == 1:
		text += fmt.Sprintf(" A request of %s failed.", sizeText(x.h.Trace.Events[failures[0]].Size))
	case n > 1:
		text += fmt.Sprintf(" %s requests failed.", grouped(n))
	}
	return text
}

func (x *memoryPanel) draw(p *painter, y, extent float64) {
	x.groups.choosePaints(p.palette)
	p.heading(y, historyWidth, x.o.Title, x.summary())
	bottom := y + chartBottom
	at := func(bytes int64) float64 { return bottom - float64(bytes)/extent*chartHeight }
	sizeLines(extent, func(bytes float64, text string) {
		p.line(paintGrid, 1, point{chartLeft, at(int64(bytes))}, point{chartRight, at(int64(bytes))})
		p.text(label{x: chartLeft - 8, y: at(int64(bytes)) + 4, text: text, style: textNote, align: alignRight})
	})
	reserved := steps(x.most, at)
	p.add(polygon{paint: paintFree, title: "reserved, not in use", points: append(reserved,
		point{chartRight, bottom}, point{chartLeft, bottom})})
	x.bands(p, at)
	p.line(paintReserved, 1.5, reserved...)
	x.markMoment(p, y+chartTop, bottom)
	x.frame(p, y)
	x.bar(p, y, at)
}

// bands draws the groups.
func (x *memoryPanel) bands(p *painter, at func(int64) float64) {
	below := make([]int64, len(x.columns.moments))
	lower := steps(below, at)
	for i := range x.groups.all {
		g := &x.groups.all[i]
		for c := range below {
			below[c] += g.bytes[c]
		}
		upper := steps(below, at)
		points := append([]point{}, upper...)
		for n := len(lower) - 1; n >= 0; n-- {
			points = append(points, lower[n])
		}
		p.add(polygon{paint: g.paint(p.palette), title: g.label, points: points})
		lower = upper
	}
}

// steps returns the line over the columns of a chart.
func steps(values []int64, at func(int64) float64) (points []point) {
	for c, v := range values {
		if c > 0 && v == values[c-1] && c < len(values)-1 {
			continue
		}
		if c > 0 {
			points = append(points, point{chartLeft + float64(c), at(values[c-1])})
		}
		points = append(points, point{chartLeft + float64(c), at(v)})
	}
	return append(points, point{chartRight, at(values[len(values)-1])})
}

// bar draws the moment: its groups on top of each other, with their names.
func (x *memoryPanel) bar(p *painter, y float64, at func(int64) float64) {
	p.text(label{x: momentLeft, y: y + stepsTop + 12, text: x.momentText(), style: textBold})
	m := x.groups.moment
	if len(x.h.Trace.Events) > 0 {
		p.dashed(paintMoment, 1, point{x.momentX(), at(m.Bytes)}, point{momentLeft, at(m.Bytes)})
		p.dashed(paintMoment, 1, point{chartRight, at(0)}, point{momentLeft, at(0)})
	}
	var entries []entry
	bytes := int64(0)
	part := func(paint paint, size int64, name string, share bool) {
		top, bottom := at(bytes+size), at(bytes)
		p.rect(paint, name, rect{momentLeft, top, momentWidth, bottom - top})
		entries = append([]entry{{(top + bottom) / 2, size, share, name}}, entries...)
		bytes += size
	}
	for i := range x.groups.all {
		if g := &x.groups.all[i]; g.at > 0 {
			part(g.paint(p.palette), g.at, g.label, true)
		}
	}
	if free := x.reserved - m.Bytes; free > 0 {
		part(paintFree, free, "reserved, not in use", false)
	}
	p.line(paintAxis, 1, point{momentLeft, at(bytes)}, point{momentLeft + momentWidth, at(bytes)},
		point{momentLeft + momentWidth, at(0)}, point{momentLeft, at(0)}, point{momentLeft, at(bytes)})
	p.names(entries, m.Bytes, y+chartTop, y+chartBottom)
}
